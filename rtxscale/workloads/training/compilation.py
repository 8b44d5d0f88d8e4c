"""torch.compile between trials of one process: forget, begin a step, and say what was compiled.

Callers: the workloads that train a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch._inductor.config
import torch.compiler.config
from torch import nn

from rtxscale.nccl.attest import Attested, Verdict
from rtxscale.spec.workload import CUDA_GRAPH_MODES

CACHE_TAG: str | None = getattr(torch.compiler.config, "cache_key_tag", None)
"""The user's own, of `TORCH_COMPILE_CACHE_KEY_TAG`; None where PyTorch knows no such tag yet."""


def forget_compiled() -> None:
    """Reset dynamo: without it a new DDP wrap silently keeps the graphs, and so the buckets, of an old one."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def tell_caches(setting: str) -> None:
    """Keep graphs that were compiled under another such setting from being taken off the disk.

    The keys of Inductor's caches leave out which attention kernels are allowed, though graphs hold the one chosen.
    """
    if CACHE_TAG is None:
        torch._inductor.config.force_disable_caches = True
    else:
        torch.compiler.config.cache_key_tag = f"{CACHE_TAG} {setting}".strip()


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
