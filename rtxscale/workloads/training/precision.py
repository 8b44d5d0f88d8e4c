"""In which precision a model computes: PyTorch's switches, autocast, and what came out of it.

Weights, gradients and optimizer states stay in fp32. Callers: the workloads that train a model.
"""

from __future__ import annotations

import torch

from rtxscale.nccl.attest import Attested, Verdict

AUTOCAST = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp8": torch.bfloat16}


def set_precision(precision: str) -> None:
    """TF32 off for fp32 only: under autocast and tf32, what is left in fp32 may use it. Shapes are fixed: benchmark."""
    torch.backends.cuda.matmul.allow_tf32 = precision != "fp32"
    torch.backends.cudnn.allow_tf32 = precision != "fp32"
    torch.backends.cudnn.benchmark = True


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """The autocast region of a forward pass; without effect for fp32 and tf32."""
    dtype = AUTOCAST.get(precision)
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)


def attest_precision(requested: str, output: torch.dtype | None, device: torch.device) -> Attested:
    """Compare the precision asked for with the model output's element type and the TF32 switches."""
    tf32 = torch.backends.cuda.matmul.allow_tf32 and torch.backends.cudnn.allow_tf32
    full = "tf32" if tf32 and device.type == "cuda" else "fp32"
    observed = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: full}.get(output) if output else None
    if requested == "tf32" and device.type != "cuda":
        verdict = Verdict.NOT_APPLICABLE
    elif observed is None:
        verdict = Verdict.NOT_ATTESTED
    else:
        verdict = Verdict.HONOURED if observed == requested else Verdict.REFUTED
    return Attested(
        subject="workload.precision",
        requested=requested,
        observed=observed,
        verdict=verdict,
        evidence="element type of the model's output; TF32 switches, which exist on GPUs only",
    )
