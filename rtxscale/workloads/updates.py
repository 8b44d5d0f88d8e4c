"""How many of a workload's steps have changed its weights: gradient scaling skips the update of a step that overflows.

Callers: the workloads that train a model, and `rank.trial`, which asks how many of the window's steps were skipped.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch


class Updates:
    """Counts the steps that a workload makes, and the updates that its optimizer really makes in them."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        """Begin at none."""
        self._steps = self._made = 0
        optimizer.register_step_post_hook(self._update)

    def step(self) -> None:
        """Note that a step is over, its update made or skipped."""
        self._steps += 1

    @property
    def skipped(self) -> int:
        """Steps without an update so far."""
        return self._steps - self._made

    def _update(self, *_: Any) -> None:
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
