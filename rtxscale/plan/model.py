"""The plan as data: sessions of trials in order, what was dropped and why, and what it will cost.

Made by `plan.expand` and `plan.order`; executed by `run`; printed by `cli`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rtxscale.devices.inventory import Inventory
from rtxscale.models.counted import Catalogue, shipped
from rtxscale.spec.cell import Trial
from rtxscale.spec.sweep import Sweep


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """A point of the grid that will not run: its axis values, the rule that dropped it and the reason in words."""

    axes: dict[str, Any]
    rule: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class SessionKey:
    """What only a new process can change; trials with equal keys share a warm session."""

    gpus: int
    slot: int
    launcher: str
    workload: tuple[str, ...]
    p2p: str
    compile: str
    layout: str = ""
    """Nodes, workers on each and placement, where a sweep says so; else empty."""
    alone: str = ""
    """Trial id under `isolation: process`, else empty."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a session's workers run.

    `nodes` names the node of each worker, by rank; `gpu_uuids` their GPUs, node by node in PCI bus order (empty on
    CPU); `visible` is `CUDA_VISIBLE_DEVICES` for all of them, None on CPU. `link_class` is one of
    `spec.cell.LINK_CLASSES`, by the worst pair of GPUs; None for one worker, or where it is not known.
    """

    nodes: tuple[str, ...]
    gpu_uuids: tuple[str, ...] = ()
    visible: str | None = None
    link_class: str | None = None

    @property
    def world(self) -> int:
        """Number of workers."""
        return len(self.nodes)

    @property
    def distinct_nodes(self) -> tuple[str, ...]:
        """Nodes used, each once, in order."""
        return tuple(dict.fromkeys(self.nodes))


@dataclass(frozen=True, kw_only=True)
class PlannedTrial:
    """A trial with its id and the axis values that led to it (display and analysis)."""

    trial: Trial
    trial_id: str
    axes: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class PlannedSession:
    """One worker group, where its workers run on this machine, and its trials, in the order they run."""

    session_id: str
    key: SessionKey
    placement: Placement = field(compare=False)
    visit: int
    trials: tuple[PlannedTrial, ...]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What the plan will cost; `basis` says where the figures come from.

    `in_budget` is how many trials begin within the sweep's `max_hours`, if it has any, in a run that begins now.
    """

    wall_s: float
    energy_wh: float | None
    basis: str
    in_budget: int | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A sweep made ready for one inventory.

    `pool` are the nodes of it that are used: in a mixed cluster those whose GPUs match.
    """

    sweep: Sweep
    sweep_id: str
    pool: Inventory
    device: str
    threads_per_worker: int
    """CPU threads of each worker; the same in every cell, so that a 1-worker baseline is fair."""
    sessions: tuple[PlannedSession, ...]
    dropped: tuple[Dropped, ...]
    notes: tuple[str, ...] = field(default=())
    """What the user should know: collapsed axes, missing baselines, settings that do not apply."""
    estimate: Estimate
    catalogue: Catalogue = field(default_factory=shipped, compare=False, repr=False)
    """What is known of the memory that its workloads need."""

    @property
    def trials(self) -> tuple[PlannedTrial, ...]:
        """All trials, session by session."""
        return tuple(trial for session in self.sessions for trial in session.trials)
