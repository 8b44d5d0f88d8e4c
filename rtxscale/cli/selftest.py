"""`rtxscale selftest`: plants what is known into sweeps of its own and sees whether the tool finds it.

Runs the sweeps of `cli.selftest_sweeps` and hands their rows to the verdicts in `analysis.selftest`. The last line
printed is the path of the verdicts. Caller: `cli.main`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from rtxscale.cli.selftest_sweeps import (
    SWEEP_OF,
    Form,
    concluded_runs,
    estimate_s,
    form_of,
    obstacle,
    starts_anew,
    sweeps_for,
)
from rtxscale.cli.selftest_verdicts import judge, keep
from rtxscale.cli.show import ResultsOption
from rtxscale.cli.sweep import EXIT_CODES, SIGNALS
from rtxscale.errors import BadInput, ResultsError

if TYPE_CHECKING:
    from rtxscale.analysis.selftest.verdicts import Check
    from rtxscale.devices.inventory import Inventory
    from rtxscale.run.sweep import SweepResult
    from rtxscale.spec.load import LoadedSweep

FAILED_CODE, INCOMPLETE_CODE = 1, 3


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(selftest)


@dataclass(kw_only=True)
class Course:
    """How far the self-test has come: the run of each sweep, why the others have none, and what cut it short."""

    runs: dict[str, Path] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    interrupted: str | None = None


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the user asked for."""

    root: Path
    checks: tuple[str, ...]
    fresh: bool
    limit_minutes: float | None
    binary: str | None
    stream: TextIO


def selftest(
    check: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help=f"Only this check; repeatable: {', '.join(SWEEP_OF)}.")
    ] = None,
    results: ResultsOption = None,
    address: Annotated[
        str | None,
        typer.Option(help="host:port of a Ray cluster that runs already; else RAY_ADDRESS, else one on this host."),
    ] = None,
    limit_minutes: Annotated[
        float | None, typer.Option(min=0.0, help="Stop at the next trial boundary after this many minutes.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start new runs even where one is unfinished.")] = False,
    nccl_tests: Annotated[
        Path | None, typer.Option(help="nccl-tests' all_reduce_perf, or its directory; else the one on the PATH.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON, all else on stderr.")] = False,
) -> None:
    """Check the instrument on cases whose answer is known.

    Equal cells, planted delays, fresh processes, launchers, bandwidth, energy.

    The full form needs GPUs; without one a reduced form shows that the checks work. Exits with 0 where nothing failed,
    1 where a check failed, 3 where something is left to measure.
    """
    from rtxscale.cli.reference import find_binary
    from rtxscale.results.disk import check_root
    from rtxscale.results.location import results_root

    wish = Wish(
        root=results_root(results),
        checks=chosen(check),
        fresh=fresh,
        limit_minutes=limit_minutes,
        binary=find_binary(nccl_tests),
        stream=sys.stderr if as_json else sys.stdout,
    )
    if nccl_tests is not None and wish.binary is None:
        raise BadInput(f"--nccl-tests: found no program at {nccl_tests}; expected all_reduce_perf or its directory")
    check_root(wish.root)
    inventory = _inventory_here()
    form = form_of(inventory)
    course = measure(wish, form, inventory, address)
    checks = [
        judge(name, course.runs, course.missing, obstacle(name, form, wish.binary), wish.binary) for name in wish.checks
    ]
    code = exit_code(checks, course)
    data = as_data(checks, course, form, inventory)
    path = keep(wish.root, data)
    if as_json:
        print(json.dumps(data, indent=2, allow_nan=False), flush=True)
    else:
        show_checks(checks, sys.stdout)
    print(path, file=wish.stream, flush=True)
    raise typer.Exit(code)


def chosen(names: Sequence[str] | None) -> tuple[str, ...]:
    """The checks asked for, in their own order; all without a name.

    Raises:
        BadInput: there is no such check.
    """
    unknown = [name for name in names or () if name not in SWEEP_OF]
    if unknown:
        raise BadInput(f"--check: found {unknown[0]!r}; expected one of {', '.join(SWEEP_OF)}")
    return tuple(name for name in SWEEP_OF if not names or name in names)


def _inventory_here() -> Inventory:
    from rtxscale.devices.inventory import Inventory
    from rtxscale.telemetry.facts import describe_node

    node, notes = describe_node("local")
    return Inventory(nodes=(node,), notes=notes)


def measure(wish: Wish, form: Form, inventory: Inventory, address: str | None) -> Course:
    """Run or continue every sweep that the checks need."""
    from rtxscale.plan.estimate import duration
    from rtxscale.spec.printable import printable

    possible = [name for name in wish.checks if not obstacle(name, form, wish.binary)]
    sweeps = {name: form.sweep(name) for name in sweeps_for(possible)}
    course = Course()
    if not sweeps:
        return course
    about = duration(estimate_s(list(sweeps.values()), inventory))
    opening = f"{form.name} form on {inventory.describe()}: {', '.join(sweeps)}; about {about}, less what is measured"
    print(printable(opening), file=wish.stream, flush=True)
    if address is not None:
        os.environ["RAY_ADDRESS"] = address
    concluded = concluded_runs(wish.root)
    began = time.monotonic()
    for name, loaded in sweeps.items():
        left = None if wish.limit_minutes is None else wish.limit_minutes - (time.monotonic() - began) / 60
        if course.interrupted or (left is not None and left <= 0):
            course.interrupted = course.interrupted or "limit"
            course.missing[name] = f"stopped by {_cause(course.interrupted)}"
            continue
        fresh = wish.fresh or starts_anew(wish.root, loaded, concluded)
        try:
            result = _execute(loaded, wish, fresh=fresh, limit_minutes=left)
        except ResultsError as error:
            raise ResultsError(f"{error} (`rtxscale selftest --fresh` does so for its own sweeps)") from error
        _keep_result(course, name, result)
    return course


def _execute(loaded: LoadedSweep, wish: Wish, *, fresh: bool, limit_minutes: float | None) -> SweepResult:
    from rtxscale.run.authentication import settle

    settle(os.environ, Path.home())  # before Ray is imported
    from rtxscale.run.sweep import SweepRequest, execute

    return execute(
        SweepRequest(
            sweep=loaded.sweep,
            sweep_text=loaded.text,
            results_root=wish.root,
            address=os.environ.get("RAY_ADDRESS") or None,
            fresh=fresh,
            limit_minutes=limit_minutes,
            stream=wish.stream,
        )
    )


def _keep_result(course: Course, name: str, result: SweepResult) -> None:
    """Note the run, and what is left of it to measure."""
    if result.total:
        course.runs[name] = result.run_dir
    if not result.total or result.finished < result.total:
        course.interrupted = result.interrupted or "unfinished trials"
        course.missing[name] = (
            f"{result.finished} of {result.total} trials finished, stopped by {_cause(course.interrupted)}"
        )


def _cause(interrupted: str) -> str:
    return "the time limit" if interrupted == "limit" else interrupted


def exit_code(checks: Sequence[Check], course: Course) -> int:
    """0 nothing failed, 1 a check failed, 3 something is left to measure, 129, 130 or 143 ended by a signal."""
    from rtxscale.analysis.selftest.verdicts import FAILED

    if course.interrupted in SIGNALS:
        return EXIT_CODES[course.interrupted]
    if any(check.verdict == FAILED for check in checks):
        return FAILED_CODE
    return INCOMPLETE_CODE if course.missing else 0


def as_data(checks: Sequence[Check], course: Course, form: Form, inventory: Inventory) -> dict[str, Any]:
    """The verdicts as JSON data.

    `form`: full or reduced. `machine` in words. `complete`: every sweep needed has been measured to its end. `runs`:
    sweep -> directory of its run. `checks`: name, verdict, said, and `rows` with the figures behind it.
    """
    return {
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "form": form.name,
        "machine": inventory.describe(),
        "complete": not course.missing,
        "runs": {name: str(path) for name, path in course.runs.items()},
        "checks": [
            {
                "check": check.name,
                "verdict": check.verdict,
                "said": check.said,
                "rows": [dict(row) for row in check.rows],
            }
            for check in checks
        ],
    }


def show_checks(checks: Sequence[Check], stream: TextIO) -> None:
    """The verdict table."""
    from rtxscale.analysis.selftest.verdicts import INCONCLUSIVE
    from rtxscale.report.tables.conclusions import Table
    from rtxscale.report.terminal import show_table

    rows: list[tuple[str, str, str]] = []
    for check in checks:
        first, *others = check.said.split("; ")
        rows += [(check.name, check.verdict, first), *(("", "", other) for other in others)]
    noisy = any(check.verdict == INCONCLUSIVE for check in checks)
    note = "inconclusive: noise or a missing part decides, not the tool" if noisy else ""
    table = Table(
        key="selftest", title="Instrument checks", columns=("check", "verdict", "found"), rows=rows, note=note
    )
    show_table(table, stream=stream)
