"""The actors that all sessions of a sweep share: the hub, the telemetry actors, and the warm host.

Callers: `run.sweep` makes them and ends them, `run.foreman` and the sessions use them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rtxscale.errors import PlanError
from rtxscale.plan.model import Plan
from rtxscale.run.cluster import hub_name
from rtxscale.run.host import Host
from rtxscale.run.hub import Hub
from rtxscale.run.nodes import beside_driver
from rtxscale.run.ray_setup import TRAIN_ENVIRONMENT, ray
from rtxscale.run.watchers import Watchers
from rtxscale.spec.sweep import Sweep
from rtxscale.spec.workload import SimulatedWorkload
from rtxscale.telemetry.meters import open_meter
from rtxscale.telemetry.wall_meter import WallMeter


@dataclass(kw_only=True)
class Crew:
    """What all sessions of a sweep share: the hub, the watchers, scratch space, and the warm host, if one is alive.

    `directory` is the sweep file's, for workloads that are scripts; empty where that is not known.
    """

    hub: Any
    watchers: Watchers
    scratch: Path
    host: Any = field(default=None)
    directory: str = ""

    def warm_host(self) -> Any:
        """The warm host; a new one where there is none."""
        if self.host is None:
            self.host = (
                ray.remote(Host)
                .options(
                    num_cpus=0,
                    max_restarts=0,
                    max_task_retries=0,
                    scheduling_strategy=beside_driver(),
                    runtime_env={"env_vars": dict(TRAIN_ENVIRONMENT)},
                )
                .remote()
            )
            self.host.warm.remote()
        return self.host

    def dismiss(self) -> None:
        """End every actor of the sweep; ranks are gone already."""
        self.kill_host()
        self.watchers.stop()
        ray.kill(self.hub)

    def kill_host(self) -> None:
        """End the host, and with it the session it has."""
        if self.host is not None:
            ray.kill(self.host)
            self.host = None


def crew_of(sweep: Sweep, directory: Path | None, *, run_id: str, scratch: Path) -> Crew:
    """The actors of a sweep; the host of sessions warms up while the cluster is looked at.

    Raises:
        BadInput: the power meter that the sweep names cannot be.
        RunError: it cannot be read.
    """
    meter = meter_of(sweep, directory)
    placed = {"num_cpus": 0, "scheduling_strategy": beside_driver()}
    hub = ray.remote(Hub).options(name=hub_name(run_id), max_concurrency=1000, **placed).remote()
    watchers = Watchers.start(run_id=run_id, sweep=sweep.name)
    watchers.meter = meter
    place = "" if directory is None else str(directory.absolute())
    crew = Crew(hub=hub, watchers=watchers, scratch=scratch, directory=place)
    if sweep.launcher == "ray" and not isinstance(sweep.workload, SimulatedWorkload):
        crew.warm_host()
    return crew


def meter_of(sweep: Sweep, directory: Path | None) -> WallMeter | None:
    """The power meter at the wall that the sweep names, polling; None where it names none.

    Raises:
        BadInput: what it names cannot be.
        RunError: it cannot be read.
    """
    wanted = sweep.wall_power
    if wanted is None:
        return None
    meter = WallMeter(open_meter(wanted, directory or Path.cwd()), wanted.period_s)
    meter.start()
    return meter


def check_workloads(plan: Plan, crew: Crew) -> None:
    """Ask the host, which has the libraries, whether every workload can be built; a simulated one needs nothing.

    Raises:
        PlanError: one cannot, such as a model that does not exist.
    """
    workloads = tuple(dict.fromkeys(planned.trial.cell.workload for planned in plan.trials))
    if isinstance(plan.sweep.workload, SimulatedWorkload):
        return
    if wrong := ray.get(crew.warm_host().complaints.remote(workloads, crew.directory)):
        raise PlanError("; ".join(wrong))
