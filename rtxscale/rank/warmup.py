"""From the first step to the steady state: soak once, then warm up until rank 0 says that it is enough.

Steps run in chunks; after each, all ranks exchange whether their loss is finite, and rank 0 adds what comes next, so
that no rank is ever a step ahead. The criterion is `stats.steady`. Caller: `rank.trial`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

from rtxscale.rank.clock import Block, Pending, Seconds, run_steps
from rtxscale.rank.control import Control, Stopped
from rtxscale.results.outcomes import Outcome
from rtxscale.spec.cell import Measure
from rtxscale.stats.steady import judge_steady
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
    """Rank 0's decision: so many more steps, or none and what the criterion said."""

    steps: int
    steady: bool = False
    criterion: str = ""


@dataclass(kw_only=True)
class Stepper:
    """Runs a workload's steps in lockstep with the other ranks and keeps every step's time."""

    running: Running
    control: Control
    device: torch.device
    rank: int
    phases: list[Phase] = field(default_factory=list)

    def chunk(self, name: str, steps: int, decide: Callable[[Block], Next]) -> Next:
        """Run `steps` steps, then hear rank 0's decision on what they showed.

        Raises:
            Stopped: the loss of some rank is not finite, or another rank failed.
        """
        block = run_steps(self.running.step, steps, self.device)
        self.phases.append(Phase(name=name, block=block))
        return self._agree(decide(block) if self.rank == 0 else None)

    def window(self, steps: int) -> Pending:
        """Enqueue the window's steps; `record` reads them when the clock has stopped."""
        return Pending(self.running.step, steps, self.device)

    def record(self, name: str, block: Block) -> None:
        """Keep steps that were run outside `chunk`.

        Raises:
            Stopped: the loss of some rank is not finite, or another rank failed.
        """
        self.phases.append(Phase(name=name, block=block))
        self._agree(None)

    def _agree(self, decision: Next | None) -> Next:
        loss = self.running.loss()
        finite = loss is None or math.isfinite(loss)
        answers = self.control.exchange((finite, loss, decision))
        lost = [f"rank {rank}: {answer[1]}" for rank, answer in enumerate(answers) if not answer[0]]
        if lost:
            steps = sum(phase.block.step_s.size for phase in self.phases)
            raise Stopped(Outcome.DIVERGED, f"loss is not finite after {steps} steps ({', '.join(lost)})")
        return answers[0][2] or Next(steps=0)


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """How the warm-up went; times in seconds, `step_s` the typical step at its end."""

    first_step_s: float
    soak_s: float
    warmup_s: float
    steps: int
    steady: bool
    criterion: str
    step_s: float


def warm_up(stepper: Stepper, measure: Measure, *, soak: bool) -> WarmUp:
    """First step, soak if asked, and warm-up until steady or `warmup_max_s`.

    The first step may compile for minutes: it is part of `warmup_s`, but its time does not count against the limits.
    """
    measure = measure.resolved()
    start = time.perf_counter()
    following = stepper.chunk("first", 1, lambda _: Next(steps=1))
    first_s = time.perf_counter() - start
    soaked_s = _soak(stepper, measure.soak_s or 0.0) if soak else 0.0
    times: list[Seconds] = [stepper.phases[0].block.step_s]

    def decide(block: Block) -> Next:
        times.append(block.step_s)
        elapsed_s = time.perf_counter() - start - first_s - soaked_s
        return next_chunk(np.concatenate(times), elapsed_s, measure)

    steps = 1
    while following.steps:
        steps += following.steps
        following = stepper.chunk("warmup", following.steps, decide)
    return WarmUp(
        first_step_s=first_s,
        soak_s=soaked_s,
        warmup_s=time.perf_counter() - start - soaked_s,
        steps=steps,
        steady=following.steady,
        criterion=following.criterion,
        step_s=typical(stepper.phases[-1].block.step_s),
    )


def _soak(stepper: Stepper, soak_s: float) -> float:
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


def next_chunk(step_s: Seconds, elapsed_s: float, measure: Measure) -> Next:
    """Go on warming up, or stop because it is steady or has taken `warmup_max_s`.

    `step_s` holds all steps of the warm-up, the first one included; `measure` must be resolved.
    """
    least_s, most_s = measure.warmup_min_s or 0.0, measure.warmup_max_s or math.inf
    verdict = judge_steady(step_s, min_s=least_s, tolerance=measure.tolerance or math.inf)
    if verdict.steady and elapsed_s >= least_s:
        return Next(steps=0, steady=True, criterion=verdict.criterion)
    if elapsed_s >= most_s:
        return Next(steps=0, criterion=f"not steady after {elapsed_s:.1f} s: {verdict.criterion}")
    return Next(steps=steps_for(CHUNK_S, typical(step_s[-20:])))


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
