"""`rtxscale record`: what this machine does while a program runs, as a trace that can be replayed. No Ray, no torch."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rtxscale.errors import BadInput, RunError

if TYPE_CHECKING:
    from rtxscale.telemetry.recorder import GpuTotals, Recorded

NO_LIMIT_S = 1e9
"""Thirty years. Waiting with a limit looks now and then; without one it is a single system call, which Ctrl-C does not
end once polars has been used: its handler has interrupted calls restarted."""
GONE_S = 10.0
"""What a program gets to end by itself before it is killed."""
INTERRUPTED = 130
"""128 and the number of SIGINT, as shells have it."""
LONGEST_S = 7 * 86_400.0


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(record)


def record(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The Parquet file to write.")],
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="A program and its arguments: the load.")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(min=1.0, max=LONGEST_S, help="How long to record; else until COMMAND ends, or 60 without one."),
    ] = None,
    period: Annotated[
        float, typer.Option(min=0.01, max=60.0, help="Seconds between two samples of the fast fields.")
    ] = 0.1,
    pseudonyms: Annotated[bool, typer.Option("--pseudonyms", help="Call GPUs GPU-0, GPU-1, ..., not by UUID.")] = False,
) -> None:
    """Record all telemetry of this machine while COMMAND runs.

    `--` goes in front of COMMAND. Exit code 1 where it fails. Ctrl-C ends it; what was recorded is kept.
    """
    from rtxscale.report.targets import check_file
    from rtxscale.spec.printable import printable
    from rtxscale.telemetry.probe import open_probe
    from rtxscale.telemetry.recorder import pseudonymous, write_trace
    from rtxscale.telemetry.recorder import record as sample

    file = check_file(file)
    if not os.access(file.parent, os.W_OK):
        raise BadInput(f"{file}: found {file.parent}, which may not be written to; expected a directory of yours")
    code: list[int] = []
    recorded = sample(open_probe(), _waiting(command or [], seconds, code), period_s=period)
    samples, names = pseudonymous(recorded) if pseudonyms else (recorded.samples, {})
    try:
        write_trace(samples, file)
    except OSError as error:
        raise RunError(f"{file}: found {error}; expected a place that can be written to; the trace is lost") from error
    for line in lines(recorded, names):
        typer.echo(printable(line))
    typer.echo(str(file))
    raise typer.Exit(INTERRUPTED if INTERRUPTED in code else 1 if any(code) else 0)


def _waiting(command: list[str], seconds: float | None, code: list[int]) -> Callable[[], None]:
    """What is waited for: the program's end, its time, or Ctrl-C; its exit code is added to `code`.

    Raises:
        RunError: the program cannot be started.
    """

    def wait() -> None:
        process = _started(command) if command else None
        try:
            if process is None:
                time.sleep(60.0 if seconds is None else seconds)
            else:
                code.append(process.wait(NO_LIMIT_S if seconds is None else seconds))
        except subprocess.TimeoutExpired:
            pass  # its time is over, which is no failure
        except KeyboardInterrupt:
            code.append(INTERRUPTED)
        finally:
            _end(process)

    return wait


def _started(command: list[str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(command)  # noqa: S603  the user's own words
    except OSError as error:
        raise RunError(f"COMMAND: found {error}; expected a program that can be started") from error


def _end(process: subprocess.Popen[bytes] | None) -> None:
    """End the program if it still runs, at last by a signal that nothing can ignore."""
    if process is None or process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(GONE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def lines(recorded: Recorded, names: Mapping[str, str]) -> Iterator[str]:
    """What was recorded, in words: sampling, the fields, and each GPU's totals; GPUs by their `names`, if they have."""
    from rtxscale.telemetry.recorder import fields_seen, totals

    samples = recorded.samples
    dropped = f" ({recorded.dropped_rows} more had no room)" if recorded.dropped_rows else ""
    yield f"{samples.num_rows} rows{dropped}, {recorded.missed_ticks} ticks missed, {recorded.errors} errors" + (
        f" (the last: {recorded.last_error})" if recorded.last_error else ""
    )
    yield f"fields with values: {', '.join(fields_seen(samples)) or 'none'}"
    found = totals(recorded)
    for one in found:
        yield in_words(replace(one, uuid=names.get(one.uuid, one.uuid)))
        if one.absent:
            yield f"  not given: {'; '.join(f'{name}: {reason}' for name, reason in one.absent)}"
    if not found:
        yield "no GPU: the trace holds the host alone"


def in_words(one: GpuTotals) -> str:
    """One GPU's totals on a line."""
    counter, integral = one.energy_counter_j, one.energy_integral_j
    energy = "energy unknown"
    if counter is not None and integral:
        energy = f"{counter:.0f} J by counter, {integral:.0f} J by integral, ratio {_ratio(one, counter / integral)}"
    elif counter is not None or integral is not None:
        energy = f"{counter if counter is not None else integral:.0f} J"
    return (
        f"{one.uuid} ({one.name}): {_or_unknown(one.power_mean_w)} W mean, {_or_unknown(one.power_max_w)} W most, "
        f"{energy}, {_or_unknown(one.temperature_max_c)} degC most, "
        f"slowed down in {'unknown' if one.slowdown_share is None else f'{one.slowdown_share:.1%}'} of samples"
    )


def _ratio(one: GpuTotals, whole: float) -> str:
    """The ratio of both energies with its interval, where the trace is long enough for one."""
    found = one.energy_ratio
    if found is None:
        return f"{whole:.4f} (an interval needs 4 s)"
    return (
        f"{found.ratio:.4f} ({found.low:.4f}-{found.high:.4f} over {found.blocks} blocks of {found.block_s:.2g} s, "
        f"95 %; {whole:.4f} in all)"
    )


def _or_unknown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0f}"
