"""What a running sweep tells other terminals, and what they may ask of it: two small files in the run's directory.

`live.json` is replaced whole by the driver, at most about once a second; `stop` is made by whoever wants the sweep to
end and taken away by the driver. Neither is a result: a run without them is complete. Callers: `run.progress`,
`run.sweep`, `cli`.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from rtxscale.errors import ResultsError
from rtxscale.results.disk import FILE_MODE, read_file, remove_file, temporary_for
from rtxscale.results.lock import LOCK_FILE, Lease, living_owner
from rtxscale.results.small_json import is_number, is_whole, parse_small

LIVE_FILE = "live.json"
STOP_FILE = "stop"
LIVE_BYTES = 2**20
READINGS = ("left_s", "temperature_c", "power_w")
StopWish = Literal["trial", "now"]


@dataclass(frozen=True, kw_only=True)
class LiveState:
    """How far a sweep is; `updated_ns` is Unix time, `left_s` an estimate in seconds.

    `throughputs` are those of the trials that ended since the driver started, oldest first, with None for one that has
    none; only the last ones are kept, and only those of the newest one's workload, which `series` names with the unit:
    rates of different models cannot be compared.
    """

    updated_ns: int
    total: int
    finished: int
    current: str
    last: str = ""
    left_s: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    throughputs: tuple[float | None, ...] = ()
    series: str = ""


def write_live(run_dir: Path, state: LiveState) -> None:
    """Put the state where other terminals look; a disk that does not take it changes nothing for the sweep."""
    with contextlib.suppress(OSError):
        _put(run_dir / LIVE_FILE, json.dumps(asdict(state)))


def read_live(run_dir: Path) -> LiveState | None:
    """The last state written; None if there is none that can be read."""
    try:
        data = parse_small(read_file(run_dir / LIVE_FILE, LIVE_BYTES))
    except (OSError, ValueError):
        return None
    return _checked(data) if isinstance(data, dict) else None


def clear_live(run_dir: Path) -> None:
    """Take the state and any old wish away: the sweep has ended, or is only beginning."""
    for name in (LIVE_FILE, STOP_FILE):
        with contextlib.suppress(OSError):
            remove_file(run_dir / name)


def driver_of(run_dir: Path) -> Lease | None:
    """Who is running this sweep now; None if nobody is."""
    return living_owner(run_dir / LOCK_FILE)


def ask_to_stop(run_dir: Path, wish: StopWish) -> None:
    """Ask the driver to end, after the trial that is running or now.

    Raises:
        ResultsError: the wish cannot be written.
    """
    path = run_dir / STOP_FILE
    try:
        _put(path, wish)
    except OSError as error:
        raise ResultsError(
            f"{path}: found {error.strerror}; expected to leave a wish for the driver there; stop it on its own host, "
            "with Ctrl-C, or with `ray job stop` if it is a job"
        ) from error


def stop_wish(run_dir: Path) -> StopWish | None:
    """What has been asked of the driver, if anything."""
    try:
        text = read_file(run_dir / STOP_FILE, LIVE_BYTES).decode().strip()
    except (OSError, ValueError):
        return None
    return "now" if text == "now" else "trial"


def _put(path: Path, text: str) -> None:
    """The whole file at once, but without waiting for the disk: it may be lost in a crash, the sweep goes with it."""
    temporary = temporary_for(path)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            remove_file(temporary)
        raise


def _checked(data: dict[str, Any]) -> LiveState | None:
    """The state, if every field of it has its type."""
    wholes, texts, numbers = ("updated_ns", "total", "finished"), ("current", "last", "series"), READINGS
    state = {"last": "", "series": "", **dict.fromkeys(numbers), "throughputs": [], **data}
    sound = (
        all(is_whole(state.get(name)) for name in wholes)
        and all(isinstance(state.get(name), str) for name in texts)
        and all(state[name] is None or is_number(state[name]) for name in numbers)
        and isinstance(state["throughputs"], list)
        and all(value is None or is_number(value) for value in state["throughputs"])
    )
    if not sound:
        return None
    known = {field.name: state[field.name] for field in fields(LiveState)}
    return LiveState(**{**known, "throughputs": tuple(state["throughputs"])})
