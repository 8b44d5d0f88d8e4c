"""From the first step to the steady state: soak once, then warm up until rank 0 says that it is enough.

Steps run in chunks; after each, all ranks exchange whether their loss is finite and how their GPU's temperature and
clock move, and rank 0 adds what comes next, so that no rank is ever a step ahead. Rank 0 decides before the exchange:
what it knows of the others is one chunk old. The criterion is `stats.steady`. Caller: `rank.trial`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from rtxscale.rank.clock import Block, Pending, Seconds, run_steps
from rtxscale.rank.control import Control, Stopped
from rtxscale.rank.vitals import Vitals
from rtxscale.results.outcomes import Outcome
from rtxscale.spec.cell import Measure
from rtxscale.stats.steady import GpuTrends, judge_steady, judge_vitals
from rtxscale.workloads.protocol import Running

CHUNK_S = 0.25
"""Steps between two decisions take about this long; deciding waits for the device."""


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One stretch of a trial: its name in the steps table and its steps."""

    name: str
    block: Block


@dataclass(frozen=True, kw_only=True)
class Next:
    """Rank 0's decision: so many more steps, or none and what the criterion said of which GPUs."""

    steps: int
    steady: bool = False
    criterion: str = ""
    gpus: tuple[GpuTrends, ...] = ()


@dataclass(kw_only=True)
class Stepper:
    """Runs a workload's steps in lockstep with the other ranks and keeps every step's time."""

    running: Running
    control: Control
    device: torch.device
    rank: int
    vitals: Vitals = field(default_factory=Vitals)
    slope_s: float = 0.0
    """Time base of the slopes of temperature and clock."""
    phases: list[Phase] = field(default_factory=list)
    _seen: list[GpuTrends | None] = field(default_factory=list)

    def chunk(self, name: str, steps: int, decide: Callable[[Block], Next]) -> Next:
        """Run `steps` steps, then hear rank 0's decision on what they showed.

        Raises:
            Stopped: the loss of some rank is not finite, or another rank failed.
        """
        block = run_steps(self.running.step, steps, self.device)
        self._keep(name, block)
        return self._agree(decide(block) if self.rank == 0 else None)

    def gpus(self) -> tuple[GpuTrends, ...]:
        """How the GPUs of all ranks move, on rank 0: its own now, the others' at the last exchange."""
        every = (self.vitals.trends(self.slope_s), *self._seen[1:])
        return tuple(trends for trends in every if trends is not None)

    def window(self, steps: int) -> Pending:
        """Enqueue the window's steps; `record` reads them when the clock has stopped."""
        return Pending(self.running.step, steps, self.device)

    def record(self, name: str, block: Block) -> None:
        """Keep steps that were run outside `chunk`.

        Raises:
            Stopped: the loss of some rank is not finite, or another rank failed.
        """
        self._keep(name, block)
        self._agree(None)

    def keep_finite(self, name: str, block: Block) -> bool:
        """Keep steps of a trial whose window is measured, unless the loss of some rank is not finite; whether it is.

        Raises:
            Stopped: another rank failed.
        """
        loss = self.running.loss()
        finite = all(self.control.exchange(loss is None or math.isfinite(loss)))
        if finite:
            self._keep(name, block)
        return finite

    def _keep(self, name: str, block: Block) -> None:
        self.phases.append(Phase(name=name, block=block))
        self.vitals.worked(0.0 if name == "first" else float(block.step_s.sum()))  # a first step mostly compiles

    def _agree(self, decision: Next | None) -> Next:
        loss = self.running.loss()
        finite = loss is None or math.isfinite(loss)
        answers = self.control.exchange((finite, loss, decision, self.vitals.trends(self.slope_s)))
        self._seen = [answer[3] for answer in answers]
        lost = [f"rank {rank}: {answer[1]}" for rank, answer in enumerate(answers) if not answer[0]]
        if lost:
            steps = sum(phase.block.step_s.size for phase in self.phases)
            raise Stopped(Outcome.DIVERGED, f"loss is not finite after {steps} steps ({', '.join(lost)})")
        return answers[0][2] or Next(steps=0)


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """How the warm-up went; times in seconds, `step_s` the typical step at its end; `gpus` as it judged them."""

    first_step_s: float
    soak_s: float
    warmup_s: float
    steps: int
    steady: bool
    criterion: str
    step_s: float
    gpus: tuple[GpuTrends, ...] = ()


def first_step(stepper: Stepper) -> float:
    """Run the first step, which may compile for minutes; the seconds it took."""
    start = time.perf_counter()
    stepper.chunk("first", 1, lambda _: Next(steps=0))
    return time.perf_counter() - start


def warm_up(stepper: Stepper, measure: Measure, *, first_step_s: float, soak_s: float) -> WarmUp:
    """Warm up until steady or `warmup_max_s`, after a first step and a soak of so many seconds.

    The first step is part of `warmup_s`, but its time does not count against the limits.
    """
    measure = measure.resolved()
    start = time.perf_counter()
    times: list[Seconds] = [stepper.phases[0].block.step_s]

    def decide(block: Block) -> Next:
        times.append(block.step_s)
        return next_chunk(np.concatenate(times), time.perf_counter() - start, measure, stepper.gpus())

    steps, following = 1, Next(steps=1)
    while following.steps:
        steps += following.steps
        following = stepper.chunk("warmup", following.steps, decide)
    return WarmUp(
        first_step_s=first_step_s,
        soak_s=soak_s,
        warmup_s=first_step_s + time.perf_counter() - start,
        steps=steps,
        steady=following.steady,
        criterion=following.criterion,
        step_s=typical(stepper.phases[-1].block.step_s),
        gpus=following.gpus,
    )


def soak(stepper: Stepper, soak_s: float) -> float:
    """Run for `soak_s` seconds; the seconds it really took."""
    if soak_s <= 0:
        return 0.0
    start = time.perf_counter()

    def decide(block: Block) -> Next:
        left_s = soak_s - (time.perf_counter() - start)
        return Next(steps=steps_for(min(CHUNK_S, left_s), typical(block.step_s)) if left_s > 0 else 0)

    following = Next(steps=1)
    while following.steps:
        following = stepper.chunk("soak", following.steps, decide)
    return time.perf_counter() - start


def next_chunk(step_s: Seconds, elapsed_s: float, measure: Measure, gpus: Sequence[GpuTrends] = ()) -> Next:
    """Go on warming up, or stop because it is steady or has taken `warmup_max_s`.

    `step_s` holds all steps of the warm-up, the first one included; `gpus` how each rank's GPU moves; `measure` must be
    resolved.
    """
    least_s, most_s = measure.warmup_min_s or 0.0, measure.warmup_max_s or math.inf
    steps = judge_steady(step_s, min_s=least_s, tolerance=measure.tolerance or math.inf)
    vitals = judge_vitals(
        gpus,
        base_s=measure.slope_s or 0.0,
        temperature=bound(measure.temperature_slope),
        clock=bound(measure.clock_slope),
    )
    criterion = "; ".join(part for part in (steps.criterion, vitals.criterion) if part)
    if steps.steady and vitals.steady and elapsed_s >= least_s:
        return Next(steps=0, steady=True, criterion=criterion, gpus=tuple(gpus))
    if elapsed_s >= most_s:
        return Next(steps=0, criterion=f"not steady after {elapsed_s:.1f} s: {criterion}", gpus=tuple(gpus))
    return Next(steps=steps_for(CHUNK_S, typical(step_s[-20:])))


def bound(slope: float | str | None) -> float | None:
    """The bound of a slope as a number; None where it is not gated.

    >>> bound(0.5), bound("off")
    (0.5, None)
    """
    return None if slope is None or isinstance(slope, str) else slope


def window_steps(step_s: float, measure: Measure) -> int:
    """Steps that fill `window_s`, at least `min_steps`.

    >>> window_steps(0.5, Measure(window_s=3.0, min_steps=10)), window_steps(0.01, Measure(window_s=3.0, min_steps=10))
    (10, 300)
    """
    return max(measure.min_steps or 1, steps_for(measure.window_s or 0.0, step_s))


def steps_for(seconds: float, step_s: float) -> int:
    """Steps of `step_s` that take about `seconds`, at least one."""
    return max(1, math.ceil(round(seconds / step_s, 6))) if step_s > 0 else 1


def typical(step_s: Seconds) -> float:
    """Median step time in seconds: one stall does not lengthen what is planned from it."""
    return float(np.median(step_s))
