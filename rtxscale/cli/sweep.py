"""`rtxscale sweep`: run what is missing of a sweep, conclude, write the report.

The only place where running and reporting meet. The last line printed is the run's absolute path. Caller: `cli.main`.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rtxscale.cli.allowed import AllowOption, check_allowed, note_own
from rtxscale.cli.doctor import IgnoreOption, look_first
from rtxscale.cli.notify import notified
from rtxscale.cli.show import ResultsOption

if TYPE_CHECKING:
    from rtxscale.run.sweep import SweepResult

EXIT_CODES = {"limit": 3, "max_hours": 3, "stop": 3, "SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}
REASONS = {"limit": "the time limit", "max_hours": "the sweep's max_hours", "stop": "`rtxscale stop`"}
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
REPORT_FILE = "report.html"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(sweep)


def sweep(
    sweep: Annotated[Path, typer.Argument(help="The sweep file (YAML).", metavar="SWEEP")],
    address: Annotated[
        str | None,
        typer.Option(help="host:port of a Ray cluster that runs already; else RAY_ADDRESS, else one on this host."),
    ] = None,
    results: ResultsOption = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start a new run; earlier ones are kept.")] = False,
    limit_minutes: Annotated[
        float | None, typer.Option(min=0.0, help="Stop at the next trial boundary after this many minutes.")
    ] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Measure only.")] = False,
    ignore: IgnoreOption = None,
    allow_commands: AllowOption = False,
) -> None:
    """Run the trials of SWEEP that are not finished yet, and report."""
    from rtxscale.plan.expand import make_plan
    from rtxscale.results.location import results_root
    from rtxscale.run.authentication import settle
    from rtxscale.spec.load import load_sweep
    from rtxscale.workloads.files.model import catalogue_beside

    loaded, directory = load_sweep(sweep), sweep.absolute().parent
    for folder in (directory, sweep.resolve().parent):
        check_allowed(loaded.sweep, folder, allowed=allow_commands)
    note_own(loaded.sweep, loaded.text, directory)

    def measured() -> SweepResult:
        examined = look_first(loaded.sweep, results_root(results), ignore)
        if address is not None:
            os.environ["RAY_ADDRESS"] = address
        settle(os.environ, Path.home())  # before Ray is imported
        from rtxscale.run.sweep import SweepRequest, execute

        return execute(
            SweepRequest(
                sweep=loaded.sweep,
                sweep_text=loaded.text,
                results_root=results_root(results),
                address=os.environ.get("RAY_ADDRESS") or None,
                fresh=fresh,
                directory=directory,
                plan=partial(make_plan, catalogue=catalogue_beside(loaded.sweep, directory)),
                limit_minutes=limit_minutes,
                examined=examined,
                ignore=tuple(ignore or ()),
            )
        )

    result = notified(loaded.sweep, measured, exit_code)
    for line in summary(result):
        print(line)
    if not no_report and result.interrupted not in SIGNALS:
        report_if_possible(result.run_dir)
    print(result.run_dir.absolute(), flush=True)
    raise typer.Exit(exit_code(result))


def summary(result: SweepResult) -> list[str]:
    """What became of the sweep, in a few lines."""
    from rtxscale.report.numbers import how_many

    if not result.total:
        return [f"stopped by {result.interrupted} before anything ran"]
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(result.outcomes.items()))
    lines = [
        f"{result.finished} of {result.total} trials finished" + (f"; attempts now: {outcomes}" if outcomes else "")
    ]
    if result.outside_median_s is not None:
        built = "" if result.build_median_s is None else f", of which {result.build_median_s:.2f} s building"
        lines.append(f"outside measurement: {result.outside_median_s:.2f} s per warm trial{built} (medians)")
    if result.session_start_median_s is not None:
        lines.append(f"session start: {result.session_start_median_s:.1f} s (median)")
    if result.quarantined:
        lines.append(
            f"in quarantine: {how_many(result.quarantined, 'trials')} of cells that ended their workers twice in a "
            "row; `rtxscale show` has the reasons, --fresh tries again in a new run"
        )
    if result.stranded:
        lines.append(
            f"not run: {how_many(result.stranded, 'trials')}, for a node that they need was lost; the same command "
            "again goes on when it is back"
        )
    if result.failed:
        endings = ", ".join(f"{count} {outcome}" for outcome, count in sorted(result.endings.items()))
        lines.append(
            f"{result.failed} of the finished trials failed: all ended {endings}; --fresh tries again in a new run"
        )
    if result.interrupted:
        why = REASONS.get(result.interrupted, result.interrupted)
        lines.append(f"stopped by {why}; the same command again continues where it stopped")
    return lines


def exit_code(result: SweepResult) -> int:
    """0: every trial has a number or a finding (out of memory, diverged). 1: some failed for good, or were not run.

    3 stopped by limit or wish; 129, 130 or 143 stopped by a signal.
    """
    if result.interrupted:
        return EXIT_CODES.get(result.interrupted, 1)
    nothing = bool(result.outcomes) and not result.outcomes.get("ok")
    return 1 if nothing or result.failed or result.finished < result.total else 0


def report_if_possible(run_dir: Path) -> None:
    """Show and report; a disk that has become full takes nothing away from what was measured."""
    from rtxscale.errors import StorageOutage

    try:
        _report(run_dir)
        _send(run_dir)
    except StorageOutage as outage:
        print(f"rtxscale: the report is on this host alone: {outage}", file=sys.stderr)
    except OSError as error:
        print(
            f"rtxscale: the report could not be written ({error.strerror or error}); the results are kept, and "
            f"`rtxscale report {run_dir}` writes it when there is room",
            file=sys.stderr,
        )


def _send(run_dir: Path) -> None:
    """Put the report into the object store that the results root stands for, if it does."""
    from rtxscale.results.location import store_of
    from rtxscale.results.mirror import send_report

    if store := store_of(run_dir.parent):
        send_report(store, run_dir)


def _report(run_dir: Path) -> None:
    """Conclude, show, and write the report, redacted, beside the rows; its path is printed."""
    from rtxscale.analysis.conclude import conclude
    from rtxscale.report.page import write_report
    from rtxscale.report.terminal import show_conclusions
    from rtxscale.report.trial_counts import trial_counts
    from rtxscale.results.read import open_verified
    from rtxscale.results.redaction.redacted import redacted

    measured = open_verified(run_dir)
    run = redacted(measured)
    conclusions = conclude(run)
    show_conclusions(conclusions, stream=sys.stdout, counts=trial_counts(measured))
    print(f"report: {write_report(run, conclusions, run_dir / REPORT_FILE)}")
