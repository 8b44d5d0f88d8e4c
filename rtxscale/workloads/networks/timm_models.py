"""Image models of timm: which names it has, and the session's model in the state that every trial begins from.

Nothing is downloaded, weights are random. Callers: `workloads.vision`, `workloads.counting.footprint`, and `registry`
for what timm does not have.
"""

from __future__ import annotations

import difflib
from typing import Any

import timm
import torch
from torch import nn

from rtxscale.spec.workload import VisionWorkload
from rtxscale.workloads.protocol import Context
from rtxscale.workloads.training.resident import Resident, resident

SEED = 1234


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


def cannot_checkpoint(name: str) -> str:
    """What is wrong with checkpointing a timm model of this name; empty when it can be, or when that is not known."""
    try:
        with torch.device("meta"):
            set_checkpointing(timm.create_model(name), True)
    except (AssertionError, AttributeError):
        return f"workload.checkpointing: found on, which timm {timm.__version__} does not have for {name}; expected off"
    except RuntimeError:
        return ""  # some models cannot be built without memory
    return ""


def restored_model(workload: VisionWorkload, context: Context) -> nn.Module:
    """The session's model in its initial state, in the memory format and with the checkpointing asked for."""
    model: nn.Module = resident(context, workload.identity, lambda: _build(workload, context.device)).model
    layout = torch.channels_last if workload.channels_last else torch.contiguous_format
    model.to(memory_format=layout)
    set_checkpointing(model, workload.checkpointing == "on")
    model.zero_grad(set_to_none=True)
    restore(model, workload, context)
    return model.train()


@torch.no_grad()
def restore(model: nn.Module, workload: VisionWorkload, context: Context) -> None:
    """Give the session's model its first weights, of the context's seed, and buffers anew."""
    kept = resident(context, workload.identity, lambda: _build(workload, context.device))
    initial = kept.initial if context.seed == 0 else _drawn(workload, SEED + context.seed).state_dict()
    for name, tensor in model.state_dict().items():
        tensor.copy_(initial[name])


def set_checkpointing(model: Any, wanted: bool) -> None:
    """Tell a timm model; one that does not know of it recomputes nothing."""
    if wanted or hasattr(model, "set_grad_checkpointing"):
        model.set_grad_checkpointing(wanted)


def created_model(workload: VisionWorkload) -> nn.Module:
    """A new model for the workload's images and classes; on the meta device inside `torch.device("meta")`."""
    options: dict[str, Any] = {"num_classes": workload.classes}
    try:
        model: nn.Module = timm.create_model(workload.model, img_size=workload.image_size, **options)
    except TypeError as error:
        # Convolutional models take any image size and do not know the argument.
        if "img_size" not in str(error):
            raise
        model = timm.create_model(workload.model, **options)
    return model


def _build(workload: VisionWorkload, device: torch.device) -> Resident:
    """A new model on the device, with the weights that every trial begins from."""
    model = _drawn(workload, SEED).to(device)
    initial = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    return Resident(identity=workload.identity, model=model, initial=initial)


def _drawn(workload: VisionWorkload, seed: int) -> nn.Module:
    """A new model with this seed's weights, in the host's memory."""
    torch.manual_seed(seed)
    return created_model(workload)
