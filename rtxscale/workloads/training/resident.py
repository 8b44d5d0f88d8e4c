"""Models that outlive their trials: one per kind of workload, in the keeping of its session.

Building a large model costs more than filling it anew. Callers: the workloads that train a model of rtxscale's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from rtxscale.workloads.protocol import Context


@dataclass(frozen=True, kw_only=True)
class Resident:
    """A whole, bare model; `initial` is the state it was born with, where it cannot be drawn again."""

    identity: tuple[str, ...]
    model: Any
    initial: Mapping[str, torch.Tensor] = field(default_factory=dict)


def resident(context: Context, identity: tuple[str, ...], build: Callable[[], Resident]) -> Resident:
    """The session's model of the context's kind, built where there is none of this identity."""
    kept: Resident | None = context.kept.get(context.workload.kind)
    if kept is None or kept.identity != identity:
        kept = None
        give_up(context)  # before the next one is built: both may not fit
        kept = context.kept[context.workload.kind] = build()
    return kept


def give_up(context: Context) -> None:
    """Let go of the session's model of the context's kind, if it has one."""
    context.kept.pop(context.workload.kind, None)
