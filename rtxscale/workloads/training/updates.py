"""How gradients become updates of the weights: scaled where fp16 needs it, counted, at the learning rate of a schedule.

Gradient scaling skips the update of a step that overflows, and `rank.trial` asks how many of the window's steps were.
Callers: the workloads that train a model.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch

from rtxscale.spec.training import Learning
from rtxscale.workloads.training.schedule import Schedule


class Updates:
    """An optimizer with its schedule and its gradient scaler, which scales nothing unless `scaled`."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, declared: Learning, device: torch.device, *, scaled: bool
    ) -> None:
        """Begin at no updates and at the schedule's first learning rate."""
        self.optimizer: Any = optimizer
        self.schedule: Any = Schedule(optimizer, declared)
        self.scaler = torch.amp.GradScaler(device.type, enabled=scaled)
        self._steps = self._made = 0
        optimizer.register_step_post_hook(self._count)

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of a loss to those of the step."""
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]  # untyped in torch

    def step(self) -> None:
        """Update the weights, or skip that, and drop the gradients."""
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self._steps += 1
        self.optimizer.zero_grad(set_to_none=True)

    def close(self) -> None:
        """Let go of the gradients and of the optimizer with its states; a second time does nothing."""
        if self.optimizer is not None:
            self.optimizer.zero_grad(set_to_none=True)
        self.optimizer = self.schedule = None

    @property
    def skipped(self) -> int:
        """Steps without an update so far."""
        return self._steps - self._made

    def _count(self, *_: Any) -> None:
        self._made += 1


@runtime_checkable
class Scaled(Protocol):
    """What a prepared workload has besides, if gradient scaling may skip its updates."""

    @property
    def skipped_steps(self) -> int:
        """Steps so far whose update was skipped."""


def skipped_steps(running: object) -> int | None:
    """Steps so far whose update was skipped; None for a workload that cannot tell."""
    return running.skipped_steps if isinstance(running, Scaled) else None
