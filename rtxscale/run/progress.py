"""What the user sees while a sweep runs: one live line on a terminal, plain lines anywhere else.

`Board` is told what happens by the foreman and redrawn by the main thread; it measures nothing itself. Other terminals
see the same through `state`. Callers: `run.sweep`, `run.foreman`.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from rtxscale.plan.estimate import duration
from rtxscale.plan.model import PlannedSession
from rtxscale.results.live import LiveState
from rtxscale.run.agenda import Todo
from rtxscale.spec.printable import one_line, printable
from rtxscale.stats.rounding import rounded

PRIOR = 3
"""The plan's estimate counts like this many trials already seen."""
SHOWN_THROUGHPUTS = 60
"""As many as fit on a line of a narrow terminal."""


class Board:
    """The sweep's state in words."""

    def __init__(self, stream: TextIO, *, total: int, finished: int, expected_trial_s: float) -> None:
        """`expected_trial_s` is the plan's estimate per trial, used until one has been measured."""
        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        self._live: Live | None = None
        self._lock = threading.Lock()
        self._total, self._finished, self._expected_s = total, finished, expected_trial_s
        self._current = "starting"
        self._last = ""
        self._notes: list[str] = []
        self._began: float | None = None
        self._ended: float | None = None
        """When the last trial ended, or the first thing began."""
        self._served = 0
        self._readings: Mapping[str, Any] = {}
        self._throughputs: dict[str, deque[float | None]] = {}
        """By workload: what is drawn together must be comparable."""
        self._units: dict[str, str] = {}
        self._newest = ""

    def __enter__(self) -> Board:
        """Start the live line, on a terminal."""
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Take the live line away."""
        if self._live:
            self._live.stop()
            self._live = None

    def session_started(self, planned: PlannedSession) -> None:
        """A session is being started."""
        self._begin()
        with self._lock:
            workers = planned.key.gpus
            self._current = f"starting a session of {workers} worker{'s' * (workers > 1)} (visit {planned.visit})"
        self.refresh()

    def trial_started(self, todo: Todo) -> None:
        """A trial has been handed out."""
        self._begin()
        with self._lock:
            self._current = cell_words(todo)
        self.refresh()

    def trial_ended(self, todo: Todo, row: Mapping[str, Any]) -> None:
        """A trial's rows are written."""
        self._begin()
        with self._lock:
            self._served, self._ended = self._served + 1, time.monotonic()
            self._finished += not (row["outcome"] == "cancelled" or self._will_retry(todo, row["outcome"]))
            self._last = result_words(row)
            self._keep_throughput(todo.planned.trial.cell.workload.label, row)
        if self._live:
            self.refresh()
            return
        left = f", {duration(self.left_s())} left" if self._finished < self._total else ""
        self._say(one_line(f"[{self._finished}/{self._total}] {cell_words(todo)}: {self._last}{left}"))

    def paused(self, why: str) -> None:
        """Nothing goes on, for this reason."""
        with self._lock:
            self._current = why
        self.refresh()

    def note(self, text: str) -> None:
        """Something the user should know, on a line of its own; it is kept with the next attempt's rows."""
        with self._lock:
            self._notes.append(text)
        self._say(text)

    def taken_notes(self) -> list[str]:
        """What was noted since this was last asked."""
        with self._lock:
            notes, self._notes = self._notes, []
        return notes

    def show_readings(self, readings: Mapping[str, Any]) -> None:
        """The newest telemetry, for the live line."""
        with self._lock:
            self._readings = readings
        self.refresh()

    def state(self) -> LiveState:
        """How far the sweep is, for other terminals."""
        with self._lock:
            return LiveState(
                updated_ns=time.time_ns(),
                total=self._total,
                finished=self._finished,
                current=self._current,
                last=self._last,
                left_s=self.left_s(),
                temperature_c=self._readings.get("temperature_c"),
                power_w=self._readings.get("power_w"),
                throughputs=tuple(self._throughputs.get(self._newest, ())),
                series=", ".join(filter(None, (self._newest, self._units.get(self._newest)))),
            )

    def refresh(self) -> None:
        """Redraw the live line."""
        if self._live:
            self._live.update(Text(one_line(self._line()), no_wrap=True, overflow="ellipsis"), refresh=True)

    def left_s(self) -> float:
        """Seconds that the rest will take, from the pace so far and, while little is known, the plan's estimate.

        What has passed since a trial last ended is taken off the trial that runs, and off no other.
        """
        rest = self._total - self._finished
        if rest <= 0:
            return 0.0
        if self._began is None or self._ended is None:
            return rest * self._expected_s
        pace_s = (self._ended - self._began + PRIOR * self._expected_s) / (self._served + PRIOR)
        return (rest - 1) * pace_s + max(0.0, pace_s - (time.monotonic() - self._ended))

    def _keep_throughput(self, workload: str, row: Mapping[str, Any]) -> None:
        """The trial's rate, among those of its workload."""
        self._newest = workload
        kept = self._throughputs.setdefault(workload, deque(maxlen=SHOWN_THROUGHPUTS))
        kept.append(_number(row, "throughput_per_s") if row["outcome"] == "ok" else None)
        if unit := row.get("work_unit"):
            self._units[workload] = f"{unit}/s"

    def _begin(self) -> None:
        if self._began is None:
            self._began = self._ended = time.monotonic()

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError):  # a closed terminal is no reason to lose a trial
            self._console.print(printable(text), markup=False)

    def _line(self) -> str:
        with self._lock:
            parts = [f"{self._finished}/{self._total}", f"{duration(self.left_s())} left", self._current]
            if self._last:
                parts.append(f"last: {self._last}")
            parts += reading_words(self._readings)
        return " | ".join(parts)

    @staticmethod
    def _will_retry(todo: Todo, outcome: str) -> bool:
        from rtxscale.results.outcomes import is_finished

        return not is_finished([*todo.earlier, outcome])


def cell_words(todo: Todo) -> str:
    """The trial's axis values, and what tells it from its repeats.

    Such as `gpus=2 nccl.channels=4 (batch 128, visit 1)`.
    """
    trial = todo.planned.trial
    axes = " ".join(f"{path}={value}" for path, value in todo.planned.axes.items())
    batch = getattr(trial.cell.workload, "batch_per_gpu", None)
    marks = [f"batch {batch}"] if batch and "workload.batch_per_gpu" not in todo.planned.axes else []
    marks.append(f"visit {trial.visit}")
    marks += [trial.stage] if trial.stage != "sweep" else []
    marks += [f"repeat {trial.repeat}"] if trial.repeat > 1 and trial.stage != "sentinel" else []
    marks += [f"slot {trial.slot}"] if trial.slot else []
    marks += [f"attempt {todo.attempt}"] if todo.attempt > 1 else []
    return f"{axes or trial.cell.workload.label} ({', '.join(marks)})"


def result_words(row: Mapping[str, Any]) -> str:
    """How a trial ended, with its throughput, temperature and power where they are known."""
    if row["outcome"] != "ok":
        return f"{row['outcome']}: {row['message']}" if row["message"] else str(row["outcome"])
    words = ["ok"]
    if (rate := _number(row, "throughput_per_s")) is not None:
        words.append(f"{rounded(rate)} {row.get('work_unit') or 'work'}/s")
    if (temperature := _number(row, "temperature_max_c")) is not None:
        words.append(f"{temperature:.0f} °C")
    if (power := _number(row, "power_w")) is not None:
        words.append(f"{power:.0f} W")
    return ", ".join(words)


def _number(row: Mapping[str, Any], name: str) -> float | None:
    """What a trial's row has there, unless it is nothing or not finite.

    >>> _number({"power_w": 12.5}, "power_w"), _number({"power_w": float("nan")}, "power_w"), _number({}, "power_w")
    (12.5, None, None)
    """
    value = row.get(name)
    return value if value is not None and math.isfinite(value) else None


def reading_words(readings: Mapping[str, Any]) -> list[str]:
    """Hottest GPU and power of all, or nothing without GPUs.

    >>> reading_words({"temperature_c": 61.0, "power_w": 840.4})
    ['61 °C', '840 W']
    """
    words = []
    if readings.get("temperature_c") is not None:
        words.append(f"{readings['temperature_c']:.0f} °C")
    if readings.get("power_w") is not None:
        words.append(f"{readings['power_w']:.0f} W")
    return words
