"""`rtxscale confirm`: measure what a run has selected against the default once more, in fresh sessions of the same run.

Reads the run's conclusions for what is to be confirmed, hands that to `run` as plain data, and reports as
`rtxscale sweep` does. The last line printed is the run's absolute path. Caller: `cli.main`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rtxscale.cli.allowed import AllowOption, check_allowed, check_own, script_directory
from rtxscale.cli.doctor import IgnoreOption, look_first
from rtxscale.cli.notify import notified
from rtxscale.cli.show import ResultsOption, RunArgument, open_run
from rtxscale.cli.sweep import SIGNALS, exit_code, report_if_possible, summary
from rtxscale.errors import ResultsError

if TYPE_CHECKING:
    import polars as pl

    from rtxscale.analysis.conclusions import Conclusions
    from rtxscale.plan.confirm import Pair
    from rtxscale.results.read import Run
    from rtxscale.run.sweep import SweepResult
    from rtxscale.spec.sweep import Sweep

VISITS = 4
"""Sessions of each pair unless the user says otherwise: Student's t of 3 degrees of freedom."""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(confirm)


def confirm(
    run: RunArgument = "latest",
    results: ResultsOption = None,
    address: Annotated[
        str | None,
        typer.Option(help="host:port of a Ray cluster that runs already; else RAY_ADDRESS, else one on this host."),
    ] = None,
    visits: Annotated[int, typer.Option(min=1, help="Sessions of each selected cell and its default.")] = VISITS,
    limit_minutes: Annotated[
        float | None, typer.Option(min=0.0, help="Stop at the next trial boundary after this many minutes.")
    ] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Measure only.")] = False,
    ignore: IgnoreOption = None,
    allow_commands: AllowOption = False,
) -> None:
    """Measure the best cells of RUN against the default again.

    Only that gain is one: the best of many cells looks better than it is. More visits extend a confirmation.
    """
    from rtxscale.analysis.conclude import conclude
    from rtxscale.spec.printable import printable

    opened = open_run(run, results)
    conclusions = conclude(opened)
    pairs = selection(conclusions)
    if not pairs:
        print(f"nothing to confirm: {why_nothing(conclusions.best)}")
        print(printable(str(opened.run_dir)), flush=True)
        return
    sweep = sweep_of(opened)
    directory = script_directory(opened, sweep)
    for folder in filter(None, (directory, opened.run_dir)):
        check_allowed(sweep, folder, allowed=allow_commands)
    check_own(sweep, opened.sweep_text, directory, allowed=allow_commands)
    code = measure(
        opened,
        pairs,
        visits=visits,
        address=address,
        limit_minutes=limit_minutes,
        report=not no_report,
        examine=partial(look_first, sweep, opened.run_dir.parent, ignore),
        ignore=tuple(ignore or ()),
        directory=directory,
    )
    print(printable(str(opened.run_dir)), flush=True)
    raise typer.Exit(code)


def selection(conclusions: Conclusions) -> list[Pair]:
    """What the run says is to be confirmed, by GPU count."""
    from rtxscale.analysis.confirmed import pairs_to_confirm
    from rtxscale.plan.confirm import Pair

    rows = pairs_to_confirm(conclusions.best, conclusions.confirmed)
    return [Pair(selected=row["cell_id"], default=row["default_cell_id"], label=row["label"]) for row in rows]


def why_nothing(best: pl.DataFrame) -> str:
    """Why no cell is to be confirmed, from the table of best cells."""
    from rtxscale.analysis.best import ONLY_CELL

    if best.is_empty():
        return "no cell has a throughput yet; run the sweep first"
    if best["default_cell_id"].null_count():
        return "no cell is measured faster than a default that has a result"
    if (best["verdict"] == ONLY_CELL).all():
        return (
            "no two cells with a result differ in the communication (nccl.*, ddp.*) alone, and only its gains are "
            "confirmed; what other settings gain is in the table of effects"
        )
    return "the default is the fastest measured everywhere, where cells differ in the communication alone"


def measure(
    run: Run,
    pairs: list[Pair],
    *,
    visits: int,
    address: str | None,
    limit_minutes: float | None,
    report: bool,
    examine: Callable[[], tuple[dict[str, str], ...]] = tuple,
    ignore: tuple[str, ...] | None = None,
    directory: Path | None = None,
) -> int:
    """Examine the machine, then run what is missing of the confirmation; returns the exit code.

    Raises:
        RtxscaleError: as `examine` and `run.sweep.execute` do.
    """
    from rtxscale.plan.confirm import confirmation_plan
    from rtxscale.run.authentication import settle
    from rtxscale.workloads.files.model import catalogue_beside

    sweep = sweep_of(run)
    catalogue = None if directory is None else catalogue_beside(sweep, directory)

    def measured() -> SweepResult:
        examined = examine()
        if address is not None:
            os.environ["RAY_ADDRESS"] = address
        settle(os.environ, Path.home())  # before Ray is imported
        from rtxscale.run.sweep import SweepRequest, execute

        return execute(
            SweepRequest(
                sweep=sweep,
                sweep_text=run.sweep_text,
                results_root=run.run_dir.parent,
                run_dir=run.run_dir,
                directory=directory,
                plan=partial(
                    confirmation_plan, pairs=pairs, visits=visits, attempts=run.attempts(), catalogue=catalogue
                ),
                address=os.environ.get("RAY_ADDRESS") or None,
                limit_minutes=limit_minutes,
                examined=examined,
                ignore=ignore,
            )
        )

    result = notified(sweep, measured, exit_code)
    for line in summary(result):
        print(line)
    if report and result.interrupted not in SIGNALS:
        report_if_possible(result.run_dir)
    return exit_code(result)


def sweep_of(run: Run) -> Sweep:
    """The sweep that the run was made from.

    Raises:
        ResultsError: its file is not the one that was measured.
        SpecError: this rtxscale does not read its file.
    """
    from rtxscale.results.manifest import check_sweep_text
    from rtxscale.spec.load import parse_sweep

    check_sweep_text(run.run_dir, run.manifest.get("sweep_sha256"), run.sweep_text)
    sweep = parse_sweep(run.sweep_text, str(run.run_dir / "sweep.yaml"))
    if sweep.sweep_id != run.manifest["sweep_id"]:
        raise ResultsError(
            f"{run.run_dir / 'sweep.yaml'}: found sweep {sweep.sweep_id}; the run was measured for "
            f"{run.manifest['sweep_id']}: restore the file from a copy, or use the rtxscale that made the run"
        )
    return sweep
