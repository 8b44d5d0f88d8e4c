"""Times of steps without waiting for the device after each of them, and whether the host held the device up.

CUDA events on GPUs, the host's clock on CPUs. Decides nothing. Caller: `rank.trial`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from rtxscale.workloads.stopwatch import stopwatch

Seconds = NDArray[np.float64]

LEAST_LEAD_S = 50e-6
"""Enqueuing and noticing an event take this long even on an idle device."""

LEAST_LEAD = 0.05
"""A host less than this share of a step ahead of the device leaves it nothing to do."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """Consecutive steps of one rank: their times, the waits for input, and on GPUs whether each was host-bound."""

    step_s: Seconds
    input_s: Seconds
    host_bound: NDArray[np.bool_] | None

    @property
    def waited_s(self) -> float:
        """Seconds in which the device may have waited for input: on GPUs only those of steps that were host-bound.

        >>> waits, steps = np.array([0.25, 0.5]), np.array([1.0, 1.0])
        >>> Block(step_s=steps, input_s=waits, host_bound=np.array([False, True])).waited_s
        0.5
        >>> Block(step_s=steps, input_s=waits, host_bound=None).waited_s
        0.75
        """
        return float(self.input_s.sum() if self.host_bound is None else self.input_s[self.host_bound].sum())


class Pending:
    """Steps that are enqueued; the device may still work on them."""

    def __init__(self, step: Callable[[], float], count: int, device: torch.device) -> None:
        """Enqueue `count` steps, with a mark behind each."""
        self._device = device
        self._watch = stopwatch(device)
        self._input: list[float] = []
        self._enqueued: list[float] = []
        self._watch.mark()
        start = time.perf_counter()
        for _ in range(count):
            self._input.append(step())
            self._watch.mark()
            self._enqueued.append(time.perf_counter() - start)

    def wait(self) -> None:
        """Wait until the device has done them all."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def block(self) -> Block:
        """Read the times; slow, so not inside a window."""
        step_s = np.asarray(self._watch.intervals(), dtype=np.float64)
        enqueued_s = np.asarray(self._enqueued, dtype=np.float64)
        bound = host_bound(enqueued_s, step_s) if self._device.type == "cuda" else None
        return Block(step_s=step_s, input_s=np.asarray(self._input, dtype=np.float64), host_bound=bound)


def run_steps(step: Callable[[], float], count: int, device: torch.device) -> Block:
    """Run `count` steps and read their times."""
    pending = Pending(step, count, device)
    pending.wait()
    return pending.block()


def host_bound(enqueued_s: Seconds, step_s: Seconds) -> NDArray[np.bool_]:
    """Which steps the device had finished by the time the host had enqueued them.

    Args:
        enqueued_s: when the host was done enqueuing each step, from the first mark.
        step_s: the device's time of each step; their running sum is when each ended, as the first mark meets an idle
            device.

    >>> host_bound(np.array([0.010, 0.020]), np.array([0.010, 0.010])).tolist()
    [True, True]
    >>> host_bound(np.array([0.002, 0.004]), np.array([0.010, 0.010])).tolist()
    [False, False]
    """
    if step_s.size == 0:
        return np.zeros(0, dtype=np.bool_)
    lead_s = np.cumsum(step_s) - enqueued_s
    return lead_s <= max(LEAST_LEAD_S, LEAST_LEAD * float(np.median(step_s)))
