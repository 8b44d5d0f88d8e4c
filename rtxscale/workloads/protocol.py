"""What every workload is to a rank: something that can be prepared, stepped, looked at and closed.

A workload knows how to train or communicate; it knows nothing of warm-up, windows, results or who started it. To add
one: a model in `spec.workload`, an implementation here, a line in `registry`. Caller: `rank.trial`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
import torch.distributed as dist

from rtxscale.nccl.attest import Attested
from rtxscale.spec.workload import Workload as WorkloadSpec


@dataclass(frozen=True, kw_only=True)
class Context:
    """Where and with whom a workload runs.

    `group` carries gradients and is None at one worker. `exchange` hands one object of each rank to all ranks, in rank
    order, outside `group`; every rank must call it equally often. `kept` lives as long as the session. `seed` is that
    of first weights and of the order of data that are loaded.
    """

    workload: WorkloadSpec
    bucket_mib: float | None
    device: torch.device
    rank: int
    world: int
    group: dist.ProcessGroup | None
    exchange: Callable[[Any], list[Any]]
    kept: dict[str, Any]
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """One gradient bucket: its bytes and how many parameter tensors share it."""

    size_bytes: int
    parameters: int


class Apart(Protocol):
    """Ranks that can step without communicating."""

    def steps(self) -> AbstractContextManager[Any]:
        """Steps inside train each rank on its own data alone; the ranks' parameters go their own ways."""

    def rejoin(self) -> bool:
        """Give all ranks the parameters and buffers of rank 0; whether they are equal. Every rank must call it."""


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

    def apart(self) -> Apart | None:
        """How the ranks step without communicating; None where they cannot, or where there is one only."""

    def close(self) -> None:
        """Let go of everything but what the session keeps; never raises for a workload that failed."""


@runtime_checkable
class Counted(Protocol):
    """What a prepared workload has besides, if its steps need not all have the same work."""

    def work_of_latest(self, steps: int) -> float:
        """Work of this rank in its latest `steps` steps."""


@runtime_checkable
class Restartable(Protocol):
    """What a prepared workload has besides, if it trains a model of rtxscale's own."""

    def restart(self, seed: int) -> None:
        """Begin again as if newly prepared with this seed: first weights, buffers, order of data, optimizer, schedule.

        What is built, wrapped and compiled stays. Every rank must call it, between steps.
        """


def work_of_latest(running: Running, steps: int) -> float:
    """Work of this rank in its latest `steps` steps."""
    if isinstance(running, Counted):
        return running.work_of_latest(steps)
    return (running.work_per_step or 0.0) * steps


class Workload(Protocol):
    """The implementation of one `workload.kind`."""

    def prepare(self, context: Context) -> Running:
        """Build what is needed and load the same initial state as ever."""
