"""QLoRA's frozen base: the matrices of a decoder's blocks kept in four bits by bitsandbytes.

NF4 in blocks of 64 weights, whose scales are quantised once more; multiplied in the precision of the workload. A model
never lies whole on the device: each matrix is quantised as soon as it is drawn. Not the adapters. Callers:
`networks.adapters`, `networks.decoder`, and `registry` for the library that is missing.

Source: Dettmers et al., QLoRA (2023), arXiv:2305.14314, section 3.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from rtxscale.workloads.optional import lacking

LEAST_VERSION = (0, 46)
NEEDED = (
    f"bitsandbytes >= {LEAST_VERSION[0]}.{LEAST_VERSION[1]} and, of a GPU, a compute capability >= 7.5; "
    "install it with pip install 'rtxscale[finetune]'"
)
KIND = "nf4"


def missing_library() -> str:
    """What to install, in words; empty when it is there."""
    return lacking("bitsandbytes", LEAST_VERSION, "workload.tuning: found qlora", NEEDED)


def make_places(model: Any, dtype: torch.dtype) -> None:
    """Put a quantised layer without weights in the place of each matrix of the blocks; on the meta device.

    Raises:
        RuntimeError: bitsandbytes is not installed.
    """
    if missing := missing_library():
        raise RuntimeError(missing)
    from bitsandbytes.nn import Linear4bit

    for block in model.model.layers:
        for parent in (block.self_attn, block.mlp):
            for name, layer in list(parent.named_children()):
                if isinstance(layer, nn.Linear):
                    biased = layer.bias is not None
                    place = Linear4bit(
                        layer.in_features, layer.out_features, bias=biased, compute_dtype=dtype, quant_type=KIND
                    )
                    place.weight = nn.Parameter(torch.empty(0, dtype=dtype), requires_grad=False)
                    setattr(parent, name, place.requires_grad_(False))


def matrices_in_blocks(model: Any) -> int:
    """How many matrices lie in the blocks' attention and feed-forward parts, in four bits or not."""
    inner = getattr(model, "module", model).model
    parts = (part for block in inner.layers for part in (block.self_attn, block.mlp))
    return sum(_is_matrix(layer) for part in parts for layer in part.children())


def _is_matrix(layer: nn.Module) -> bool:
    """A linear layer, or one with an adapter beside it."""
    return isinstance(getattr(layer, "base_layer", layer), nn.Linear)


def is_place(layer: nn.Module) -> bool:
    """Whether a layer keeps its weights in four bits."""
    return type(layer).__name__ == "Linear4bit"


def quantise(layer: Any, whole: torch.Tensor) -> None:
    """Give a place its weights (outputs, inputs), rounded to four bits."""
    from bitsandbytes.nn import Params4bit

    weight = Params4bit(
        whole.to(layer.compute_dtype),
        requires_grad=False,
        quant_type=KIND,
        compress_statistics=True,
        module=layer,
    )
    layer.weight = weight.to(whole.device)  # this is what quantises it
