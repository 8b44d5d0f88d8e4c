"""Training of a timm image model with SGD or AdamW, on random images that stay on the device or on a loader's.

Not an accuracy benchmark: every trial starts from the same weights. The model is built once per
session; a trial restores its state, wraps it and compiles it anew. Caller: `registry`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from rtxscale.nccl.attest import Attested, Verdict
from rtxscale.spec.workload import VisionWorkload
from rtxscale.workloads.data.loading import OnDevice, attest_data
from rtxscale.workloads.data.sets import image_sets
from rtxscale.workloads.inputs import attest_directory
from rtxscale.workloads.model_training import ModelTraining, batch_of, make_ready
from rtxscale.workloads.networks.timm_models import SEED, restore, restored_model
from rtxscale.workloads.protocol import Context
from rtxscale.workloads.training.compilation import attest_compile
from rtxscale.workloads.training.evaluation import Evaluation
from rtxscale.workloads.training.precision import attest_precision, autocast
from rtxscale.workloads.training.schedule import rate_of

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
        make_ready(workload)
        return VisionTraining(workload, context, restored_model(workload, context))


class VisionTraining(ModelTraining[VisionWorkload]):
    """An image model in training."""

    unit = "image"
    HELD_OUT = "digits or images"

    def __init__(self, workload: VisionWorkload, context: Context, model: nn.Module) -> None:
        """Wrap the model and draw this rank's batches."""
        images = batch_of(workload, context) * workload.accumulation
        sets = None if workload.data == "resident" else image_sets(workload)
        super().__init__(workload, context, model, sets, work_per_step=float(images), sharded=False)

    def _optimizer(self, context: Context, *, fused: bool) -> torch.optim.Optimizer:
        """SGD with momentum, or AdamW with PyTorch's defaults."""
        workload, parameters = self._workload, self._bare.parameters()
        rate = rate_of(workload, LEARNING_RATES[workload.optimizer])
        if workload.optimizer == "adamw":
            return torch.optim.AdamW(parameters, lr=rate, fused=fused)
        return torch.optim.SGD(parameters, lr=rate, momentum=MOMENTUM, fused=fused)

    def _resident(self, context: Context) -> OnDevice:
        return OnDevice(_micro_batches(self._workload, context))

    def _refill(self, context: Context) -> None:
        restore(self._bare, self._workload, context)

    def _micro_step(self, batch: Any) -> torch.Tensor:
        """Forward and backward under the same autocast and scale."""
        images, labels = batch
        with autocast(self._workload.precision, self._device):
            output = self._model(images)
            loss = functional.cross_entropy(output, labels)
        self._output_dtype = output.dtype
        part = self._part(loss)
        self._backward(part)
        return part.detach()

    @torch.no_grad()
    def _score(self, batch: Any, weights: torch.Tensor) -> Evaluation:
        images, labels = (part.to(self._device) for part in batch)
        with autocast(self._workload.precision, self._device):
            output = self._bare(images)
        losses = functional.cross_entropy(output.float(), labels, reduction="none")
        right = (output.argmax(dim=1) == labels).float()
        sums = [float((values * weights).sum()) for values in (torch.ones_like(weights), losses, right)]
        return Evaluation(samples=sums[0], loss=sums[1], correct=sums[2])

    def attest(self) -> tuple[Attested, ...]:
        """Precision, data, schedule, checkpointing, compilation if asked for, cuDNN."""
        rows = [attest_precision(self._workload.precision, self._output_dtype, self._device)]
        rows.append(attest_data(self._workload, self._sets, self._batches))
        rows += [self._updates.schedule.attest(), *attest_directory(self._workload)]
        rows.append(self._attest_checkpointing())
        if self._workload.compile != "off":
            rows.append(attest_compile(self._workload.compile))
        if self._device.type == "cuda":
            rows.append(_attest_cudnn())
        return tuple(rows)


def _micro_batches(workload: VisionWorkload, context: Context) -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    """Random images (batch, channel, height, width) and labels (batch,) of each micro-step, different on each rank."""
    batch = batch_of(workload, context)
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
