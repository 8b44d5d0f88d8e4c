"""The telemetry actors: one on every node, pinned there, holding no CPU, named so that the dashboard shows them.

`Watcher` runs inside the actor: it samples through `telemetry.sampler`, sets the gauges, looks after our processes on
its node and sees who else is on its GPUs. `Watchers` is the driver's side of all of them. Callers: `run.sweep`,
`run.session`, `run.foreman`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from rtxscale.devices.inventory import Inventory, Node
from rtxscale.errors import RunError
from rtxscale.results.schema import arrow_schema
from rtxscale.run.occupancy import Guard, Occupancy, joined
from rtxscale.run.processes import is_alive, kill
from rtxscale.run.ray_setup import ray
from rtxscale.telemetry.facts import describe_node, host_environment
from rtxscale.telemetry.holders import GpuHolders
from rtxscale.telemetry.probe import open_probe
from rtxscale.telemetry.sampler import Sampler

PERIOD_S = 0.1
GAUGE_PERIOD_S = 1.0
ANSWER_TIMEOUT_S = 30.0
GONE_TIMEOUT_S = 10.0
PATIENCE_S = 1.0
GAUGES = {
    "power_w": ("rtxscale_gpu_power_watts", "GPU power draw in watts"),
    "temperature_c": ("rtxscale_gpu_temperature_celsius", "GPU core temperature in degrees Celsius"),
    "sm_clock_mhz": ("rtxscale_gpu_sm_clock_mhz", "SM clock in MHz"),
    "utilisation": ("rtxscale_utilisation_ratio", "busy share of the GPU or of the host's CPUs"),
    "memory_used_mib": ("rtxscale_memory_used_mib", "used memory of the GPU or host in MiB"),
}
GAUGE_TAGS = ("node", "gpu", "sweep", "session")


class Watcher:
    """Runs inside its actor on one node."""

    def __init__(self, node: str, sweep: str) -> None:
        """Start sampling at once."""
        self._node, self._sweep, self._session = node, sweep, ""
        self._sampler = Sampler(open_probe(), node, PERIOD_S)
        self._sampler.start()
        self._gauges = {field: _gauge(*text) for field, text in GAUGES.items()}
        self._guard = Guard(GpuHolders(), node)
        threading.Thread(target=self._set_gauges_for_ever, daemon=True).start()

    def facts(self) -> tuple[Node, tuple[str, ...], list[dict[str, str]]]:
        """The node as data, what the user should know about it, and what should be recorded of its host."""
        node, notes = describe_node(self._node)
        return node, notes, host_environment()

    def drain(self) -> pa.Table:
        """Samples since the last call."""
        return self._sampler.drain()

    def latest(self) -> dict[str, Any]:
        """The newest readings."""
        return self._sampler.latest()

    def set_session(self, session_id: str, ranks: list[int]) -> None:
        """Tag the gauges with the session that is running; `ranks` are the process ids of its ranks on this node."""
        self._session = session_id
        self._guard.expect(ranks)

    def occupancy(self) -> Occupancy:
        """Who is on this node's GPUs, and who has been since the last call."""
        return self._guard.occupancy()

    def end_processes(self, pids: list[int], timeout_s: float) -> list[int]:
        """Wait until these processes of ours are gone, kill them after a second; returns those still alive."""
        began = time.monotonic()
        killed = False
        while left := [pid for pid in pids if is_alive(pid)]:
            waited = time.monotonic() - began
            if waited > timeout_s:
                return left
            if waited > PATIENCE_S and not killed:
                killed = True
                kill(left)
            time.sleep(0.02)
        return []

    def _set_gauges_for_ever(self) -> None:
        while True:
            self._guard.look()
            for gpu, readings in by_device(self._sampler.latest()).items():
                tags = {"node": self._node, "gpu": gpu, "sweep": self._sweep, "session": self._session}
                for field, gauge in self._gauges.items():
                    if readings.get(field) is not None:
                        gauge.set(float(readings[field]), tags)
            time.sleep(GAUGE_PERIOD_S)


@dataclass(frozen=True, kw_only=True)
class _Post:
    """One watched node: our name for it, Ray's id, and its actor."""

    name: str
    ray_id: str
    cpus: int
    gpus: int
    actor: Any


class Watchers:
    """All telemetry actors of the cluster."""

    def __init__(self, posts: Sequence[_Post]) -> None:
        """Made by `start`."""
        self._posts = list(posts)

    @classmethod
    def start(cls, *, run_id: str, sweep: str) -> Watchers:
        """One actor on every node that is alive; the head comes first and is called node0."""
        posts = []
        for place, node in enumerate(_alive_nodes()):
            name = f"node{place}"
            actor = (
                ray.remote(Watcher)
                .options(
                    name=f"rtxscale-telemetry-{run_id}-{name}",
                    num_cpus=0,
                    max_concurrency=4,
                    scheduling_strategy=_pinned(node["NodeID"]),
                )
                .remote(name, sweep)
            )
            cpus, gpus = (int(node["Resources"].get(kind, 0)) for kind in ("CPU", "GPU"))
            posts.append(_Post(name=name, ray_id=node["NodeID"], cpus=cpus, gpus=gpus, actor=actor))
        return cls(posts)

    def inventory(self) -> tuple[Inventory, dict[str, list[dict[str, str]]]]:
        """The cluster's nodes, with no more CPUs and GPUs than Ray may use, and what to record of each host."""
        answers = self._ask(lambda post: post.actor.facts.remote())
        nodes = tuple(
            replace(node, cpus=min(node.cpus, post.cpus), gpus=node.gpus[: post.gpus])
            for post, (node, _, _) in zip(self._posts, answers, strict=True)
        )
        hosts = {post.name: host for post, (_, _, host) in zip(self._posts, answers, strict=True)}
        notes = tuple(dict.fromkeys(note for _, of_node, _ in answers for note in of_node))
        return Inventory(nodes=nodes, notes=notes), hosts

    def ray_id(self, name: str) -> str:
        """Ray's id of a node."""
        return next(post.ray_id for post in self._posts if post.name == name)

    def name_of(self, ray_id: str) -> str:
        """Our name of a node."""
        return next((post.name for post in self._posts if post.ray_id == ray_id), ray_id)

    def drain(self) -> pa.Table:
        """Samples of all nodes since the last call."""
        tables = self._ask(lambda post: post.actor.drain.remote())
        return pa.concat_tables([arrow_schema("telemetry").empty_table(), *tables])

    def readings(self) -> dict[str, float]:
        """Power and temperature now, over all nodes."""
        return combined(self._ask(lambda post: post.actor.latest.remote()))

    def set_session(self, session_id: str, ranks: Iterable[tuple[str, int]]) -> None:
        """Tag the gauges of all nodes; `ranks` are the session's processes as (Ray node id, pid)."""
        mine = _by_node(ranks)
        self._ask(lambda post: post.actor.set_session.remote(session_id, mine.get(post.ray_id, [])))

    def occupancy(self) -> Occupancy:
        """Who is on the GPUs of all nodes, and who has been since the last call."""
        return joined(self._ask(lambda post: post.actor.occupancy.remote()))

    def end_processes(self, processes: Iterable[tuple[str, int]]) -> None:
        """See that these processes, given as (Ray node id, pid), are gone.

        Raises:
            RunError: one survives.
        """
        mine = _by_node(processes)
        answers = self._ask(lambda post: post.actor.end_processes.remote(mine.get(post.ray_id, []), GONE_TIMEOUT_S))
        left = {post.name: pids for post, pids in zip(self._posts, answers, strict=True) if pids}
        if left:
            raise RunError(
                f"found worker processes {left} alive after being killed; expected them gone: end them by hand"
            )

    def stop(self) -> None:
        """End the actors."""
        for post in self._posts:
            ray.kill(post.actor)

    def _ask(self, question: Any) -> list[Any]:
        """Every actor's answer, in order.

        Raises:
            RunError: a node or its actor is lost.
        """
        try:
            return list(ray.get([question(post) for post in self._posts], timeout=ANSWER_TIMEOUT_S))
        except (
            ray.exceptions.RayActorError,
            ray.exceptions.GetTimeoutError,
            ray.exceptions.ActorUnschedulableError,
        ) as error:
            raise RunError(
                f"lost a telemetry actor ({type(error).__name__}); expected one alive on each of "
                f"{len(self._posts)} nodes: run the sweep again, it continues where it stopped"
            ) from error


def _by_node(processes: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Process ids by Ray node id."""
    found: dict[str, list[int]] = {}
    for ray_id, pid in processes:
        found.setdefault(ray_id, []).append(pid)
    return found


def by_device(latest: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Newest readings of `Sampler.latest` by GPU UUID; the host's are under the empty name."""
    readings: dict[str, Mapping[str, Any]] = dict(latest.get("gpus") or {})
    if latest.get("host"):
        readings[""] = latest["host"]
    return readings


def combined(answers: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Power of all GPUs together and temperature of the hottest, over nodes; without a reading no key.

    >>> combined([{"power_w": 100.0, "temperature_max_c": 50.0}, {"power_w": 20.0, "temperature_max_c": None}])
    {'power_w': 120.0, 'temperature_c': 50.0}
    """
    answers = list(answers)
    powers = [answer["power_w"] for answer in answers if answer.get("power_w") is not None]
    temperatures = [answer["temperature_max_c"] for answer in answers if answer.get("temperature_max_c") is not None]
    readings = {"power_w": sum(powers)} if powers else {}
    return readings | ({"temperature_c": max(temperatures)} if temperatures else {})


def _alive_nodes() -> list[dict[str, Any]]:
    """Ray's nodes that are alive, the head first."""
    nodes: Any = ray.nodes  # without types
    alive = [node for node in nodes() if node["Alive"]]
    return sorted(
        alive,
        key=lambda node: (
            "node:__internal_head__" not in node["Resources"],
            node["NodeManagerAddress"],
            node["NodeID"],
        ),
    )


def _pinned(ray_id: str) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(ray_id, soft=False)


def _gauge(name: str, description: str) -> Any:
    from ray.util.metrics import Gauge

    return Gauge(name, description=description, tag_keys=GAUGE_TAGS)
