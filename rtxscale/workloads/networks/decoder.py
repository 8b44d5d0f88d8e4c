"""Decoder language models of transformers, from a shape alone: nothing is downloaded, weights are random.

Models are built without memory, spread if asked, and only then filled, so that a model larger than one GPU is never
whole on one. The same seed gives the same weights however they are spread. Caller: `workloads.language`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from rtxscale.models.shapes import DecoderShape
from rtxscale.workloads.networks import quantisation
from rtxscale.workloads.networks.adapters import first_adapter_values, is_adapter
from rtxscale.workloads.networks.attention import CAUSAL, FLASH_2, REPEATED_HEADS, repeated_heads
from rtxscale.workloads.training.parallel import assign

SEED = 1234
SPREAD = 0.02
"""Standard deviation of new weights, as in Llama's configuration (`initializer_range`)."""


def build_decoder(shape: DecoderShape) -> Any:
    """A transformers LlamaForCausalLM of this shape; on the meta device inside `torch.device("meta")`.

    Its rotary positions know no longest context.
    """
    # Importing transformers takes seconds, which sessions of other workloads need not pay.
    from transformers import LlamaConfig, LlamaForCausalLM

    register_attention()
    config = LlamaConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
    )
    return LlamaForCausalLM(config)


def materialise(model: Any, device: torch.device) -> None:
    """Give a model built without memory its place on the device, still without values; a sharded one its shards."""
    model.to_empty(device=device)
    model.tie_weights()  # a tensor that is shared has become one for each place
    rotary = model.model.rotary_emb
    # Its frequencies are computed when it is built, which on the meta device leaves nothing.
    with torch.device(device):
        model.model.rotary_emb = type(rotary)(config=model.config)


class Given(Protocol):
    """Weights that a model begins with."""

    def whole(self, name: str, device: torch.device) -> torch.Tensor:
        """The tensor of a parameter in fp32."""


@torch.no_grad()
def fill(model: nn.Module, device: torch.device, *, seed: int = 0, given: Given | None = None) -> None:
    """Give all weights their first values anew: those that are given, else drawn from `SEED` and `seed`.

    Drawn matrices are normal, norms one, biases zero. One whole matrix at a time is on the device. Adapters are drawn
    after everything else, so that the model below them is the one that is trained without them.
    """
    generator = torch.Generator(device).manual_seed(SEED + seed)
    for name, layer, parameter in sorted(_weights(model), key=lambda weight: is_adapter(weight[0])):
        if is_adapter(name):
            assign(parameter, first_adapter_values(name, parameter.shape, generator))
            continue
        shape = (layer.out_features, layer.in_features) if parameter is None else tuple(parameter.shape)
        whole = _drawn(name, shape, generator) if given is None else given.whole(name, device)
        if parameter is None:
            quantisation.quantise(layer, whole)
        else:
            assign(parameter, whole)


def _drawn(name: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    whole = torch.full(shape, 0.0 if name.endswith("bias") else 1.0, device=generator.device)
    return whole.normal_(0.0, SPREAD, generator=generator) if len(shape) > 1 else whole


def _weights(model: nn.Module) -> Iterator[tuple[str, Any, Any]]:
    """Name, layer and parameter of every weight, once, in the order of `named_parameters`.

    Weights in four bits, which are made anew, have no parameter.
    """
    seen = set()
    for prefix, layer in model.named_modules():
        for name, parameter in layer.named_parameters(recurse=False):
            if quantisation.is_place(layer) and name == "weight":
                yield f"{prefix}.{name}", layer, None
            elif parameter not in seen:
                seen.add(parameter)
                yield f"{prefix}.{name}", layer, parameter


def set_checkpointing(model: Any, wanted: bool) -> None:
    """Recompute each block in backward, or not."""
    for block in model.model.layers:
        block.gradient_checkpointing = wanted
        block._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False)


def register_attention() -> None:
    """Tell transformers of attention without masks, by names that only `set_attention` uses.

    Where a name has a mask function, transformers asks the device in each forward pass whether sequences are packed,
    which the host waits for, and when compiled builds a mask, which the flash kernel cannot take.
    """
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    AttentionInterface.register(CAUSAL, sdpa_attention_forward)
    AttentionInterface.register(REPEATED_HEADS, repeated_heads)


def set_attention(model: Any, kernel: str) -> None:
    """Have transformers call attention in the form that the kernel can take."""
    model.config._attn_implementation = {"efficient": REPEATED_HEADS, FLASH_2: FLASH_2}.get(kernel, CAUSAL)
