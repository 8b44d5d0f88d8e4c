"""Polls a power meter in a thread of the driver, and hands its samples over as rows of the telemetry table.

The rows have a device (`wall`) and a column (`wall_power_w`) of their own, so that nothing can add them to GPU power.
Caller: `run.sweep`, through `run.watchers`, which drains it with the nodes' samples.
"""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa

from rtxscale.results.schema import table
from rtxscale.telemetry.meters import Meter, Reading
from rtxscale.telemetry.window import WALL

LARGEST_W = 1e6
"""A reading above it is garbage: a rack has a tenth of it. So is zero: this machine runs."""


class WallMeter:
    """A meter that is read every `period_s` until it is stopped."""

    def __init__(self, meter: Meter, period_s: float) -> None:
        """Not polling yet."""
        self._meter, self._period_s = meter, period_s
        self._lock, self._asking = threading.Lock(), threading.Lock()
        self._readings: list[Reading] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wall-meter", daemon=True)
        self.errors = 0
        """Readings that failed or were garbage since the start."""
        self.last_error = ""

    def start(self) -> None:
        """Start polling."""
        self._thread.start()

    def stop(self) -> None:
        """End polling; what was read can still be taken."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=5)

    def take(self, node: str) -> pa.Table:
        """Samples since the last take, as rows of the telemetry table; `node` is the driver's."""
        if self._meter.is_log:
            self._poll()  # it may have more by now; others would hold up the trial
        with self._lock:
            readings, self._readings = self._readings, []
        rows: list[dict[str, Any]] = [
            {"node": node, "device": WALL, "t_ns": t_ns, "wall_power_w": power_w} for t_ns, power_w in readings
        ]
        return table("telemetry", rows)

    def _run(self) -> None:
        while not self._stopping.wait(self._period_s):
            self._poll()

    def _poll(self) -> None:
        try:
            with self._asking:
                read = self._meter.read()
        except Exception as error:  # a meter that fails for a while must not end a sweep; it is counted and said
            with self._lock:
                self.errors += 1
                self.last_error = f"{type(error).__name__}: {error}"
            return
        with self._lock:
            for reading in read:
                if 0 < reading[1] <= LARGEST_W:
                    self._readings.append(reading)
                else:
                    self.errors += 1
                    self.last_error = f"an implausible reading of {reading[1]:g} W"
