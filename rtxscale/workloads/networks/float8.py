"""FP8 training of a decoder's blocks: put in place by one of two libraries, and what of the model multiplies in FP8.

Inputs, weights and gradients of each matrix are scaled by their largest magnitude and rounded to FP8 anew in every
pass; weights, their gradients and the optimizer's states stay in fp32, and what is not a matrix of a block computes in
bf16. The output embedding is left out, as torchao's own recipes do. torchao is faster than bf16 only when compiled.
Callers: `networks.language_model`, `workloads.language`, and `registry` for the library that is missing.

Source: P. Micikevicius et al., FP8 formats for deep learning (2022), arXiv:2209.05433.
"""

from __future__ import annotations

import importlib.util
from importlib import metadata
from typing import Any

import torch
from torch import nn

from rtxscale.nccl.attest import Attested, Verdict
from rtxscale.workloads.optional import lacking

LEAST_VERSIONS = {"torchao": (0, 8), "transformer_engine": (2, 5)}
INSTALLED_BY = {
    "torchao": "install it with pip install 'rtxscale[fp8]'",
    "transformer_engine": "install it with pip install --no-build-isolation 'transformer_engine[pytorch]', or use "
    "fp8_library torchao",
}
MULTIPLE = 16
"""FP8 matrix products need dimensions that are multiples of this (cuBLASLt)."""


def missing_library(library: str) -> str:
    """What to install, in words; empty when it is there."""
    least = LEAST_VERSIONS[library]
    needed = f"{library} >= {least[0]}.{least[1]} and a GPU of compute capability >= 8.9; {INSTALLED_BY[library]}"
    asked = f"workload.precision: found fp8 by {library}"
    found = lacking(library, least, asked, needed)
    if found or library == "torchao" or importlib.util.find_spec("transformer_engine_torch"):
        return found
    return f"{asked} without its part for PyTorch; needs {needed}"


def multiply_in_float8(model: nn.Module, device: torch.device, library: str) -> None:
    """Have the matrices of all blocks multiply in FP8; on CPUs torchao rounds to FP8 and multiplies in fp32.

    Raises:
        RuntimeError: the library is not installed.
    """
    if missing := missing_library(library):
        raise RuntimeError(missing)
    {"torchao": _by_torchao, "transformer_engine": _by_transformer_engine}[library](model, device)


def _by_torchao(model: nn.Module, device: torch.device) -> None:
    # Importing torchao takes seconds, which other precisions need not pay.
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    config = Float8LinearConfig(emulate=device.type != "cuda")
    convert_to_float8_training(model, module_filter_fn=_is_converted, config=config)


def _by_transformer_engine(model: Any, device: torch.device) -> None:
    """Its own linear layers in the place of PyTorch's; the parts of a block enter autocast, also when recomputed."""
    import transformer_engine.pytorch as te
    from transformer_engine.common.recipe import Float8CurrentScaling

    for name, layer in list(model.named_modules()):
        if _is_converted(layer, name):
            where, _, own = name.rpartition(".")
            made = te.Linear(
                layer.in_features,
                layer.out_features,
                bias=layer.bias is not None,
                params_dtype=torch.float32,
                device=layer.weight.device.type,
            )
            setattr(model.get_submodule(where), own, made)
    recipe = Float8CurrentScaling()
    for block in model.model.layers:
        for part in (block.self_attn, block.mlp):
            part.forward = _inside_autocast(te, recipe, part.forward)


def _inside_autocast(te: Any, recipe: Any, forward: Any) -> Any:
    """The forward pass inside Transformer Engine's autocast, by the name that this version has for it."""

    def entered(*inputs: Any, **named: Any) -> Any:
        renamed = hasattr(te, "autocast")
        with te.autocast(recipe=recipe) if renamed else te.fp8_autocast(fp8_recipe=recipe):
            return forward(*inputs, **named)

    return entered


def _is_converted(module: nn.Module, name: str) -> bool:
    shapes = isinstance(module, nn.Linear) and module.in_features % MULTIPLE == module.out_features % MULTIPLE == 0
    return shapes and ".layers." in f".{name}"


def attest_float8(model: Any, library: str) -> Attested:
    """How many of the model's matrices multiply in FP8, counted on the model that was really built."""
    matrices = [module for module in model.modules() if isinstance(module, nn.Linear) or _is_engines(module)]
    in_float8 = sum(_is_engines(module) or type(module).__name__ == "Float8Linear" for module in matrices)
    by = f" by {library} {metadata.version(library)}" if in_float8 else ""
    return Attested(
        subject="workload.precision",
        requested="fp8",
        observed=f"{in_float8} of {len(matrices)} matrices multiply in fp8{by}",
        verdict=Verdict.HONOURED if in_float8 else Verdict.REFUTED,
        evidence="types of the model's layers",
    )


def _is_engines(module: nn.Module) -> bool:
    """Whether a layer is Transformer Engine's linear one."""
    kind = type(module)
    return kind.__name__ == "Linear" and kind.__module__.startswith("transformer_engine.")
