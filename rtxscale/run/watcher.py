"""A telemetry actor: samples its node, sets the gauges, looks after our processes there and sees who is on its GPUs.

One runs on every node; the driver's side of all of them is `run.watchers`, the only caller.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from rtxscale.devices.inventory import Node
from rtxscale.run.gauges import Gauges
from rtxscale.run.nodes import clock_here
from rtxscale.run.occupancy import Guard, Occupancy
from rtxscale.run.processes import is_alive, kill
from rtxscale.telemetry.facts import describe_node, host_environment
from rtxscale.telemetry.holders import GpuHolders
from rtxscale.telemetry.probe import open_probe
from rtxscale.telemetry.sampler import Gaps, Sampler

PERIOD_S = 0.1
GAUGE_PERIOD_S = 1.0
PATIENCE_S = 1.0
"""How long a process of ours may take to end by itself before it is killed."""


class Watcher:
    """Runs inside its actor on one node."""

    def __init__(self, node: str, sweep: str) -> None:
        """Start sampling at once."""
        self._node, self._sweep, self._session, self._trial = node, sweep, "", ""
        self._sampler = Sampler(open_probe(), node, PERIOD_S)
        self._sampler.start()
        self._gauges = Gauges()
        self._guard = Guard(GpuHolders(), node)
        threading.Thread(target=self._set_gauges_for_ever, daemon=True).start()

    def facts(self) -> tuple[Node, tuple[str, ...], list[dict[str, str]]]:
        """The node as data, what the user should know about it, and what should be recorded of its host."""
        node, notes = describe_node(self._node)
        return node, notes, host_environment()

    def drain(self) -> tuple[pa.Table, Gaps]:
        """Samples since the last call, and what sampling has missed since the start."""
        return self._sampler.drain(), self._sampler.gaps()

    def latest(self) -> dict[str, Any]:
        """The newest readings."""
        return self._sampler.latest()

    def clock(self) -> tuple[str, int]:
        """Which running kernel this is, and its Unix time in ns."""
        return clock_here()

    def show_trial(self, trial_id: str) -> None:
        """Show in the metrics which trial is running."""
        self._trial = trial_id

    def set_session(self, session_id: str, ranks: list[int]) -> None:
        """Tag the gauges with the session that is running; `ranks` are the process ids of its ranks on this node."""
        self._session, self._trial = session_id, ""
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
            tags = {"node": self._node, "sweep": self._sweep, "session": self._session}
            self._gauges.show(by_device(self._sampler.latest()), tags, self._trial)
            time.sleep(GAUGE_PERIOD_S)


def by_device(latest: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Newest readings of `Sampler.latest` by GPU UUID; the host's are under the empty name."""
    readings: dict[str, Mapping[str, Any]] = dict(latest.get("gpus") or {})
    if latest.get("host"):
        readings[""] = latest["host"]
    return readings
