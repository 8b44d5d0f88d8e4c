"""The right kind of session for a planned one: its place, environment and launcher put together.

Caller: `run.foreman`.
"""

from __future__ import annotations

import time

from rtxscale.plan.model import Plan, PlannedSession
from rtxscale.rank.command import rank_environment
from rtxscale.run.crew import Crew
from rtxscale.run.session import RaySession, Session, SessionSpec
from rtxscale.run.simulated_session import SimulatedSession
from rtxscale.run.torchrun_session import TorchrunSession
from rtxscale.spec.workload import SimulatedWorkload


def new_session(planned: PlannedSession, plan: Plan, crew: Crew) -> Session:
    """A session for the planned one, not started yet; its id is new each time, for each worker group is a replicate."""
    placement = planned.placement
    environment = {
        **rank_environment(planned.trials[0].trial.cell, plan.device, crew.directory),
        "OMP_NUM_THREADS": str(plan.threads_per_worker),
    }
    if placement.visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = placement.visible
    spec = SessionSpec(
        session_id=f"{planned.session_id}-{time.time_ns() // 1_000_000:x}",
        placement=placement,
        device=plan.device,
        threads=plan.threads_per_worker,
        environment=environment,
    )
    if isinstance(planned.trials[0].trial.cell.workload, SimulatedWorkload):
        return SimulatedSession(spec, crew)
    kind = TorchrunSession if planned.key.launcher == "torchrun" else RaySession
    return kind(spec, crew)
