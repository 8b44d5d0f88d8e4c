"""Ray's nodes: which are alive, how something is pinned to one, and how far its clock is from ours.

Callers: `run.watchers`, `run.examination`, `run.sweep`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rtxscale.run.ray_setup import ray
from rtxscale.telemetry.clock_offset import SAME_CLOCK, ClockOffset, Exchange, clock_offset, running_kernel

EXCHANGES = 10
EXCHANGE_TIMEOUT_S = 5.0
JOIN_S = 60.0
"""How long nodes may take to join: after a head node was started anew they come one after the other."""
LOOK_S = 0.5


def alive_nodes() -> list[dict[str, Any]]:
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


def await_nodes(wanted: int, say: Callable[[str], None], limit_s: float = JOIN_S) -> None:
    """Wait until so many nodes are alive, but not longer than that; `say` is told what is waited for."""
    deadline, said = time.monotonic() + limit_s, False
    while (there := len(alive_nodes())) < wanted and time.monotonic() < deadline:
        if not said:
            said = True
            say(f"waiting up to {limit_s:.0f} s: this run began on {wanted} nodes, {there} of them in the cluster")
        time.sleep(LOOK_S)


def beside_driver() -> Any:
    """Where what a sweep cannot do without runs: on the driver's own node, so that no other can take it along."""
    return pinned(ray.get_runtime_context().get_node_id())


def pinned(ray_id: str) -> Any:
    """The scheduling strategy that keeps an actor on one node."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(ray_id, soft=False)


def clock_here() -> tuple[str, int]:
    """Which running kernel this is, and its Unix time in ns: what an actor's method `clock` answers."""
    return running_kernel(), time.time_ns()


def offset_of(actor: Any) -> ClockOffset | None:
    """How far the clock of an actor's node is from ours; the actor's method `clock` gives `clock_here`.

    Raises:
        RayError: the actor is lost, or too slow to tell.
    """
    exchanges = []
    for _ in range(EXCHANGES):
        sent_ns = time.time_ns()
        kernel, there_ns = ray.get(actor.clock.remote(), timeout=EXCHANGE_TIMEOUT_S)
        exchanges.append(Exchange(sent_ns=sent_ns, there_ns=there_ns, received_ns=time.time_ns()))
        if kernel and kernel == running_kernel():
            return SAME_CLOCK
    return clock_offset(exchanges)
