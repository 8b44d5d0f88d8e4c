"""Training of a timm image model with SGD or AdamW, on random images that stay on the device or on a loader's.

Not an accuracy benchmark: every trial starts from the same weights. The model is built once per
session; a trial restores its state, wraps it and compiles it anew. Caller: `registry`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from rtxscale.nccl.attest import Attested, Verdict
from rtxscale.spec.workload import VisionWorkload
from rtxscale.workloads.data.loading import Batches, Loaded, OnDevice, attest_data
from rtxscale.workloads.data.sets import image_sets
from rtxscale.workloads.inputs import attest_directory
from rtxscale.workloads.networks.timm_models import SEED, restore, restored_model
from rtxscale.workloads.protocol import Bucket, Context
from rtxscale.workloads.training.apart import DdpApart, apart
from rtxscale.workloads.training.compilation import attest_compile, begin_step, forget_compiled
from rtxscale.workloads.training.evaluation import Evaluation, evaluated
from rtxscale.workloads.training.parallel import bucket_layout, data_parallel
from rtxscale.workloads.training.precision import attest_precision, autocast, set_precision
from rtxscale.workloads.training.recomputation import Recomputation
from rtxscale.workloads.training.schedule import rate_of
from rtxscale.workloads.training.updates import Updates

LEARNING_RATES = {"sgd": 0.01, "adamw": 0.001}
"""What `learning_rate: auto` means."""
MOMENTUM = 0.9


class Vision:
    """Implements `kind: vision`."""

    def prepare(self, context: Context) -> VisionTraining:
        """Restore the model, wrap and compile it, and put images and labels on the device."""
        workload = context.workload
        if not isinstance(workload, VisionWorkload):
            raise TypeError(f"found workload {workload.kind}, expected vision")
        set_precision(workload.precision)
        if workload.compile != "off":
            forget_compiled()
        model = restored_model(workload, context)
        return VisionTraining(workload, context, model)


class VisionTraining:
    """A model in training; see `protocol.Running`."""

    unit = "image"

    def __init__(self, workload: VisionWorkload, context: Context, model: nn.Module) -> None:
        """Wrap the model and draw this rank's batches."""
        device = context.device
        self._workload = workload
        self._device = device
        self._context = context
        self._bare = model
        self._wrapped: Any = data_parallel(model, context)
        mode = workload.compile
        self._model: Any = self._wrapped if mode == "off" else torch.compile(self._wrapped, mode=mode)
        self._micro_steps = workload.accumulation
        self.work_per_step: float | None = float(_batch(workload, context) * self._micro_steps)
        self._sets = None if workload.data == "resident" else image_sets(workload)
        self._output_dtype: torch.dtype | None = None
        self._recomputation = Recomputation(model)
        if mode != "off":
            self._recomputation.stop()
        self._begin(context)

    def _begin(self, context: Context) -> None:
        """The first batch and the first update, for weights that are the first ones already."""
        workload = self._workload
        self._batches: Batches = (
            OnDevice(_micro_batches(workload, context))
            if self._sets is None
            else Loaded(self._sets.training, workload, context, _batch(workload, context))
        )
        scaled = workload.precision == "fp16"
        optimizer = _optimizer(workload, self._bare, fused=not scaled)
        self._updates = Updates(optimizer, workload, self._device, scaled=scaled)
        self._loss: torch.Tensor | None = None

    def restart(self, seed: int) -> None:
        """Begin again from this seed's weights and order of images; see `protocol.Restartable`."""
        self._updates.close()
        self._batches.close()
        context = replace(self._context, seed=seed)
        restore(self._bare, self._workload, context)
        self._begin(context)

    def step(self) -> float:
        """All micro-steps and one update; the seconds waited for the loader, which resident images do without."""
        begin_step(self._workload.compile)
        losses = []
        for place in range(1, self._micro_steps + 1):
            images, labels = self._batches.take()
            with self._reduction(last=place == self._micro_steps):
                losses.append(self._micro_step(images, labels))
        self._updates.step()
        self._loss = losses[0] if len(losses) == 1 else torch.stack(losses).sum()
        self._recomputation.stop()
        return self._batches.waited_s()

    @property
    def skipped_steps(self) -> int:
        """Steps so far whose update gradient scaling skipped."""
        return self._updates.skipped

    def evaluate(self, samples: int) -> Evaluation:
        """This rank's part of the held-out images, by the bare model with this rank's running statistics.

        Raises:
            ValueError: nothing is held out.
        """
        if self._sets is None or self._sets.held_out is None:
            raise ValueError(
                f"found data {self._workload.data}, of which nothing is held out; expected digits or images"
            )
        self._bare.eval()
        batch = _batch(self._workload, self._context)
        found = evaluated(self._sets.held_out, self._context, samples=samples, batch=batch, score=self._score)
        self._bare.train()
        return found

    @torch.no_grad()
    def _score(self, batch: Any, weights: torch.Tensor) -> Evaluation:
        images, labels = (part.to(self._device) for part in batch)
        with autocast(self._workload.precision, self._device):
            output = self._bare(images)
        losses = functional.cross_entropy(output.float(), labels, reduction="none")
        right = (output.argmax(dim=1) == labels).float()
        sums = [float((values * weights).sum()) for values in (torch.ones_like(weights), losses, right)]
        return Evaluation(samples=sums[0], loss=sums[1], correct=sums[2])

    def _reduction(self, *, last: bool) -> AbstractContextManager[Any]:
        """DDP adds gradients up locally until the last micro-step."""
        if last or not isinstance(self._wrapped, DistributedDataParallel):
            return nullcontext()
        silent: Callable[[], AbstractContextManager[Any]] = self._wrapped.no_sync
        return silent()

    def _micro_step(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Forward and backward under the same autocast and scale; this micro-batch's part of the step's loss."""
        with autocast(self._workload.precision, self._device):
            output = self._model(images)
            loss = functional.cross_entropy(output, labels)
        self._output_dtype = output.dtype
        part = loss / self._micro_steps if self._micro_steps > 1 else loss
        with self._recomputation.backward():
            self._updates.backward(part)
        return part.detach()

    def loss(self) -> float | None:
        """Mean cross entropy over the micro-steps of the latest step."""
        return None if self._loss is None else float(self._loss)

    def buckets(self) -> tuple[Bucket, ...]:
        """DDP's bucket layout."""
        return bucket_layout(self._model)

    def attest(self) -> tuple[Attested, ...]:
        """Precision, data, schedule, checkpointing (not of compiled models unless asked for), compilation, cuDNN."""
        rows = [attest_precision(self._workload.precision, self._output_dtype, self._device)]
        rows.append(attest_data(self._workload, self._sets, self._batches))
        rows += [self._updates.schedule.attest(), *attest_directory(self._workload)]
        if self._workload.compile == "off" or self._workload.checkpointing == "on":
            rows.append(self._recomputation.attest(self._workload.checkpointing))
        if self._workload.compile != "off":
            rows.append(attest_compile(self._workload.compile))
        if self._device.type == "cuda":
            rows.append(_attest_cudnn())
        return tuple(rows)

    def apart(self) -> DdpApart | None:
        """DDP's steps without synchronisation."""
        return apart(self._model, self._context)

    def close(self) -> None:
        """Drop wrap, batches, gradients and compiled code; the bare model stays with the session."""
        self._updates.close()
        self._recomputation.stop()
        self._model = self._wrapped = self._loss = None
        self._batches.close()
        if self._workload.compile != "off":
            forget_compiled()


def _optimizer(workload: VisionWorkload, model: nn.Module, *, fused: bool) -> torch.optim.Optimizer:
    """SGD with momentum, or AdamW with PyTorch's defaults."""
    rate = rate_of(workload, LEARNING_RATES[workload.optimizer])
    if workload.optimizer == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=rate, fused=fused)
    # Fused SGD writes overflowing gradients into its momentum when the scaler wants the step skipped (torch 2.14).
    return torch.optim.SGD(model.parameters(), lr=rate, momentum=MOMENTUM, fused=fused)


def _batch(workload: VisionWorkload, context: Context) -> int:
    """Images of this rank in a micro-step."""
    return workload.batch_per_gpu or (workload.global_batch or context.world) // context.world


def _micro_batches(workload: VisionWorkload, context: Context) -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    """Random images (batch, channel, height, width) and labels (batch,) of each micro-step, different on each rank."""
    batch = _batch(workload, context)
    own = batch * workload.accumulation
    generator = torch.Generator(context.device).manual_seed(SEED + context.rank)
    shape = (own, 3, workload.image_size, workload.image_size)
    images = torch.randn(shape, device=context.device, generator=generator)
    labels = torch.randint(workload.classes, (own,), device=context.device, generator=generator)
    layout = torch.channels_last if workload.channels_last else torch.contiguous_format
    images = images.contiguous(memory_format=layout)
    return tuple(zip(torch.split(images, batch), torch.split(labels, batch), strict=True))


def _attest_cudnn() -> Attested:
    """Version of cuDNN, and whether it chose its algorithms by timing them."""
    cudnn = torch.backends.cudnn
    version = cudnn.version()  # type: ignore[no-untyped-call]  # untyped in torch
    chosen = "benchmark" if cudnn.benchmark else "heuristic"
    return Attested(
        subject="cudnn",
        requested="benchmark",
        observed=f"{chosen}, version {version}",
        verdict=Verdict.HONOURED if cudnn.benchmark and cudnn.enabled else Verdict.REFUTED,
        evidence="torch.backends.cudnn",
    )
