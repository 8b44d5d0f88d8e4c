"""`rtxscale status`: which sweeps are running, and how far they are. Reads small files only, or asks a Ray cluster."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rtxscale.cli.show import ResultsOption


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(status)


def status(
    results: ResultsOption = None,
    address: Annotated[
        str | None,
        typer.Option(help="host:port of a Ray cluster: the sweep that runs there, wherever its results are."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the sweeps that are running now."""
    from rtxscale.results.location import results_root
    from rtxscale.spec.printable import printable

    root = results_root(results)
    problems: list[str] = []
    found = running_in(root, problems) if address is None else running_at(address)
    for problem in problems:
        print(printable(f"rtxscale: warning: {problem}"), file=sys.stderr)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for one in found:
        print(printable(in_words(one)))
    if not found:
        where = f"at {address}" if address else f"in {root}"
        print(printable(f"no sweep is running {where}; `rtxscale runs` lists finished ones"), file=sys.stderr)


def running_in(root: Path, problems: list[str] | None = None) -> list[dict[str, Any]]:
    """Every run in the root that a living driver holds, with its state where one has been written.

    `problems` gets what is wrong with others.
    """
    from rtxscale.results.live import driver_of, read_live
    from rtxscale.results.location import list_runs

    found = []
    for run_dir in list_runs(root, problems):
        state = read_live(run_dir)  # before the driver is looked for: at its end it goes first
        driver = driver_of(run_dir)
        if driver is not None:
            found.append({"run": run_dir.name, "driver": driver.describe(), **(_plain(state) if state else {})})
    return found


def running_at(address: str) -> list[dict[str, Any]]:
    """The sweeps on a Ray cluster, asked of their own actors."""
    from rtxscale.run.authentication import settle

    os.environ["RAY_ADDRESS"] = address
    settle(os.environ, Path.home())  # before Ray is imported
    from rtxscale.run.cluster import states_at

    where = {"driver": f"the cluster at {address}"}
    return [{"run": run, **where, **(_plain(state) if state else {})} for run, state in states_at(address)]


def in_words(one: Mapping[str, Any]) -> str:
    """One running sweep in a few lines."""
    from rtxscale.plan.estimate import duration
    from rtxscale.spec.printable import one_line

    one = {name: one_line(value) if isinstance(value, str) else value for name, value in one.items()}
    if "total" not in one:
        return f"{one['run']}: starting ({one['driver']})"
    age_s = max(0.0, time.time() - one["updated_ns"] / 1e9)
    parts = [f"{one['finished']}/{one['total']} trials"]
    parts += [f"{duration(one['left_s'])} left"] if one["left_s"] is not None else []
    parts += [f"{one['temperature_c']:.0f} °C"] if one["temperature_c"] is not None else []
    parts += [f"{one['power_w']:.0f} W"] if one["power_w"] is not None else []
    lines = [f"{one['run']}: {', '.join(parts)}", f"  now: {one['current']}"]
    lines += [f"  last: {one['last']}"] if one["last"] else []
    lines.append(f"  {one['driver']}, seen {duration(age_s)} ago")
    return "\n".join(lines)


def _plain(state: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(state), "throughputs": list(state.throughputs)}
