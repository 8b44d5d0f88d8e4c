"""What every workload is to a rank: something that can be prepared, stepped, looked at and closed.

A workload knows how to train or communicate; it knows nothing of warm-up, windows, results or who started it. To add
one: a model in `spec.workload`, an implementation here, a line in `registry`. Caller: `rank.trial`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist

from rtxscale.nccl.attest import Attested
from rtxscale.spec.workload import Workload as WorkloadSpec


@dataclass(frozen=True, kw_only=True)
class Context:
    """Where and with whom a workload runs.

    `group` carries gradients and is None at one worker. `exchange` hands one object of each rank to all ranks, in rank
    order, outside `group`; every rank must call it equally often. `kept` lives as long as the session.
    """

    workload: WorkloadSpec
    bucket_mib: float | None
    device: torch.device
    rank: int
    world: int
    group: dist.ProcessGroup | None
    exchange: Callable[[Any], list[Any]]
    kept: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """One gradient bucket: its bytes and how many parameter tensors share it."""

    size_bytes: int
    parameters: int


class Running(Protocol):
    """A prepared workload."""

    unit: str
    """Name of one unit of work: image, token, sample; `operation` for collectives."""
    work_per_step: float | None
    """Work of this rank in one step; None where throughput has no meaning."""

    def step(self) -> float:
        """Enqueue one step; the seconds spent waiting for input. Does not wait for the device."""

    def loss(self) -> float | None:
        """Loss of the latest step, waiting for it; None where there is none."""

    def buckets(self) -> tuple[Bucket, ...]:
        """Gradient buckets in order of reduction, as really built; right from the third step on."""

    def attest(self) -> tuple[Attested, ...]:
        """What was asked of the workload against what is really active."""

    def close(self) -> None:
        """Let go of everything but what the session keeps; never raises for a workload that failed."""


class Workload(Protocol):
    """The implementation of one `workload.kind`."""

    def prepare(self, context: Context) -> Running:
        """Build what is needed and load the same initial state as ever."""
