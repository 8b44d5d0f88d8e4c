"""Batches for a rank: the same ones over and over on the device, or new ones from a loader, and how long that took.

A loader's workers are processes of a fork server: forked from the rank itself they would hold its GPU open after its
death. Each rank sees its own part of every epoch, in the order of PyTorch's DistributedSampler. Callers: the workloads
that train on data.
"""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler, Sampler

from rtxscale.nccl.attest import Attested, Verdict
from rtxscale.spec.training import Loading
from rtxscale.spec.workload import DiffusionWorkload, LanguageWorkload, VisionWorkload
from rtxscale.workloads.data.sets import DataSets
from rtxscale.workloads.protocol import Context

PRELOADED = ["torch", "rtxscale.workloads.data.sets"]
"""What the fork server imports once, for all workers."""


class Batches(Protocol):
    """Where a rank's batches come from."""

    def take(self) -> Any:
        """The next batch, on the device."""

    def waited_s(self) -> float:
        """Seconds that `take` has waited for input since this was asked last.

        Of a GPU's batches only waits at whose end it had run dry: while it still works, waiting costs nothing.
        """

    def close(self) -> None:
        """Let go of batches and workers; may be called again."""


class OnDevice:
    """Batches that stay on the device, over and over."""

    def __init__(self, batches: Sequence[Any]) -> None:
        """Keep them."""
        self._next: Iterator[Any] = itertools.cycle(batches)

    def take(self) -> Any:
        """The next one."""
        return next(self._next)

    def waited_s(self) -> float:
        """Nothing is waited for."""
        return 0.0

    def close(self) -> None:
        """Drop them."""
        self._next = iter(())


class Endless(Sampler[int]):
    """This rank's part of one epoch after the other, each in an order of its own.

    Batches run on over the end of an epoch, so that no step waits for a loader that starts anew.
    """

    def __init__(self, dataset: Dataset[Any], context: Context, seed: int) -> None:
        """Divide the set as DistributedSampler does; a remainder that not every rank can have is left out."""
        self._epoch: DistributedSampler[Any] = DistributedSampler(
            dataset, num_replicas=context.world, rank=context.rank, shuffle=True, seed=seed, drop_last=True
        )

    def __iter__(self) -> Iterator[int]:
        """Places in the set, without end."""
        for epoch in itertools.count():
            self._epoch.set_epoch(epoch)
            yield from self._epoch


class Loaded:
    """Batches from a loader, copied to the device behind the work that is enqueued there."""

    def __init__(self, dataset: Dataset[Any], workload: Loading, context: Context, batch: int) -> None:
        """Start the workers; each rank has `loader_workers` of its own, none: the rank loads between its steps.

        Raises:
            ValueError: the data do not give every rank a sample.
        """
        if len(dataset) < context.world:  # type: ignore[arg-type]  # every set of ours has a length
            raise ValueError(f"found fewer samples than the {context.world} ranks; expected one for each at least")
        self._device = context.device
        pinned = workload.pin_memory == "on" and context.device.type == "cuda"
        workers = workload.loader_workers
        channels_last = isinstance(workload, VisionWorkload) and workload.channels_last
        self._layout = torch.channels_last if channels_last else torch.contiguous_format
        self._loader: Any = DataLoader(
            dataset,
            batch_sampler=BatchSampler(Endless(dataset, context, context.seed), batch, drop_last=True),
            num_workers=workers,
            pin_memory=pinned,
            multiprocessing_context=_fork_server() if workers else None,
        )
        self._next: Any = iter(self._loader)
        self._waited_s = 0.0
        self.pinned = pinned

    def take(self) -> Any:
        """The next batch; the copy of one from pinned memory is not waited for."""
        start = time.perf_counter()
        batch = next(self._next)
        waited_s = time.perf_counter() - start
        if self._device.type != "cuda" or torch.cuda.current_stream(self._device).query():
            self._waited_s += waited_s
        if isinstance(batch, torch.Tensor):
            return batch.to(self._device, non_blocking=self.pinned)
        if isinstance(batch, dict):
            return {name: part.to(self._device, non_blocking=self.pinned) for name, part in batch.items()}
        images, labels = batch
        images = images.to(self._device, non_blocking=self.pinned, memory_format=self._layout)
        return images, labels.to(self._device, non_blocking=self.pinned)

    def waited_s(self) -> float:
        """Seconds spent waiting for the loader since this was asked last."""
        waited, self._waited_s = self._waited_s, 0.0
        return waited

    def close(self) -> None:
        """End the workers."""
        if self._next is not None and hasattr(self._next, "_shutdown_workers"):
            self._next._shutdown_workers()
        self._next = self._loader = None


def _fork_server() -> Any:
    """The context that workers are started in."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def attest_data(
    workload: VisionWorkload | LanguageWorkload | DiffusionWorkload, sets: DataSets | None, batches: Batches
) -> Attested:
    """Which data were trained on, by which loader."""
    if sets is None:
        observed = "resident: random, drawn once, on the device"
    elif isinstance(batches, Loaded):
        count = workload.loader_workers
        workers = f"{count} worker{'s' * (count > 1)} per rank" if count else "no workers"
        observed = f"{sets.identity}; {workers}, memory {'pinned' if batches.pinned else 'not pinned'}"
    else:
        observed = sets.identity
    return Attested(
        subject="workload.data",
        requested=workload.data,
        observed=observed,
        verdict=Verdict.HONOURED,
        evidence="the data set that the loader was made of",
    )
