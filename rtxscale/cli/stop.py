"""`rtxscale stop`: ask a running sweep to end, from another terminal. What is finished is kept."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from rtxscale.cli.show import ResultsOption, RunArgument
from rtxscale.errors import BadInput, RunError

POLL_S = 0.2


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(stop)


def stop(
    run: RunArgument = "latest",
    results: ResultsOption = None,
    now: Annotated[bool, typer.Option("--now", help="Do not wait for the trial that is running.")] = False,
    wait: Annotated[float, typer.Option(min=0.0, help="Seconds to wait for the end; 0 only asks.")] = 60.0,
) -> None:
    """Ask the sweep that writes RUN to end.

    After the trial that is running, or at once with --now. The same sweep continues it later.
    """
    from rtxscale.results.live import ask_to_stop, driver_of
    from rtxscale.results.location import find_run, results_root
    from rtxscale.spec.printable import printable

    run_dir = find_run(run, results_root(results))
    driver = driver_of(run_dir)
    if driver is None:
        raise BadInput(f"{run_dir}: found no sweep running; expected one; `rtxscale status` lists those that are")
    ask_to_stop(run_dir, "now" if now else "trial")
    print(printable(f"asked {driver.describe()} to stop{' now' if now else ' after its trial'}"), flush=True)
    if wait and not _ended(run_dir, wait):
        raise RunError(
            f"{run_dir}: found the sweep still running after {wait:g} s; it ends at the next trial boundary; wait on "
            "with `rtxscale watch`, or use --now"
        )
    if wait:
        print("it measures no more, and may still write its report; the same sweep command continues it")


def _ended(run_dir: Path, wait_s: float) -> bool:
    from rtxscale.results.live import driver_of

    deadline = time.monotonic() + wait_s
    while driver_of(run_dir) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
