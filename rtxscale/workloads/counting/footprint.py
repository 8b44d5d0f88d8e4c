"""Counts what one training step of a model keeps in memory, on a GPU that is not there: any timm model, and the UNets.

The model is built without memory, its step runs on fake tensors at two batch sizes, and the bytes alive after each
operation give a line in the batch. Seconds for a model; nothing is computed. The step is that of `workloads.vision` and
`workloads.diffusion` in eager mode. `python -m rtxscale.workloads.counting.footprint`, started by `cli.counting`: a
process of its own, since it pretends that there is a GPU.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

from rtxscale.models.counted import line_of, shipped
from rtxscale.models.footprint import Footprint, Moment, Subject, envelope
from rtxscale.models.unets import LATENT_CHANNELS, LATENT_SCALE, TIME_IDS, UNETS
from rtxscale.spec.workload import VisionWorkload
from rtxscale.workloads.counting.fake_gpu import DEVICE, fake_gpu, move_to_fake_gpu
from rtxscale.workloads.counting.live_bytes import LiveBytes
from rtxscale.workloads.counting.walked_backward import walk_backward
from rtxscale.workloads.networks.timm_models import created_model, set_checkpointing
from rtxscale.workloads.networks.unet import blocks_of, build_unet

FEW, MORE = 2, 3
"""Samples of the two steps; one sample would let shapes collapse."""
LOW_TYPE = torch.bfloat16
CLASSES = 1000
LIBRARIES = ("torch", "timm", "diffusers")

Inputs = dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Task:
    """A model that can be stepped: `inputs` of so many samples, and the loss that they give."""

    model: nn.Module
    inputs: Callable[[int], Inputs]
    loss: Callable[[nn.Module, Inputs], torch.Tensor]
    blocks: tuple[int, ...] = ()
    """Parameters of the blocks that are gathered each by itself, in order."""


def footprint_of(subject: Subject) -> Footprint:
    """The counts of one model with these settings.

    Raises:
        ValueError: the model cannot be counted, with what is in the way.
    """
    try:
        task = TASKS[subject.kind](subject)
        with fake_gpu():
            few, more = (_history(task, samples, low=subject.low) for samples in (FEW, MORE))
    except Exception as error:  # whatever a model's own code or PyTorch raises
        raise ValueError(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}") from error
    if [name for name, *_ in few] != [name for name, *_ in more]:
        raise ValueError(f"found other operations with {MORE} samples than with {FEW}; expected the same")
    parameters = list(task.model.parameters())
    with fake_gpu():
        sample = sum(tensor.nbytes for tensor in task.inputs(1).values())
    return Footprint(
        parameters=sum(parameter.numel() for parameter in parameters),
        buffers=sum(buffer.nbytes for buffer in task.model.buffers()),
        sample=sample,
        moments=envelope(_moments(few, more), sum(parameter.numel() for parameter in parameters)),
        gathered=max((sum(pair) for pair in pairwise(task.blocks)), default=0),
    )


def _moments(few: list[tuple[str, int, int]], more: list[tuple[str, int, int]]) -> Iterator[Moment]:
    """A line through the bytes after each operation."""
    for (_, fewer, gradients), (_, greater, _) in zip(few, more, strict=True):
        per_sample = (greater - fewer) // (MORE - FEW)
        yield Moment(fixed=fewer - FEW * per_sample, per_sample=per_sample, gradients=gradients)


def _history(task: Task, samples: int, *, low: bool) -> list[tuple[str, int, int]]:
    """Bytes alive after each operation of one step."""
    model = move_to_fake_gpu(task.model, channels_last=True).train()
    inputs = task.inputs(samples)
    live = LiveBytes([*model.parameters(), *model.buffers(), *inputs.values()])
    with live:
        losses = [_loss(task, model, inputs, low=low)]
        walk_backward(losses, live.keep_gradient)
    return live.history


def _loss(task: Task, model: nn.Module, inputs: Inputs, *, low: bool) -> torch.Tensor:
    with torch.autocast(DEVICE.type, dtype=LOW_TYPE, enabled=low):
        return task.loss(model, inputs)


def _vision(subject: Subject) -> Task:
    """A timm model, as `workloads.vision` trains it."""
    side = subject.image_size
    workload = VisionWorkload(kind="vision", model=subject.model, image_size=side, classes=CLASSES)
    with torch.device("meta"):
        model = created_model(workload)
    set_checkpointing(model, subject.checkpointing)

    def inputs(samples: int) -> Inputs:
        images = torch.empty(samples, 3, side, side, device=DEVICE)
        labels = torch.zeros(samples, dtype=torch.long, device=DEVICE)
        return {"images": images.contiguous(memory_format=torch.channels_last), "labels": labels}

    return Task(
        model=model,
        inputs=inputs,
        loss=lambda whole, batch: functional.cross_entropy(whole(batch["images"]), batch["labels"]),
    )


def _diffusion(subject: Subject) -> Task:
    """The UNet, as `workloads.diffusion` trains it; gathered blocks are in low precision."""
    shape, side = UNETS[subject.model], subject.image_size // LATENT_SCALE
    with torch.device("meta"):
        model = build_unet(shape)
    if subject.checkpointing:
        model.enable_gradient_checkpointing()
    blocks = blocks_of(model)
    if subject.gathered and subject.low:
        for block in blocks:
            block.to(LOW_TYPE)

    def inputs(samples: int) -> Inputs:
        sizes = {
            "latents": (samples, LATENT_CHANNELS, side, side),
            "text": (samples, *shape.text),
            "pooled": (samples, shape.pooled),
            "times": (samples, TIME_IDS),
        }
        return {name: torch.empty(size, device=DEVICE) for name, size in sizes.items()}

    sizes = tuple(sum(parameter.numel() for parameter in block.parameters()) for block in blocks)
    return Task(model=model, inputs=inputs, loss=_denoising_loss, blocks=sizes if subject.gathered else ())


def _denoising_loss(model: nn.Module, batch: Inputs) -> torch.Tensor:
    latents = batch["latents"]
    noise = torch.randn_like(latents)
    moments = torch.zeros(len(latents), dtype=torch.long, device=latents.device)
    conditions = {"text_embeds": batch["pooled"], "time_ids": batch["times"]}
    output = model(
        latents + noise,
        moments,
        encoder_hidden_states=batch["text"],
        added_cond_kwargs=conditions,
        return_dict=False,
    )[0]
    with torch.autocast(latents.device.type, enabled=False):
        return functional.mse_loss(output.float(), noise)


TASKS: dict[str, Callable[[Subject], Task]] = {"vision": _vision, "diffusion": _diffusion}


def main(arguments: Sequence[str]) -> int:
    """Print the versions of what is counted, then a line of JSON for each subject as soon as it is counted.

    Subjects are read as a JSON list, or with the word `shipped` are those that come with rtxscale, counted anew.
    """
    asked = (
        shipped().counts if list(arguments) == ["shipped"] else [Subject(**fields) for fields in json.load(sys.stdin)]
    )
    versions = {name: version(name) for name in LIBRARIES if find_spec(name)}
    print(json.dumps({"versions": versions}), flush=True)
    for subject in asked:
        found: Footprint | str
        try:
            found = footprint_of(subject)
        except ValueError as error:
            found = str(error)
        print(line_of(subject, found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
