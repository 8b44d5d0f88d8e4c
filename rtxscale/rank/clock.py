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

from rtxscale.workloads.links.stopwatch import stopwatch

Seconds = NDArray[np.float64]

LEAST_LEAD_S = 50e-6
"""Enqueuing and noticing an event take this long even on an idle device."""

LEAST_LEAD = 0.05
"""A host less than this share of a step ahead of the device leaves it nothing to do."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """Consecutive steps of one rank: the device's time of each and the host's waits for input.

    On GPUs also when the host was done enqueuing each, counted from a first mark that meets an idle device.
    """

    step_s: Seconds
    input_s: Seconds
    enqueued_s: Seconds | None

    @property
    def host_bound(self) -> NDArray[np.bool_] | None:
        """Which steps the device had all but finished when the host had enqueued them; None on CPU."""
        return None if self.enqueued_s is None else host_bound(self.enqueued_s, self.step_s, self.waited_s)

    @property
    def waited_s(self) -> Seconds:
        """Seconds of each step in which the device had nothing to do for want of input; on GPUs not while it worked.

        A step's wait counts from where the device was done with the step before, as far as it was a wait at all.

        >>> steps, waits = np.array([1.5, 1.5]), np.array([0.5, 1.0])
        >>> Block(step_s=steps, input_s=waits, enqueued_s=np.array([1.0, 2.25])).waited_s.tolist()
        [0.5, 0.5]
        >>> Block(step_s=steps, input_s=waits, enqueued_s=None).waited_s.tolist()
        [0.5, 1.0]
        """
        if self.enqueued_s is None:
            return self.input_s
        turned_to_s = np.concatenate([[0.0], self.enqueued_s[:-1]])
        done_s = np.concatenate([[0.0], np.cumsum(self.step_s)[:-1]])
        waited_s: Seconds = np.clip(turned_to_s + self.input_s - done_s, 0.0, self.input_s)
        return waited_s


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
        on_gpu = self._device.type == "cuda"
        input_s = np.asarray(self._input, dtype=np.float64)
        return Block(step_s=step_s, input_s=input_s, enqueued_s=enqueued_s if on_gpu else None)


def run_steps(step: Callable[[], float], count: int, device: torch.device) -> Block:
    """Run `count` steps and read their times."""
    pending = Pending(step, count, device)
    pending.wait()
    return pending.block()


def host_bound(enqueued_s: Seconds, step_s: Seconds, waited_s: Seconds) -> NDArray[np.bool_]:
    """Which steps the device had all but finished by the time the host had enqueued them.

    Sees a host that is late with the last kernels of a step. One that is late in its middle, and then enqueues a long
    update in one go, keeps a lead: that shows in the utilisation of the GPU alone (`gpu_busy_share`).

    Args:
        enqueued_s: when the host was done enqueuing each step, from the first mark.
        step_s: the device's time of each step; their running sum is when each ended, as the first mark meets an idle
            device.
        waited_s: how much of each of these times the device waited for input, which is not its host's doing.

    >>> none = np.zeros(2)
    >>> host_bound(np.array([0.010, 0.020]), np.array([0.010, 0.010]), none).tolist()
    [True, True]
    >>> host_bound(np.array([0.002, 0.004]), np.array([0.010, 0.010]), none).tolist()
    [False, False]
    """
    if step_s.size == 0:
        return np.zeros(0, dtype=np.bool_)
    lead_s = np.cumsum(step_s) - enqueued_s
    return lead_s <= max(LEAST_LEAD_S, LEAST_LEAD * float(np.median(step_s - waited_s)))
