"""`rtxscale watch`: follow a running sweep from another terminal until it ends. Reads small files only."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rtxscale.cli.show import ResultsOption, RunArgument
from rtxscale.errors import BadInput

if TYPE_CHECKING:
    from rtxscale.results.live import LiveState

BARS = "▁▂▃▄▅▆▇█"
GAP = "·"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(watch)


def watch(
    run: RunArgument = "latest",
    results: ResultsOption = None,
    period: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
) -> None:
    """Follow the sweep that writes RUN until it ends.

    One live line, at its end a sparkline of the last throughputs of the newest trial's model; plain lines, one per
    change, when not on a terminal.
    """
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from rtxscale.results.live import driver_of, read_live
    from rtxscale.results.location import find_run, results_root
    from rtxscale.spec.printable import one_line, printable

    run_dir = find_run(run, results_root(results))
    if driver_of(run_dir) is None:
        raise BadInput(f"{run_dir}: found no sweep running; expected one; `rtxscale status` lists those that are")
    console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
    said, state = "", None
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            state = read_live(run_dir) or state  # before the driver is looked for: at its end it goes first
            if driver_of(run_dir) is None:
                break
            line, lasting = one_line(f"{run_dir.name}: {state_words(state)}"), state_words(without_time(state))
            if console.is_terminal:
                live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)
            elif lasting != said:
                print(line, flush=True)
            said = lasting
            time.sleep(period)
    print(printable(ending(run_dir)))


def state_words(state: LiveState | None) -> str:
    """How far a sweep is, on one line: what a narrow terminal cuts off is the sparkline, not the trial that runs."""
    from rtxscale.plan.estimate import duration

    if state is None:
        return "starting"
    parts = [f"{state.finished}/{state.total}"]
    parts += [f"{duration(state.left_s)} left"] if state.left_s is not None else []
    parts.append(state.current)
    parts += [f"last: {state.last}"] if state.last else []
    parts += [f"{sparkline(state.throughputs[-20:])} {state.series}".rstrip()] if state.throughputs else []
    return " | ".join(parts)


def without_time(state: LiveState | None) -> LiveState | None:
    """The state without what changes each second though nothing has happened."""
    return None if state is None else replace(state, left_s=None)


def sparkline(values: Sequence[float | None]) -> str:
    """Throughputs as bars from zero to the largest; a trial without one is a dot.

    >>> sparkline([1.0, 4.0, None, 8.0])
    '▁▄·█'
    """
    largest = max((value for value in values if value is not None), default=0.0)
    if largest <= 0:
        return GAP * len(values)
    steps = len(BARS) - 1
    return "".join(
        GAP if value is None else BARS[max(0, min(steps, round(value / largest * len(BARS)) - 1))] for value in values
    )


def ending(run_dir: Path) -> str:
    """What the run holds now that its driver has gone."""
    from rtxscale.cli.runs import describe

    found = describe(run_dir)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in found["trials"].items()) or "no trial"
    return f"{run_dir.name}: the driver has ended; {counts}; `rtxscale show {run_dir.name}` says what they mean"
