"""The telemetry actors: one on every node, pinned there, holding no CPU, named so that the dashboard shows them.

This is the driver's side of all of them: an actor that is lost is replaced, a node that is lost is dropped. What runs
inside an actor is `run.watcher`. Callers: `run.sweep`, `run.session`, `run.foreman`.
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

from rtxscale.errors import RunError
from rtxscale.results.schema import arrow_schema
from rtxscale.run.nodes import alive_nodes, offset_of, pinned
from rtxscale.run.occupancy import Occupancy, joined
from rtxscale.run.ray_setup import ray
from rtxscale.run.roster import Found
from rtxscale.run.watcher import PERIOD_S, Watcher
from rtxscale.telemetry.clock_offset import SAME_CLOCK, ClockOffset, on_our_clock
from rtxscale.telemetry.sampler import Gaps
from rtxscale.telemetry.wall_meter import WallMeter

ANSWER_TIMEOUT_S = 30.0
SHOWN_TIMEOUT_S = 10.0
"""For what is only shown; the main thread hears nothing else meanwhile."""
GONE_TIMEOUT_S = 30.0
"""How long a killed process may still be seen, on however busy a node."""
START_TIMEOUT_S = 180.0
"""How long an actor may take to start on a busy node. A node that is lost ends the wait: Ray finds it dead after about
15 s without a sign of life."""
COLLECT_S, MOST_HELD_ROWS = 600.0, 5_000_000
"""How old samples may get in their actor's bounded buffer, and how many the driver keeps (a few hundred bytes each)."""
LOST = (
    ray.exceptions.RayActorError,
    ray.exceptions.GetTimeoutError,
    ray.exceptions.ActorUnschedulableError,
)
"""What a call of an actor raises that is gone, or silent for too long."""


@dataclass(frozen=True, kw_only=True)
class _Post:
    """One watched node: our name for it, Ray's id, and its actor."""

    name: str
    ray_id: str
    cpus: int
    gpus: int
    sweep: str
    run_id: str
    actor: Any = None
    starts: int = 0

    def started(self) -> _Post:
        """The same post with a new actor; the dashboard shows it by its title, a later one with a number."""
        title = f"rtxscale-telemetry-{self.run_id}-{self.name}" + (f"-{self.starts + 1}" if self.starts else "")
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
        self._draining = threading.Lock()
        self._drained_s = time.monotonic()
        self._held: list[pa.Table] = []
        """Samples of a long trial, fetched before its end."""
        self._gaps: dict[str, tuple[int, Gaps]] = {}
        """What each node's actor, by its number of starts, had missed when it was asked last."""
        self.lost: list[str] = []
        self.note: Callable[[str], None] = lambda _text: None

    @classmethod
    def start(cls, *, run_id: str, sweep: str) -> Watchers:
        """One actor on every node that is alive; the head comes first and is called node0."""
        posts = []
        for place, node in enumerate(alive_nodes()):
            cpus, gpus = (int(node["Resources"].get(kind, 0)) for kind in ("CPU", "GPU"))
            post = _Post(name=f"node{place}", ray_id=node["NodeID"], cpus=cpus, gpus=gpus, sweep=sweep, run_id=run_id)
            posts.append(post.started())
        return cls(posts)

    def look(self) -> list[Found]:
        """The cluster's nodes, with no more CPUs and GPUs than Ray may use, and what to record of each host."""
        answers = self._ask_each(lambda post: post.actor.facts.remote(), START_TIMEOUT_S)
        return [
            Found(
                node=replace(node, cpus=min(node.cpus, post.cpus), gpus=node.gpus[: post.gpus]),
                notes=notes,
                host=tuple(host),
            )
            for post, (node, notes, host) in answers
        ]

    def rename(self, names: Mapping[str, str], away: Sequence[str]) -> None:
        """Call the nodes as the run does: by the name that `names` has for theirs; those without one are let go.

        `away` are nodes of the run that are not here: as good as lost.
        """
        with self._busy:
            for post in self._posts:
                if names.get(post.name) != post.name:
                    ray.kill(post.actor)
            kept = [(post, names[post.name]) for post in self._posts if post.name in names]
            self._posts = [
                post if post.name == name else replace(post, name=name, starts=0).started() for post, name in kept
            ]
            self._ray_ids = {post.name: post.ray_id for post in self._posts}
            self.lost = list(away)

    @property
    def names(self) -> dict[str, str]:
        """Ray's id of each node that is watched -> our name of it, the head first."""
        return {post.ray_id: post.name for post in self._posts}

    def ray_id(self, name: str) -> str:
        """Ray's id of a node."""
        return self._ray_ids[name]

    def name_of(self, ray_id: str) -> str:
        """Our name of a node."""
        return next((name for name, known in self._ray_ids.items() if known == ray_id), ray_id)

    def drain(self) -> pa.Table:
        """Samples of all nodes since the last call, their Unix times by our clock; what is missing of them is noted."""
        with self._draining:
            self._fetch()
            tables, self._held = self._held, []
        self._compare_clocks()
        samples = on_our_clock(pa.concat_tables([arrow_schema("telemetry").empty_table(), *tables]), self._offsets)
        return samples if self.meter is None else pa.concat_tables([samples, self.meter.take(self._driver())])

    def relieve(self) -> None:
        """Fetch what has been sampled for long, while a trial goes on: an actor's buffer drops its oldest rows.

        Does not wait, and leaves it to whoever drains next to find out that an actor is lost.
        """
        if time.monotonic() - self._drained_s < COLLECT_S or not self._draining.acquire(blocking=False):
            return

        def fetch() -> None:
            try:
                if sum(table.num_rows for table in self._held) < MOST_HELD_ROWS:
                    self._fetch()
            except (RunError, ray.exceptions.RayError):
                pass
            finally:
                self._draining.release()

        threading.Thread(target=fetch, daemon=True).start()

    def _fetch(self) -> None:
        """Move the samples of all actors to the driver."""
        answers = self._ask_each(lambda post: post.actor.drain.remote())
        now_s = time.monotonic()
        now_at_post = {post.name: post.starts for post in self._posts}  # the one that answered, if it is a replacement
        for post, (rows, gaps) in answers:
            self._held.append(rows)
            starts, earlier = self._gaps.get(post.name, (0, Gaps()))
            new = gaps.since(earlier) if starts == now_at_post[post.name] else gaps
            self._gaps[post.name] = now_at_post[post.name], gaps
            if said := new.in_words((now_s - self._drained_s) / PERIOD_S):
                self.note(f"telemetry of {post.name}: {said}")
        self._drained_s = now_s

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
            return combined(ray.get([post.actor.latest.remote() for post in self._posts], timeout=SHOWN_TIMEOUT_S))
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
            lambda post: post.actor.end_processes.remote(mine.get(post.ray_id, []), GONE_TIMEOUT_S),
            GONE_TIMEOUT_S + ANSWER_TIMEOUT_S,
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

    def _ask_each(self, question: Any, timeout_s: float = ANSWER_TIMEOUT_S) -> list[tuple[_Post, Any]]:
        """Every node that is left with its actor's answer; raises as `_ask` does."""
        with self._busy:
            asked = [(post, question(post)) for post in self._posts]
            return [
                (post, answer)
                for post, reference in asked
                for answer in self._answer(post, reference, question, timeout_s)
            ]

    def _answer(self, post: _Post, reference: Any, question: Any, timeout_s: float) -> list[Any]:
        """The answer of one actor, or of its replacement; none if its node is lost."""
        try:
            return [ray.get(reference, timeout=timeout_s)]
        except LOST:
            replacement = self._replaced(post)
            return [] if replacement is None else [ray.get(question(replacement), timeout=timeout_s)]

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
            ray.get(new.actor.set_session.remote(session_id, ranks.get(post.ray_id, [])), timeout=START_TIMEOUT_S)
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
