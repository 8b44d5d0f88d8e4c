"""The learning rate from update to update, by PyTorch's schedulers.

It moves with the updates that the optimizer really makes, on the host alone: nothing waits for the device, and gradient
scaling that skips an update skips its learning rate too. Callers: the workloads that train a model.
"""

from __future__ import annotations

import math
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, SequentialLR, StepLR

from rtxscale.nccl.attest import Attested, Verdict
from rtxscale.spec.training import Learning

DECAY, PARTS = 0.1, 3
"""Of `step`: a tenth after each third, as He et al. (2015), arXiv:1512.03385, trained ResNets."""


def rate_of(declared: Learning, usual: float) -> float:
    """The learning rate that the schedule begins from; `usual` is what `auto` means."""
    return usual if declared.learning_rate == "auto" else declared.learning_rate


class Schedule:
    """Moves an optimizer's learning rate after each of its updates, up to the schedule's last."""

    def __init__(self, optimizer: Optimizer, declared: Learning) -> None:
        """Set the first update's learning rate; a constant one without warm-up is left alone."""
        self._declared = declared
        self._optimizer = optimizer
        self._first = _rates(optimizer)
        self._updates = 0
        self._scheduler = _scheduler(optimizer, declared)
        if self._scheduler is not None:
            optimizer.register_step_post_hook(self._update)

    def _update(self, *_: Any) -> None:
        """A cosine would rise again behind its end, and `step` decay on."""
        if self._scheduler is not None and self._updates < _length(self._declared):
            self._updates += 1
            self._scheduler.step()

    def attest(self) -> Attested:
        """Whether the optimizer has the learning rate that the schedule has come to."""
        due = self._first if self._scheduler is None else [float(rate) for rate in self._scheduler.get_last_lr()]
        return Attested(
            subject="workload.schedule",
            requested=self._declared.schedule,
            observed=self._declared.schedule_in_words,
            verdict=Verdict.HONOURED if _rates(self._optimizer) == due else Verdict.REFUTED,
            evidence="learning rate in the optimizer, against that of PyTorch's scheduler after as many updates",
        )


def _rates(optimizer: Optimizer) -> list[float]:
    return [float(group["lr"]) for group in optimizer.param_groups]


def _length(declared: Learning) -> int:
    """Updates after which the learning rate moves no further."""
    return declared.schedule_warmup_steps if declared.schedule == "constant" else declared.schedule_steps


def _scheduler(optimizer: Optimizer, declared: Learning) -> LRScheduler | None:
    """The schedule with its warm-up in front; None where the learning rate never moves."""
    warm_up, later = declared.schedule_warmup_steps, max(1, declared.schedule_steps - declared.schedule_warmup_steps)
    if declared.schedule == "constant":
        return LinearLR(optimizer, start_factor=1 / warm_up, total_iters=warm_up) if warm_up else None
    main = _decay(optimizer, declared.schedule, later)
    if not warm_up:
        return main
    rise = LinearLR(optimizer, start_factor=1 / warm_up, total_iters=warm_up)
    return SequentialLR(optimizer, [rise, main], milestones=[warm_up])


def _decay(optimizer: Optimizer, shape: str, updates: int) -> LRScheduler:
    if shape == "cosine":
        return CosineAnnealingLR(optimizer, T_max=updates)
    if shape == "linear":
        return LinearLR(optimizer, start_factor=1.0, end_factor=0.0, total_iters=updates)
    return StepLR(optimizer, step_size=math.ceil(updates / PARTS), gamma=DECAY)
