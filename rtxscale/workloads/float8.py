"""FP8 training of a decoder's blocks by torchao: put in place, and what of the model then multiplies in FP8.

Inputs, weights and gradients of each matrix are scaled by their largest magnitude and rounded to FP8 anew in every
pass; weights, their gradients and the optimizer's states stay in fp32, and what is not a matrix of a block computes in
bf16. The output embedding is left out, as torchao's own recipes do. Faster than bf16 only when compiled. Callers:
`workloads.language`, and `registry` for the library that is missing.

Source: P. Micikevicius et al., FP8 formats for deep learning (2022), arXiv:2209.05433.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from rtxscale.nccl.attest import Attested, Verdict
from rtxscale.workloads.optional import lacking

LEAST_VERSION = (0, 8)
NEEDED = (
    f"torchao >= {LEAST_VERSION[0]}.{LEAST_VERSION[1]} and a GPU of compute capability >= 8.9; "
    "install it with pip install 'rtxscale[fp8]'"
)
MULTIPLE = 16
"""FP8 matrix products need dimensions that are multiples of this (cuBLASLt)."""


def missing_library() -> str:
    """What to install, in words; empty when it is there."""
    return lacking("torchao", LEAST_VERSION, "workload.precision: found fp8", NEEDED)


def multiply_in_float8(model: nn.Module, device: torch.device) -> None:
    """Have the matrices of all blocks multiply in FP8; on CPUs, which have none, rounded to FP8 and multiplied in fp32.

    Raises:
        RuntimeError: torchao is not installed.
    """
    if missing := missing_library():
        raise RuntimeError(missing)
    # Importing torchao takes seconds, which other precisions need not pay.
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    config = Float8LinearConfig(emulate=device.type != "cuda")
    convert_to_float8_training(model, module_filter_fn=_is_converted, config=config)


def _is_converted(module: nn.Module, name: str) -> bool:
    shapes = isinstance(module, nn.Linear) and module.in_features % MULTIPLE == module.out_features % MULTIPLE == 0
    return shapes and ".layers." in f".{name}"


def attest_float8(model: Any) -> Attested:
    """How many of the model's matrices multiply in FP8, counted on the model that was really built."""
    matrices = [module for module in model.modules() if isinstance(module, nn.Linear)]
    in_float8 = sum(type(module).__name__ == "Float8Linear" for module in matrices)
    return Attested(
        subject="workload.precision",
        requested="fp8",
        observed=f"{in_float8} of {len(matrices)} matrices multiply in fp8",
        verdict=Verdict.HONOURED if in_float8 else Verdict.REFUTED,
        evidence="types of the model's layers",
    )
