"""A planted delay: time added to every step of a workload, so that a check of the instrument knows what must be found.

Only for cells with `planted.delay_ms`; nothing else is changed. On a GPU the device itself spins, so the delay is in
the stream like any kernel and is hidden by nothing but a host that lags behind. Caller: `rank.trial`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import torch

from rtxscale.nccl.attest import Attested
from rtxscale.spec.cell import Planted
from rtxscale.workloads.protocol import Apart, Bucket, Context, Running, work_of_latest

SPIN_S = 0.002
"""A sleeping host wakes up late; the last part of a delay is waited for awake."""

FIRST_CYCLES = 1_000_000
"""The first spin, which shows how fast the device's clock runs: about half a millisecond."""


class Delayed:
    """A running workload whose steps begin with a delay; see `protocol.Running`."""

    def __init__(self, running: Running, delay: Callable[[], None]) -> None:
        """Delay every step of `running`."""
        self._running = running
        self._delay = delay
        self.unit: str = running.unit
        self.work_per_step: float | None = running.work_per_step

    def step(self) -> float:
        """The delay, then one step; the delay is no waiting for input."""
        self._delay()
        return self._running.step()

    def work_of_latest(self, steps: int) -> float:
        """As the workload says."""
        return work_of_latest(self._running, steps)

    def loss(self) -> float | None:
        """As the workload says."""
        return self._running.loss()

    def buckets(self) -> tuple[Bucket, ...]:
        """As the workload says."""
        return self._running.buckets()

    def attest(self) -> tuple[Attested, ...]:
        """As the workload says."""
        return self._running.attest()

    def apart(self) -> Apart | None:
        """As the workload says; steps apart are delayed as well."""
        return self._running.apart()

    def close(self) -> None:
        """Close the workload."""
        self._running.close()


def with_delay(running: Running, planted: Planted, context: Context) -> Running:
    """The workload with the delay that is planted in this rank; the workload itself where there is none."""
    if planted.delay_ms == 0 or planted.delay_rank not in (None, context.rank):
        return running
    seconds = planted.delay_ms / 1000.0
    return Delayed(running, DeviceDelay(seconds, CudaSpin()) if context.device.type == "cuda" else HostDelay(seconds))


class HostDelay:
    """Keeps the host waiting, which on a CPU worker is the device."""

    def __init__(
        self,
        seconds: float,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Wait for `seconds` at each call."""
        self._seconds, self._clock, self._sleep = seconds, clock, sleep

    def __call__(self) -> None:
        """Sleep through most of it, then watch the clock."""
        end = self._clock() + self._seconds
        if self._seconds > SPIN_S:
            self._sleep(self._seconds - SPIN_S)
        while self._clock() < end:
            pass


class Spin(Protocol):
    """A device that can be kept busy for a number of its clock cycles."""

    def enqueue(self, cycles: int) -> Any:
        """Enqueue the spin; what to ask `seconds` about it."""

    def seconds(self, spun: Any, *, wait: bool) -> float | None:
        """How long a spin took; None where it is not done and `wait` is false."""


class CudaSpin:
    """Spins on the current CUDA stream, between two events."""

    def enqueue(self, cycles: int) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        """Enqueue one spin."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # untyped
        start.record()
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]  # untyped in torch
        end.record()
        return start, end

    def seconds(self, spun: tuple[torch.cuda.Event, torch.cuda.Event], *, wait: bool) -> float | None:
        """Time between the events."""
        start, end = spun
        if wait:
            end.synchronize()
        done: bool = wait or end.query()  # type: ignore[no-untyped-call]  # untyped in torch
        return float(start.elapsed_time(end)) / 1000.0 if done else None


class DeviceDelay:
    """Keeps the device busy for a time.

    A device spins for clock cycles, and its clock changes with load and temperature. So each spin is timed, and the
    latest that is done says how many cycles the next one takes; launching it is part of what was timed.
    """

    def __init__(self, seconds: float, spin: Spin) -> None:
        """See once how fast the clock runs; the first spin loads the kernel and is not timed."""
        self._seconds, self._spin = seconds, spin
        spin.seconds(spin.enqueue(FIRST_CYCLES), wait=True)
        took = spin.seconds(spin.enqueue(FIRST_CYCLES), wait=True)
        self._cycles_per_s = FIRST_CYCLES / (took or 1.0)
        self._running: deque[tuple[int, Any]] = deque()

    def __call__(self) -> None:
        """Enqueue one delay; does not wait for the device."""
        while self._running and (took := self._spin.seconds(self._running[0][1], wait=False)):
            self._cycles_per_s = self._running.popleft()[0] / took
        cycles = max(1, round(self._seconds * self._cycles_per_s))
        self._running.append((cycles, self._spin.enqueue(cycles)))
