"""The gradient buckets that DDP makes of a model, found without memory for the model and without DDP.

DDP lays its buckets out anew after the first backward pass, in the order in which gradients became ready. That pass
runs here on tensors without memory, and PyTorch's own function, which DDP calls too, divides the parameters up.
Callers: `links.collectives`, and `registry` for names of models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import timm
import torch
from torch import nn
from torch._C._distributed_c10d import _DEFAULT_FIRST_BUCKET_BYTES, _compute_bucket_assignment_by_size

from rtxscale.models.shapes import SIZES
from rtxscale.models.unets import UNETS
from rtxscale.workloads.networks.decoder import build_decoder, set_attention
from rtxscale.workloads.networks.timm_models import unknown_model
from rtxscale.workloads.networks.unet import build_unet, draw_batch, missing_library
from rtxscale.workloads.protocol import Bucket

MIB = 1024 * 1024
USUAL_MIB = 25
"""DDP's own cap, with a smaller first bucket: where none is given."""
SDXL, SDXL_PIXELS = "sdxl", 64
TOKENS = 8


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Buckets in order of reduction, and whether that order was seen in a backward pass or is that of parameters."""

    buckets: tuple[Bucket, ...]
    seen: bool


def unknown_source(name: str) -> str:
    """What is wrong with the name of a model whose buckets are asked for; empty when it can be built."""
    if name in SIZES:
        return ""
    if name == SDXL:
        return missing_library().replace("workload.kind: found diffusion", f"workload.buckets_of: found {SDXL}")
    said = unknown_model(name).replace("workload.model:", "workload.buckets_of:")
    return f"{said}, or one of {', '.join((*SIZES, SDXL))}" if said else ""


@lru_cache(maxsize=8)
def buckets_of(name: str, bucket_mib: float | None) -> Layout:
    """What DDP would make of the model from its second step on; `bucket_mib` is its cap, None for its own.

    Raises:
        RuntimeError: there is no such model, or a library of it is missing.
    """
    if wrong := unknown_source(name):
        raise RuntimeError(wrong)
    model, backward = _model(name)
    ready, seen = _in_order_of_gradients(model, backward)
    cap = int((USUAL_MIB if bucket_mib is None else bucket_mib) * MIB)
    first: int = _DEFAULT_FIRST_BUCKET_BYTES if bucket_mib is None else cap
    count = len(ready)
    places, _ = _compute_bucket_assignment_by_size(ready, [first, cap], [False] * count, list(range(count)))
    buckets = (Bucket(size_bytes=sum(ready[place].nbytes for place in some), parameters=len(some)) for some in places)
    return Layout(buckets=tuple(buckets), seen=seen)


def _model(name: str) -> tuple[nn.Module, Callable[[], Any]]:
    """The model without memory, and a backward pass through it."""
    if name == SDXL:
        return _unet()
    with torch.device("meta"):
        if name in SIZES:
            decoder = build_decoder(SIZES[name])
            set_attention(decoder, "auto")
            tokens = torch.zeros(1, TOKENS, dtype=torch.long)
            return decoder, lambda: decoder(input_ids=tokens, use_cache=False).logits.sum().backward()
        classifier: Any = timm.create_model(name)
        images = torch.zeros(2, *classifier.default_cfg["input_size"])
        return classifier, lambda: classifier(images).sum().backward()


def _unet() -> tuple[nn.Module, Callable[[], Any]]:
    with torch.device("meta"):
        unet = build_unet(UNETS[SDXL])
    drawn = draw_batch(UNETS[SDXL], 1, SDXL_PIXELS, torch.device("cpu"), seed=0)
    batch = {part: tensor.to("meta") for part, tensor in drawn.items()}

    def backward() -> None:
        conditions = {"text_embeds": batch["pooled"], "time_ids": batch["times"]}
        times = torch.zeros(1, dtype=torch.long, device="meta")
        output = unet(batch["latents"], times, batch["text"], added_cond_kwargs=conditions, return_dict=False)
        output[0].sum().backward()

    return unet, backward


def _in_order_of_gradients(model: nn.Module, backward: Callable[[], Any]) -> tuple[list[torch.Tensor], bool]:
    """Parameters in the order in which their gradients become ready; in reverse, where the pass cannot run so."""
    parameters: list[torch.Tensor] = list(model.parameters())
    ready: list[torch.Tensor] = []
    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(ready.append)  # type: ignore[no-untyped-call]  # untyped in torch
    try:
        backward()
    except (RuntimeError, NotImplementedError):
        return parameters[::-1], False  # a few models look at values on their way
    return ready, True
