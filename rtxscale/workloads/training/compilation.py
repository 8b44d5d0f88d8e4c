"""torch.compile between trials of one process: forget, begin a step, and say what was compiled.

Callers: the workloads that train a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from rtxscale.nccl.attest import Attested, Verdict
from rtxscale.spec.workload import CUDA_GRAPH_MODES


def forget_compiled() -> None:
    """Reset dynamo: without it a new DDP wrap silently keeps the graphs, and so the buckets, of an old one."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def compile_blocks(blocks: Sequence[nn.Module], mode: str) -> None:
    """Compile each block by itself, for its own shapes, however many kinds of blocks share their code."""
    config: Any = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, len(blocks))
    for block in blocks:
        block.compile(mode=mode, dynamic=False)


def begin_step(mode: str) -> None:
    """Tell CUDA graphs, where the mode has any, that the last pass's outputs are no longer needed."""
    if mode in CUDA_GRAPH_MODES:
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]  # untyped in torch


def attest_compile(requested: str) -> Attested:
    """Whether dynamo compiled anything, and how often it gave up in between."""
    counters = torch._dynamo.utils.counters
    graphs = counters["stats"]["unique_graphs"]
    breaks = sum(counters["graph_break"].values())
    return Attested(
        subject="workload.compile",
        requested=requested,
        observed=f"{graphs} graphs, {breaks} graph breaks",
        verdict=Verdict.HONOURED if graphs else Verdict.REFUTED,
        evidence="torch._dynamo counters",
    )
