"""Sweeps on one cluster take turns: one measures on its GPUs, the others wait and say what for.

Ray lets only one actor have a name, so of two that wait one gets it, and it ends with its driver. Caller:
`run.cluster`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from rtxscale.run.nodes import beside_driver
from rtxscale.run.pulse import Pulse
from rtxscale.run.ray_setup import ray

NAMESPACE = "rtxscale"
NAME = "rtxscale-turn"
PERIOD_S = 1.0
SAY_AFTER_S = 5.0
"""A sweep that is just ending is not worth a word."""
ANSWER_S = 10.0


class Turn:
    """Runs inside the one actor of its name: who has it, has the cluster's GPUs. It ends with its driver."""

    def __init__(self, run: str) -> None:
        """Belong to a run."""
        self._run = run

    def holder(self) -> str:
        """Whose turn it is."""
        return self._run


def wait_for_turn(run: str, say: Callable[[str], None], pulse: Pulse) -> Any:
    """Wait until no other sweep runs on this cluster; returns the turn, to be kept.

    On another node than the driver's the turn could be lost with that node before it ran, and Ray would keep its name
    for good.

    Raises:
        HeadLostError: the head node is gone meanwhile.
    """
    began, last = time.monotonic(), ""
    while True:
        if pulse.lost:
            raise pulse.error()
        with contextlib.suppress(ValueError, ray.exceptions.RayError):  # the name is taken, or its owner is just ending
            options = {"name": NAME, "num_cpus": 0, "max_restarts": 0, "scheduling_strategy": beside_driver()}
            turn: Any = ray.remote(Turn).options(**options).remote(run)
            ray.get(turn.holder.remote())
            return turn
        holder = _holder()
        if holder and holder != last and time.monotonic() - began > SAY_AFTER_S:
            last = holder
            say(f"waiting for the GPUs: {holder} is running on this cluster; Ctrl-C to leave the queue")
        time.sleep(PERIOD_S)


def _holder() -> str:
    """The run whose turn it is, empty if that cannot be told just now."""
    try:
        turn: Any = ray.get_actor(NAME, namespace=NAMESPACE)
        return str(ray.get(turn.holder.remote(), timeout=ANSWER_S))
    except (ValueError, ray.exceptions.RayError):
        return ""
