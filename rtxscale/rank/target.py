"""Time to target: a model trained from its first weights until a metric reaches a value, or for as long as allowed.

It comes after everything that a trial measures and touches none of it, by what that has built and compiled. Evaluation
stops the clock, and the first step, which makes the optimizer's states, counts as long as the others. Each visit and
repeat has a seed of its own, of first weights and of the order of data; cells have the same seeds. Not reached is an
answer. Caller: `rank.trial`.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rtxscale.rank.clock import run_steps
from rtxscale.rank.session import Session
from rtxscale.spec.cell import Target, Trial
from rtxscale.workloads.protocol import Running, work_of_latest
from rtxscale.workloads.training.evaluation import Evaluated, Evaluation

SEEDS_PER_VISIT = 1000
PIECE_S = 1.0
"""Steps are run in pieces of about so long: the time may be over long before the next look."""
SHORTEST_S = 1e-9


@dataclass(frozen=True, kw_only=True)
class Approach:
    """How far a model has come: `target_s` seconds of training, `target_work` units of work of all ranks."""

    target_reached: bool
    target_value: float
    """Of the metric, at the last time that it was looked at."""
    target_steps: int
    target_work: float
    target_s: float
    target_evaluation_s: float
    """Seconds of looking, which are no part of `target_s`."""

    def facts(self, seed: int) -> dict[str, Any]:
        """As columns of the trial."""
        return {**asdict(self), "seed": seed}


def seed_of(trial: Trial) -> int:
    """Seed of a trial's first weights and order of data: the same for every cell, its own for each visit and repeat.

    >>> cell = {"workload": {"kind": "vision"}}
    >>> seed_of(Trial.model_validate({"cell": cell, "visit": 2, "repeat": 3}))
    1002
    """
    return SEEDS_PER_VISIT * (trial.visit - 1) + trial.repeat - 1


def train_to_target(target: Target, running: Running, session: Session) -> Approach:
    """Train until rank 0 sees the target reached, the time over, or a loss that is no number; on all ranks alike."""
    _steps(target, running, session, 1)
    steps, work = 1, work_of_latest(running, 1)
    later_s = looking_s = 0.0
    over = False
    while not over:
        some = _train_on(target, running, session, target.max_time_s - later_s)
        later_s += some.seconds
        steps, work = steps + some.steps, work + work_of_latest(running, some.steps)
        start = time.perf_counter()
        value = _value(target, running, session, some.losses)
        looking_s += time.perf_counter() - start
        reached = _is_reached(target, value)
        over = session.control.exchange(reached or not math.isfinite(value) or later_s >= target.max_time_s)[0]
    return Approach(
        target_reached=reached,
        target_value=value,
        target_steps=steps,
        target_work=sum(session.control.exchange(work)),
        target_s=later_s * steps / (steps - 1),
        target_evaluation_s=looking_s,
    )


@dataclass(frozen=True, kw_only=True)
class _Stretch:
    """Steps from one look to the next: how many, their losses where these are asked for, and the seconds they took."""

    steps: int
    losses: list[float]
    seconds: float


def _train_on(target: Target, running: Running, session: Session, left_s: float) -> _Stretch:
    """Run `every_steps`, on all ranks alike; fewer where the time that is left is over before."""
    steps, losses, seconds, piece = 0, [], 0.0, 1
    while piece:
        start = time.perf_counter()
        losses += _steps(target, running, session, piece)
        seconds, steps = seconds + time.perf_counter() - start, steps + piece
        fast = max(1, int(PIECE_S * steps / max(seconds, SHORTEST_S)))
        mine = 0 if seconds >= left_s else min(fast, target.every_steps - steps)
        piece = session.control.exchange(mine)[0]
    return _Stretch(steps=steps, losses=losses, seconds=seconds)


def _steps(target: Target, running: Running, session: Session, some: int) -> list[float]:
    """Run some steps; the loss of each where it is asked for, which waits for the device."""
    losses: list[float] = []

    def step() -> float:
        waited = running.step()
        if target.metric == "loss":
            loss = running.loss()
            losses.append(math.nan if loss is None else loss)
        return waited

    run_steps(step, some, session.device)
    return losses


def _value(target: Target, running: Running, session: Session, losses: list[float]) -> float:
    """The metric, over all ranks: mean training loss since it was looked at last, or what the held-out samples say."""
    if target.metric == "loss":
        return float(np.mean(session.control.exchange(float(np.mean(losses)))))
    if not isinstance(running, Evaluated):
        raise TypeError(f"target.metric: found {target.metric} for a workload with nothing held out; expected loss")
    parts: list[Evaluation] = session.control.exchange(running.evaluate(target.samples))
    whole = sum(parts[1:], start=parts[0])
    if target.metric == "top1":
        return math.nan if whole.correct is None else whole.correct / whole.samples
    return whole.loss / whole.samples


def _is_reached(target: Target, value: float) -> bool:
    return value >= target.value if target.metric == "top1" else value <= target.value
