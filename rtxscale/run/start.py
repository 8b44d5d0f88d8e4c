"""The right kind of session for a planned one: placement, environment and launcher put together.

Caller: `run.foreman`.
"""

from __future__ import annotations

import time

from rtxscale.devices.inventory import Inventory
from rtxscale.plan.model import Plan, PlannedSession
from rtxscale.rank.command import rank_environment
from rtxscale.run.placement import Placement, place
from rtxscale.run.session import Crew, RaySession, Session, SessionSpec
from rtxscale.run.torchrun_session import TorchrunSession


def new_session(planned: PlannedSession, plan: Plan, inventory: Inventory, crew: Crew) -> tuple[Session, Placement]:
    """A session for the planned one, not started yet; its id is new each time, for each worker group is a replicate."""
    placement = place(inventory.nodes, plan.device, planned.key.gpus, planned.key.slot)
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
    kind = TorchrunSession if planned.key.launcher == "torchrun" else RaySession
    return kind(spec, crew), placement
