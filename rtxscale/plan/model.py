"""The plan as data: sessions of trials in order, what was dropped and why, and what it will cost.

Made by `plan.expand` and `plan.order`; executed by `run`; printed by `cli`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

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
    alone: str = ""
    """Trial id under `isolation: process`, else empty."""


@dataclass(frozen=True, kw_only=True)
class PlannedTrial:
    """A trial with its id and the axis values that led to it (display and analysis)."""

    trial: Trial
    trial_id: str
    axes: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class PlannedSession:
    """One worker group and its trials, in the order they run."""

    session_id: str
    key: SessionKey
    visit: int
    trials: tuple[PlannedTrial, ...]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What the plan will cost; `basis` says where the figures come from."""

    wall_s: float
    energy_wh: float | None
    basis: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A sweep made ready for one inventory."""

    sweep: Sweep
    sweep_id: str
    device: str
    threads_per_worker: int
    """CPU threads of each worker; the same in every cell, so that a 1-worker baseline is fair."""
    sessions: tuple[PlannedSession, ...]
    dropped: tuple[Dropped, ...]
    notes: tuple[str, ...] = field(default=())
    """What the user should know: collapsed axes, missing baselines, settings that do not apply."""
    estimate: Estimate

    @property
    def trials(self) -> tuple[PlannedTrial, ...]:
        """All trials, session by session."""
        return tuple(trial for session in self.sessions for trial in session.trials)
