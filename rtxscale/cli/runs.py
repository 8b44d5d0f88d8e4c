"""`rtxscale runs`: list the runs in the results root, the one written to last first."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from rtxscale.cli.show import ResultsOption
from rtxscale.errors import ResultsError


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(runs)


def runs(
    results: ResultsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the runs, the one written to last first."""
    from rtxscale.results.location import list_runs, results_root
    from rtxscale.spec.printable import printable

    root = results_root(results)
    problems: list[str] = []
    found = [describe(path) for path in list_runs(root, problems)]
    for problem in problems:
        print(printable(f"rtxscale: warning: {problem}"), file=sys.stderr)
    if as_json:
        print(json.dumps(found, indent=2))
    elif not found:
        print(printable(f"no runs in {root}; `rtxscale sweep SWEEP` makes one"), file=sys.stderr)
    else:
        _print(found, root)


def describe(run_dir: Path) -> dict[str, Any]:
    """Identity of a run and the last outcome of each of its trials; `problem` where it cannot be read."""
    from rtxscale.results.read import Run

    try:
        run = Run.open(run_dir)
    except (ResultsError, OSError) as error:
        return {"run": run_dir.name, "created": None, "question": None, "trials": {}, "problem": str(error)}
    last = Counter(str(outcomes[-1]) for outcomes in run.attempts().values() if outcomes)
    return {
        "run": run_dir.name,
        "created": run.manifest["created"],
        "question": run.manifest["question"],
        "trials": dict(last.most_common()),
        "problem": None,
    }


def _print(found: list[dict[str, Any]], root: Path) -> None:
    from rtxscale.report.tables.conclusions import Table
    from rtxscale.report.terminal import show_table
    from rtxscale.spec.printable import one_line

    rows = [(one_line(run["run"]), one_line(str(run["created"] or "–")[:10]), one_line(_trials(run))) for run in found]  # noqa: RUF001  a dash is shown
    table = Table(key="runs", title=f"Runs in {root}", columns=("run", "started", "trials, with sentinels"), rows=rows)
    show_table(table, stream=sys.stdout)


def _trials(run: dict[str, Any]) -> str:
    if run["problem"]:
        return f"cannot be read: {run['problem']}"
    return ", ".join(f"{count} {outcome}" for outcome, count in run["trials"].items()) or "none yet"
