"""Training of a timm image model with SGD on synthetic images that stay on the device.

Not an accuracy benchmark: labels are random, every trial starts from the same weights. The model is built once per
session; a trial restores its state, wraps it and compiles it anew. Caller: `registry`.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

import timm
import torch
from torch import nn
from torch.nn import functional

from rtxscale.nccl.attest import Attested, Verdict
from rtxscale.spec.workload import VisionWorkload
from rtxscale.workloads.compilation import attest_compile, begin_step, forget_compiled
from rtxscale.workloads.parallel import bucket_layout, data_parallel
from rtxscale.workloads.precision import attest_precision, autocast, set_precision
from rtxscale.workloads.protocol import Bucket, Context

SEED = 1234
LEARNING_RATE = 0.01
MOMENTUM = 0.9


@dataclass(frozen=True)
class Resident:
    """A model that outlives its trials, with the state it was born with."""

    identity: tuple[str, ...]
    model: nn.Module
    initial: dict[str, torch.Tensor]


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
        model = _restored_model(workload, context)
        return VisionTraining(workload, context, model)


class VisionTraining:
    """A model in training; see `protocol.Running`."""

    unit = "image"

    def __init__(self, workload: VisionWorkload, context: Context, model: nn.Module) -> None:
        """Wrap the model and draw this rank's batch."""
        device = context.device
        batch = workload.batch_per_gpu or (workload.global_batch or context.world) // context.world
        self.work_per_step: float | None = float(batch)
        self._workload = workload
        self._device = device
        wrapped = data_parallel(model, context)
        mode = workload.compile
        self._model: Any = wrapped if mode == "off" else torch.compile(wrapped, mode=mode)
        self._images, self._labels = _batch(workload, batch, context)
        scaled = workload.precision == "fp16"
        # Fused SGD writes overflowing gradients into its momentum when the scaler wants the step skipped (torch 2.14).
        self._optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, fused=not scaled)
        self._scaler = torch.amp.GradScaler(device.type, enabled=scaled)
        self._loss: torch.Tensor | None = None
        self._output_dtype: torch.dtype | None = None

    def step(self) -> float:
        """Forward, backward and update; images are resident, so input takes no time."""
        begin_step(self._workload.compile)
        with autocast(self._workload.precision, self._device):
            output = self._model(self._images)
            loss = functional.cross_entropy(output, self._labels)
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]  # untyped in torch
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._optimizer.zero_grad(set_to_none=True)
        self._loss = loss.detach()
        self._output_dtype = output.dtype
        return 0.0

    def loss(self) -> float | None:
        """Cross entropy of the latest step."""
        return None if self._loss is None else float(self._loss)

    def buckets(self) -> tuple[Bucket, ...]:
        """DDP's bucket layout."""
        return bucket_layout(self._model)

    def attest(self) -> tuple[Attested, ...]:
        """Precision, compilation and cuDNN's choice of algorithms."""
        rows = [attest_precision(self._workload.precision, self._output_dtype, self._device)]
        if self._workload.compile != "off":
            rows.append(attest_compile(self._workload.compile))
        if self._device.type == "cuda":
            rows.append(_attest_cudnn())
        return tuple(rows)

    def close(self) -> None:
        """Drop wrap, batch, gradients and compiled code; the bare model stays with the session."""
        self._optimizer.zero_grad(set_to_none=True)
        self._model = self._loss = None
        self._images = self._labels = torch.empty(0)
        if self._workload.compile != "off":
            forget_compiled()


def unknown_model(name: str) -> str:
    """What is wrong with a model's name, with the nearest right ones; empty when timm has it.

    >>> unknown_model("resnet50"), unknown_model("resnte50").partition(", such as ")[2].split(", ")[0]
    ('', 'resnet50')
    """
    if timm.is_model(name):
        return ""
    known = timm.list_models()
    near = [model for model in known if model.startswith(name)][:4] or difflib.get_close_matches(name, known, 4, 0.5)
    return (
        f"workload.model: found {name!r}, which timm {timm.__version__} does not have; expected a timm model's name"
        + (f", such as {', '.join(near)}" if near else "")
    )


def _restored_model(workload: VisionWorkload, context: Context) -> nn.Module:
    """The session's model in its initial state, in the memory format asked for."""
    resident = context.kept.get("vision")
    if resident is None or resident.identity != workload.identity:
        context.kept.pop("vision", None)
        resident = context.kept["vision"] = _build(workload, context.device)
    model: nn.Module = resident.model
    layout = torch.channels_last if workload.channels_last else torch.contiguous_format
    model.to(memory_format=layout)
    model.zero_grad(set_to_none=True)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            tensor.copy_(resident.initial[name])
    return model.train()


def _build(workload: VisionWorkload, device: torch.device) -> Resident:
    """A new model with seeded weights on the device."""
    torch.manual_seed(SEED)
    options: dict[str, Any] = {"num_classes": workload.classes}
    try:
        model = timm.create_model(workload.model, img_size=workload.image_size, **options)
    except TypeError as error:
        # Convolutional models take any image size and do not know the argument.
        if "img_size" not in str(error):
            raise
        model = timm.create_model(workload.model, **options)
    model = model.to(device)
    initial = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    return Resident(workload.identity, model, initial)


def _batch(workload: VisionWorkload, batch: int, context: Context) -> tuple[torch.Tensor, torch.Tensor]:
    """Random images (batch, channel, height, width) and labels (batch,), different on each rank."""
    generator = torch.Generator(context.device).manual_seed(SEED + context.rank)
    shape = (batch, 3, workload.image_size, workload.image_size)
    images = torch.randn(shape, device=context.device, generator=generator)
    labels = torch.randint(workload.classes, (batch,), device=context.device, generator=generator)
    layout = torch.channels_last if workload.channels_last else torch.contiguous_format
    return images.contiguous(memory_format=layout), labels


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
