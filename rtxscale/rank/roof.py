"""How fast a GPU multiplies matrices here and now: a roof to hold a model's FLOPs against, beside the documented peak.

Products of random matrices in the trial's precision, right after a trial has heated the card, once a session and
precision: zeros would draw less power and so run faster. Not a workload: nothing here is trained. Caller: `rank.trial`.
"""

from __future__ import annotations

import time
from dataclasses import replace

import torch

from rtxscale.rank.channel import RankReport
from rtxscale.rank.session import Session

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32}
"""Whether fp32 may use TF32 is left as the trial has set it."""
MATRIX, SECONDS, BATCH = 8192, 0.3, 10
"""Rows and columns, seconds of products, and products between two looks at the clock."""


def with_roof(report: RankReport, session: Session, precision: str | None) -> RankReport:
    """The report with the mean over all ranks, each on its own GPU at once; every rank of the session takes part.

    Unchanged without a precision, on CPUs, in a precision without such products, and where a GPU has no room for them.
    """
    if session.device.type != "cuda" or precision not in DTYPES:
        return report
    if precision not in session.roofs:
        session.tidy()
        session.roofs[precision] = _measured(session.device, DTYPES[precision])
    every = session.control.exchange(session.roofs[precision])
    known = [tflops for tflops in every if tflops is not None]
    if report.rank != 0 or len(known) < len(every):
        return report
    return replace(report, facts={**report.facts, "roof_tflops": sum(known) / len(known)})


def gemm_tflops(device: torch.device, dtype: torch.dtype, matrix: int = MATRIX, seconds: float = SECONDS) -> float:
    """Rate of products of two square matrices, TFLOP/s, counting 2 n^3 operations each; for at least so long."""
    first, second = (torch.randn(matrix, matrix, device=device, dtype=dtype) for _ in range(2))
    product = torch.empty_like(first)

    def multiply() -> None:
        for _ in range(BATCH):
            torch.mm(first, second, out=product)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    multiply()
    done, began = 0, time.perf_counter()
    while (passed_s := time.perf_counter() - began) < seconds or not done:
        multiply()
        done += BATCH
    return 2 * matrix**3 * done / passed_s / 1e12


def _measured(device: torch.device, dtype: torch.dtype) -> float | None:
    try:
        return gemm_tflops(device, dtype)
    except torch.cuda.OutOfMemoryError:
        return None
