"""Marks in the stream of work and the seconds between them: CUDA events on a GPU, the host's clock on a CPU.

Marking never waits for the device; reading does. Not a profiler. Callers: `rank.clock` (steps) and
`links.timing` (operations).
"""

from __future__ import annotations

import time
from typing import Protocol

import torch


class Stopwatch(Protocol):
    """A row of marks."""

    def mark(self) -> None:
        """Set a mark behind all work enqueued so far."""

    def intervals(self) -> list[float]:
        """Seconds between neighbouring marks, after waiting for the last one."""


class HostStopwatch:
    """Marks on the host's clock; right where work is done when its call returns."""

    def __init__(self) -> None:
        """Start without a mark."""
        self._marks: list[float] = []

    def mark(self) -> None:
        """Note the time."""
        self._marks.append(time.perf_counter())

    def intervals(self) -> list[float]:
        """Seconds between neighbouring marks."""
        return [later - earlier for earlier, later in zip(self._marks, self._marks[1:], strict=False)]


class DeviceStopwatch:
    """Marks as CUDA events on the current stream."""

    def __init__(self) -> None:
        """Start without a mark."""
        self._marks: list[torch.cuda.Event] = []

    def mark(self) -> None:
        """Record an event."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # untyped in torch
        event.record()
        self._marks.append(event)

    def intervals(self) -> list[float]:
        """Seconds between neighbouring marks; waits for the device."""
        torch.cuda.synchronize()
        pairs = zip(self._marks, self._marks[1:], strict=False)
        return [earlier.elapsed_time(later) / 1000.0 for earlier, later in pairs]


def stopwatch(device: torch.device) -> Stopwatch:
    """The stopwatch that fits the device."""
    return DeviceStopwatch() if device.type == "cuda" else HostStopwatch()
