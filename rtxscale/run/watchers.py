"""The telemetry actors: one on every node, pinned there, holding no CPU, named so that the dashboard shows them.

`Watcher` runs inside the actor: it samples through `telemetry.sampler`, sets the gauges, looks after our processes on
its node and sees who else is on its GPUs. `Watchers` is the driver's side of all of them: it replaces an actor that is
lost, and drops a node that is. Callers: `run.sweep`,
`run.session`, `run.foreman`.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from rtxscale.devices.inventory import Inventory, Node
from rtxscale.errors import RunError
from rtxscale.results.schema import arrow_schema
from rtxscale.run.gauges import Gauges
from rtxscale.run.nodes import alive_nodes, clock_here, offset_of, pinned
from rtxscale.run.occupancy import Guard, Occupancy, joined
from rtxscale.run.processes import is_alive, kill
from rtxscale.run.ray_setup import ray
from rtxscale.telemetry.clock_offset import SAME_CLOCK, ClockOffset, on_our_clock
from rtxscale.telemetry.facts import describe_node, host_environment
from rtxscale.telemetry.holders import GpuHolders
from rtxscale.telemetry.probe import open_probe
from rtxscale.telemetry.sampler import Sampler
from rtxscale.telemetry.wall_meter import WallMeter

PERIOD_S = 0.1
GAUGE_PERIOD_S = 1.0
ANSWER_TIMEOUT_S = 30.0
GONE_TIMEOUT_S = 10.0
REPLACE_TIMEOUT_S = 60.0
"""How long a new actor may take; Ray finds a node dead after about 15 s without a sign of life."""
LOST = (
    ray.exceptions.RayActorError,
    ray.exceptions.GetTimeoutError,
    ray.exceptions.ActorUnschedulableError,
)
"""What a call of an actor raises that is gone, or silent for too long."""
PATIENCE_S = 1.0


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

    def drain(self) -> pa.Table:
        """Samples since the last call."""
        return self._sampler.drain()

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


@dataclass(frozen=True, kw_only=True)
class _Post:
    """One watched node: our name for it, Ray's id, and its actor."""

    name: str
    ray_id: str
    cpus: int
    gpus: int
    sweep: str
    title: str
    actor: Any = None
    starts: int = 0

    def started(self) -> _Post:
        """The same post with a new actor; the dashboard shows it by its title, a later one with a number."""
        title = f"{self.title}-{self.starts + 1}" if self.starts else self.title
        try:
            actor = self._actor(title)
        except ValueError:  # Ray keeps the name of an actor that was meant for a node which died before it ran
            actor = self._actor(f"{title}-{secrets.token_hex(2)}")
        return replace(self, actor=actor, starts=self.starts + 1)

    def _actor(self, title: str) -> Any:
        options = {"name": title, "num_cpus": 0, "max_concurrency": 4, "scheduling_strategy": pinned(self.ray_id)}
        return ray.remote(Watcher).options(**options).remote(self.name, self.sweep)


class Watchers:
    """All telemetry actors of the cluster.

    One that is lost is started again, which is said through `note`; `lost` names the nodes that are gone.
    """

    def __init__(self, posts: Sequence[_Post]) -> None:
        """Made by `start`."""
        self._posts = list(posts)
        self._ray_ids = {post.name: post.ray_id for post in posts}
        self._busy = threading.Lock()
        self._session: tuple[str, dict[str, list[int]]] = ("", {})
        self._offsets: dict[str, ClockOffset] = {}
        self.meter: WallMeter | None = None
        """The power meter at the wall, read by the driver; its samples come with the nodes'."""
        self._drained_s = time.monotonic()
        self.lost: list[str] = []
        self.note: Callable[[str], None] = lambda _text: None

    @classmethod
    def start(cls, *, run_id: str, sweep: str) -> Watchers:
        """One actor on every node that is alive; the head comes first and is called node0."""
        posts = []
        for place, node in enumerate(alive_nodes()):
            name = f"node{place}"
            cpus, gpus = (int(node["Resources"].get(kind, 0)) for kind in ("CPU", "GPU"))
            title = f"rtxscale-telemetry-{run_id}-{name}"
            post = _Post(name=name, ray_id=node["NodeID"], cpus=cpus, gpus=gpus, sweep=sweep, title=title)
            posts.append(post.started())
        return cls(posts)

    def inventory(self) -> tuple[Inventory, dict[str, list[dict[str, str]]]]:
        """The cluster's nodes, with no more CPUs and GPUs than Ray may use, and what to record of each host."""
        answers = self._ask_each(lambda post: post.actor.facts.remote())
        nodes = tuple(
            replace(node, cpus=min(node.cpus, post.cpus), gpus=node.gpus[: post.gpus]) for post, (node, _, _) in answers
        )
        hosts = {post.name: host for post, (_, _, host) in answers}
        notes = tuple(dict.fromkeys(note for _, (_, of_node, _) in answers for note in of_node))
        return Inventory(nodes=nodes, notes=notes), hosts

    def ray_id(self, name: str) -> str:
        """Ray's id of a node."""
        return self._ray_ids[name]

    def name_of(self, ray_id: str) -> str:
        """Our name of a node."""
        return next((name for name, known in self._ray_ids.items() if known == ray_id), ray_id)

    def drain(self) -> pa.Table:
        """Samples of all nodes since the last call, their Unix times by our clock."""
        tables = self._ask(lambda post: post.actor.drain.remote())
        self._drained_s = time.monotonic()
        self._compare_clocks()
        samples = on_our_clock(pa.concat_tables([arrow_schema("telemetry").empty_table(), *tables]), self._offsets)
        return samples if self.meter is None else pa.concat_tables([samples, self.meter.take(self._driver())])

    def _driver(self) -> str:
        """Our name of the driver's node."""
        return self.name_of(ray.get_runtime_context().get_node_id())

    def _compare_clocks(self) -> None:
        """Measure how far each other machine's clock is from ours; one that cannot be asked keeps what was known."""
        for post in self._posts:
            if self._offsets.get(post.name) == SAME_CLOCK:
                continue
            with contextlib.suppress(*LOST):
                found = offset_of(post.actor)
                self._offsets |= {post.name: found} if found is not None else {}

    def readings(self) -> dict[str, float]:
        """Power and temperature now, over all nodes; nothing while an actor is being replaced.

        Asked by the thread that redraws: it does not wait for the replacement, but has it begun.
        """
        if not self._busy.acquire(blocking=False):
            return {}
        try:
            return combined(ray.get([post.actor.latest.remote() for post in self._posts], timeout=ANSWER_TIMEOUT_S))
        except LOST:
            threading.Thread(target=self._mend, daemon=True).start()
            return {}
        finally:
            self._busy.release()

    def show_trial(self, trial_id: str) -> None:
        """Show in the metrics of all nodes which trial is running; nobody waits for it, nor minds a lost actor."""
        for post in self._posts:
            post.actor.show_trial.remote(trial_id)

    def set_session(self, session_id: str, ranks: Iterable[tuple[str, int]]) -> None:
        """Tag the gauges of all nodes; `ranks` are the session's processes as (Ray node id, pid)."""
        mine = _by_node(ranks)
        self._session = (session_id, mine)
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
        answers = self._ask_each(
            lambda post: post.actor.end_processes.remote(mine.get(post.ray_id, []), GONE_TIMEOUT_S)
        )
        left = {post.name: pids for post, pids in answers if pids}
        if left:
            raise RunError(
                f"found worker processes {left} alive after being killed; expected them gone: end them by hand"
            )

    def stop(self) -> None:
        """End the actors, and the meter."""
        if self.meter is not None:
            self.meter.stop()
            if self.meter.errors:
                self.note(f"{self.meter.errors} readings at the wall failed, the last with {self.meter.last_error}")
        for post in self._posts:
            ray.kill(post.actor)

    def _ask(self, question: Any) -> list[Any]:
        """Every actor's answer, in order of the nodes that are left.

        Raises:
            RunError: an actor is lost and cannot be replaced although its node is there.
        """
        return [answer for _, answer in self._ask_each(question)]

    def _ask_each(self, question: Any) -> list[tuple[_Post, Any]]:
        """Every node that is left with its actor's answer; raises as `_ask` does."""
        with self._busy:
            asked = [(post, question(post)) for post in self._posts]
            return [(post, answer) for post, reference in asked for answer in self._answer(post, reference, question)]

    def _answer(self, post: _Post, reference: Any, question: Any) -> list[Any]:
        """The answer of one actor, or of its replacement; none if its node is lost."""
        try:
            return [ray.get(reference, timeout=ANSWER_TIMEOUT_S)]
        except LOST:
            replacement = self._replaced(post)
            return [] if replacement is None else [ray.get(question(replacement), timeout=ANSWER_TIMEOUT_S)]

    def _replaced(self, post: _Post) -> _Post | None:
        """A new actor for a lost one, told what the old one knew; None if the node is lost.

        A node that has just died looks alive for some seconds, in which nothing can be started on it.

        Raises:
            RunError: the node is there, and no actor starts on it.
        """
        with contextlib.suppress(ray.exceptions.RayError, ValueError):
            ray.kill(post.actor)
        new, gap_s = post.started(), time.monotonic() - self._drained_s
        session_id, ranks = self._session
        try:
            ray.get(new.actor.set_session.remote(session_id, ranks.get(post.ray_id, [])), timeout=REPLACE_TIMEOUT_S)
        except LOST as error:
            if any(node["NodeID"] == post.ray_id for node in alive_nodes()):
                raise RunError(
                    f"lost the telemetry actor of {post.name} and could not start another ({type(error).__name__}); "
                    "expected one alive on each node: run the sweep again, it continues where it stopped"
                ) from error
            self._posts.remove(post)
            self.lost.append(post.name)
            self.note(f"lost {post.name}: it does not belong to the cluster any more; going on with the others")
            return None
        self._posts[self._posts.index(post)] = new
        self.note(f"telemetry of {post.name} was lost and started again: up to {gap_s:.1f} s of samples are missing")
        return new

    def _mend(self) -> None:
        """Replace what is lost; a failure is found again, and told, by whoever asks next."""
        with contextlib.suppress(RunError, ray.exceptions.RayError):
            self._ask(lambda post: post.actor.latest.remote())


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
