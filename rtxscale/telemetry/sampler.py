"""Samples a probe in two threads and keeps the rows until they are drained.

Fast fields and slow ones have a thread each, so a call that takes 20 ms delays no power reading. Memory is bounded:
the oldest rows go first, and are counted, as are ticks that came too late. It knows nothing of trials: whoever drains
joins rows to windows by time. Called by the per-node actor in `run`.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import pyarrow as pa

from rtxscale.results.schema import table
from rtxscale.telemetry.fields import Row
from rtxscale.telemetry.probe import Probe

Cadence = Literal["fast", "slow"]

LEARNING_S = 0.5
LEARNING_PERIOD_S = 0.005
"""At first the probe is read at 200 Hz, so that the update period of the energy counter can be seen."""
CHANGES_NEEDED = 3
CHUNK_ROWS = 2000
MISSED_SHARE, FEW_TICKS = 0.1, 20
"""More missed ticks than this share change what windows say; of fewer ticks than these none is worth a word."""


@dataclass(frozen=True, kw_only=True)
class Gaps:
    """What sampling missed since some moment: ticks that came too late, rows without room, reads that failed."""

    missed_ticks: int = 0
    dropped_rows: int = 0
    errors: int = 0
    last_error: str = ""

    def since(self, earlier: Gaps) -> Gaps:
        """What came after `earlier`."""
        return replace(
            self,
            missed_ticks=self.missed_ticks - earlier.missed_ticks,
            dropped_rows=self.dropped_rows - earlier.dropped_rows,
            errors=self.errors - earlier.errors,
        )

    def in_words(self, ticks: float) -> str:
        """What is worth saying of so many ticks that were due; empty where it changes no number.

        >>> Gaps(missed_ticks=30, dropped_rows=1200).in_words(100)
        '1,200 samples had no room, 30 of 100 ticks were missed'
        >>> Gaps(missed_ticks=3).in_words(100)
        ''
        """
        said = []
        if self.dropped_rows:
            said.append(f"{self.dropped_rows:,} samples had no room")
        if self.missed_ticks > MISSED_SHARE * max(ticks, FEW_TICKS):
            said.append(f"{self.missed_ticks:,} of {ticks:,.0f} ticks were missed")
        if self.errors:
            said.append(f"{self.errors:,} reads failed, the last with {self.last_error}")
        return ", ".join(said)


class RowBuffer:
    """Rows in order of arrival, at most `capacity_rows` of them; safe for several threads."""

    def __init__(self, capacity_rows: int) -> None:
        """Start empty."""
        self._capacity_rows = capacity_rows
        self._lock = threading.Lock()
        self._chunks: deque[pa.Table] = deque()
        self._chunk_rows = max(1, min(CHUNK_ROWS, capacity_rows // 2))
        self._rows: list[Row] = []
        self.dropped = 0
        """Rows thrown away for want of room since the start."""

    def add(self, *rows: Row) -> None:
        """Keep rows. Full chunks are stored by column, which takes a tenth of the memory."""
        with self._lock:
            self._rows += rows
            if len(self._rows) < self._chunk_rows:
                return
            self._chunks.append(table("telemetry", self._rows))
            self._rows = []
            while sum(chunk.num_rows for chunk in self._chunks) + self._chunk_rows > self._capacity_rows:
                self.dropped += self._chunks.popleft().num_rows

    def take(self) -> pa.Table:
        """All rows since the last take, as a "telemetry" table; the buffer is empty afterwards."""
        with self._lock:
            chunks, rows = self._chunks, self._rows
            self._chunks, self._rows = deque(), []
        return pa.concat_tables([*chunks, table("telemetry", rows)]).combine_chunks()


class Sampler:
    """Reads a probe every `period_s` (fast fields) and `slow_period_s` (slow fields) until stopped."""

    def __init__(
        self,
        probe: Probe,
        node: str,
        period_s: float = 0.1,
        *,
        slow_period_s: float = 1.0,
        capacity_rows: int = 500_000,
        learning_s: float = LEARNING_S,
    ) -> None:
        """Own the probe: `stop` closes it. `learning_s` is how long the update periods are looked for at first."""
        self._probe = probe
        self._node = node
        self._period_s = period_s
        self._slow_period_s = slow_period_s
        self._learning_s = learning_s
        self._buffer = RowBuffer(capacity_rows)
        self._lock = threading.Lock()
        self._newest: dict[Cadence, dict[tuple[str, str | None], Row]] = {}
        """Rows of the newest tick by cadence and device: what a tick did not read has no newest value."""
        self._seen: list[Row] = []
        self._periods: dict[str, dict[str, float | None]] = {}
        self._updates: dict[str | None, Row] = {}
        """What each GPU's rows say about its energy counter, once it is known."""
        self._missed = 0
        self._errors = 0
        self._last_error = ""
        self._stopping = threading.Event()
        self._threads = (
            threading.Thread(target=self._run_fast, name="telemetry-fast", daemon=True),
            threading.Thread(target=self._run_slow, name="telemetry-slow", daemon=True),
        )

    def start(self) -> None:
        """Start sampling."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End sampling and close the probe; what was sampled can still be drained."""
        self._stopping.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(timeout=5)
        self._probe.close()

    def drain(self) -> pa.Table:
        """The rows since the last drain, in the "telemetry" schema; trial, attempt and session are null."""
        return self._buffer.take()

    def gaps(self) -> Gaps:
        """What sampling has missed since the start."""
        with self._lock:
            missed, errors, last = self._missed, self._errors, self._last_error
        return Gaps(missed_ticks=missed, dropped_rows=self._buffer.dropped, errors=errors, last_error=last)

    def latest(self) -> dict[str, Any]:
        """The newest reading of every device, and how sampling goes.

        `power_w` is the sum and `temperature_max_c` the maximum over the living GPUs that tell, None without any;
        `gpus` maps UUID to its newest fields, `host` holds the host's. `missed_ticks`, `dropped_rows`, `errors` count
        since the start; `lost` maps the UUID of a lost GPU to the reason; `update_periods_s` is described there.
        """
        lost = {device.uuid: device.lost for device in self._probe.devices() if device.lost}
        with self._lock:
            rows = [item for tick in self._newest.values() for item in tick.items() if item[0][1] not in lost]
            state = {"missed_ticks": self._missed, "errors": self._errors, "last_error": self._last_error}
        newest: dict[tuple[str, str | None], Row] = {}
        for key, row in rows:
            newest.setdefault(key, {}).update(row)
        gpus = {uuid: row for (kind, uuid), row in newest.items() if kind == "gpu"}
        powers = [row["power_w"] for row in gpus.values() if row.get("power_w") is not None]
        temperatures = [row["temperature_c"] for row in gpus.values() if row.get("temperature_c") is not None]
        return {
            "power_w": sum(powers) if powers else None,
            "temperature_max_c": max(temperatures, default=None),
            "gpus": gpus,
            "host": newest.get(("host", None)),
            "lost": lost,
            "dropped_rows": self._buffer.dropped,
            "update_periods_s": self.update_periods_s(),
            **state,
        }

    def update_periods_s(self) -> dict[str, dict[str, float | None]]:
        """UUID -> {"power_w", "energy_j"} -> seconds between two changes of the reading; None where not seen."""
        with self._lock:
            return {uuid: dict(periods) for uuid, periods in self._periods.items()}

    def _run_fast(self) -> None:
        if self._learning_s > 0:
            self._run("fast", LEARNING_PERIOD_S, for_s=self._learning_s, learning=True)
            with self._lock:
                self._periods = update_periods_s(self._seen)
                self._seen = []
            learnt = {uuid: periods["energy_j"] for uuid, periods in self._periods.items()}
            self._updates = {uuid: {"energy_update_s": one} for uuid, one in learnt.items() if one is not None}
        self._run("fast", self._period_s)

    def _run_slow(self) -> None:
        self._run("slow", self._slow_period_s)

    def _run(self, cadence: Cadence, period_s: float, *, for_s: float | None = None, learning: bool = False) -> None:
        """Read every `period_s`, on a grid that does not drift, until stopped or for `for_s` seconds."""
        started_s = time.monotonic()
        tick = 0
        while not self._stopping.wait(max(0.0, started_s + tick * period_s - time.monotonic())):
            self._take(cadence, learning=learning)
            passed_s = time.monotonic() - started_s
            tick, missed = next_tick(tick, passed_s, period_s)
            if for_s is not None and passed_s >= for_s:
                return
            if missed and not learning:
                with self._lock:
                    self._missed += missed

    def _take(self, cadence: Cadence, *, learning: bool) -> None:
        taken: list[Row] = []
        failed = ""
        try:
            for row in self._probe.read_fast() if cadence == "fast" else self._probe.read_slow():
                stamp = {"node": self._node, "t_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns()}
                taken.append({**stamp, **row, **self._updates.get(row.get("uuid"), {})})
        except Exception as error:  # sampling must outlive anything a probe or a driver does; it is counted and shown
            failed = f"{type(error).__name__}: {error}"
        self._buffer.add(*taken)
        with self._lock:
            self._newest[cadence] = {(row["device"], row.get("uuid")): row for row in taken}
            if learning:
                self._seen += taken
            if failed:
                self._errors += 1
                self._last_error = failed


def next_tick(tick: int, passed_s: float, period_s: float) -> tuple[int, int]:
    """The next tick that can still be kept, and how many were missed before it.

    >>> next_tick(3, 0.32, 0.1), next_tick(3, 0.65, 0.1)
    ((4, 0), (7, 3))
    """
    due = int(passed_s / period_s) + 1
    following = max(tick + 1, due)
    return following, following - (tick + 1)


def update_periods_s(rows: Iterable[Row]) -> dict[str, dict[str, float | None]]:
    """UUID -> {"power_w", "energy_j"} -> update period of the reading, s, from densely sampled rows."""
    series: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for row in rows:
        if row["device"] != "gpu":
            continue
        fields = series.setdefault(row["uuid"], {"power_w": [], "energy_j": []})
        for name, points in fields.items():
            if row.get(name) is not None:
                points.append((row["monotonic_ns"], row[name]))
    return {uuid: {name: update_period_s(points) for name, points in fields.items()} for uuid, fields in series.items()}


def update_period_s(points: Sequence[tuple[int, float]]) -> float | None:
    """Median time between two changes of a reading, s, from (ns, value) pairs; None with fewer than 3 changes.

    It cannot be shorter than the sampling period.

    >>> update_period_s([(t * 5_000_000, float(t // 4)) for t in range(40)])
    0.02
    """
    changes = [t for (_, before), (t, value) in pairwise(points) if value != before]
    if len(changes) < CHANGES_NEEDED:
        return None
    return statistics.median(later - earlier for earlier, later in pairwise(changes)) / 1e9
