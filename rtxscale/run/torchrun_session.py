"""A session whose ranks torchrun starts: for `launcher: torchrun`, the field's baseline without Ray Train.

An actor on the node holds the session's GPUs (or CPUs) for Ray's books, runs torchrun, and passes orders and reports
through `rank.mailbox`. Not for several nodes. Caller: `run.start`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rtxscale.errors import RunError
from rtxscale.rank.channel import Order, RankReport
from rtxscale.rank.command import torchrun_argv
from rtxscale.rank.mailbox import MailboxGiver
from rtxscale.run.crew import Crew
from rtxscale.run.failures import Death, TrialEnd
from rtxscale.run.hub import UNBROKEN, Registered
from rtxscale.run.processes import descendants, environment_of, kill
from rtxscale.run.ray_setup import ray
from rtxscale.run.session import CLOSE_TIMEOUT_S, GRACE_S, START_TIMEOUT_S, SessionFailed, SessionSpec

LOOK_S = 1.0
PR_SET_PDEATHSIG = 1
FAILED_RANK = re.compile(r"rank\s*:\s*(\d+) \(local_rank: \d+\)\s+exitcode\s*:\s*(-?\d+)")
"""A line pair of torchrun's own summary of failures."""


class TorchrunHost:
    """Runs inside its actor; owns one torchrun and everything below it."""

    def __init__(self, world: int, environment: Mapping[str, str], device: str, threads: int) -> None:
        """Start torchrun at once."""
        self._world, self._device = world, device
        self._directory = Path(tempfile.mkdtemp(prefix="rtxscale-torchrun-"))
        self._giver = MailboxGiver(self._directory / "mailbox", world)
        self._log = self._directory / "output.txt"
        arguments = ["--mailbox", str(self._directory / "mailbox"), "--device", device, "--threads", str(threads)]
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - our own module under this Python
                torchrun_argv(world, arguments),
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent(),  # only a system call
                start_new_session=True,
            )

    def ranks(self, timeout_s: float, expected: tuple[str, ...]) -> dict[int, Registered]:
        """The rank processes with the environment they started with; fewer than all if they did not come up."""
        deadline = time.monotonic() + timeout_s
        found: dict[int, Registered] = {}
        while len(found) < self._world and time.monotonic() < deadline and self._alive():
            time.sleep(0.05)
            found = self._look(expected)
        return found

    def measure(self, order: Order, deadline_s: float, grace_s: float) -> dict[int, RankReport]:
        """Hand the order out; reports by rank, all of them unless ranks died, hang, or time is up."""
        self._giver.give(order)
        deadline = time.monotonic() + deadline_s
        while True:
            left = deadline - time.monotonic()
            got = self._giver.reports(order, min(LOOK_S, left), self._alive)
            if len(got) == self._world or left <= LOOK_S or not self._alive():
                return got
            if any(report.outcome not in UNBROKEN for report in got.values()):
                deadline = min(deadline, time.monotonic() + grace_s)

    def death(self) -> Death | None:
        """How torchrun ended, if it has ended."""
        return None if self._alive() else read_death(self._log.read_text(errors="replace"), self._process.returncode)

    def close(self, timeout_s: float) -> bool:
        """Let the ranks end; whether they did in time."""
        self._giver.close()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """Kill torchrun and its ranks, which have process groups of their own, and remove the directory."""
        kill([self._process.pid, *descendants(self._process.pid)])
        self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _alive(self) -> bool:
        return self._process.poll() is None

    def _look(self, expected: tuple[str, ...]) -> dict[int, Registered]:
        from rtxscale.rank.environment import describe_software

        found: dict[int, Registered] = {}
        node = ray.get_runtime_context().get_node_id()
        for pid in descendants(self._process.pid):
            variables = environment_of(pid)
            if "LOCAL_RANK" in variables:
                rank = int(variables["RANK"])
                seen = {name: variables[name] for name in expected if name in variables}
                place = Registered(rank=rank, pid=pid, node=node, environment=seen)
                found.setdefault(rank, place)  # what a rank starts has the same variables, and comes after it
        if len(found) == self._world:
            software = tuple(describe_software(self._device))  # the ranks run this very Python
            found = {rank: replace(place, software=software) for rank, place in found.items()}
        return found


class TorchrunSession:
    """The driver's side of a `TorchrunHost`."""

    def __init__(self, spec: SessionSpec, crew: Crew) -> None:
        """Nothing is started yet."""
        self.session_id = spec.session_id
        self._spec, self._crew = spec, crew
        self._host: Any = None
        self._registered: dict[int, Registered] = {}

    def start(self) -> tuple[Registered, ...]:
        """Start torchrun and see its ranks come up with the environment they were given."""
        spec, world = self._spec, self._spec.placement.world
        if len(spec.placement.distinct_nodes) > 1:
            raise RunError(
                f"session {self.session_id}: found its {world} workers on {len(spec.placement.distinct_nodes)} nodes; "
                "expected one node: `launcher: torchrun` starts the ranks of a single machine"
            )
        self._host = self._actor().remote(world, dict(spec.environment), spec.device, spec.threads)
        try:
            found = self._ask(self._host.ranks.remote(START_TIMEOUT_S, tuple(spec.environment)))
            death = None if len(found) == world else ray.get(self._host.death.remote())
        except ray.exceptions.RayError as error:
            self.reap()
            raise SessionFailed(f"torchrun's host process died ({type(error).__name__})") from error
        self._registered = found or {}
        if found is None or len(found) < world:
            self.reap()
            raise SessionFailed(death.summary if death else f"found {len(self._registered)} of {world} workers")
        self._check()
        return tuple(found[rank] for rank in sorted(found))

    def run(self, order: Order, deadline_s: float) -> TrialEnd:
        """Hand the order out and wait for the reports, torchrun's end or the deadline."""
        began = time.monotonic()
        death: Death | None
        try:
            got = self._ask(self._host.measure.remote(order, deadline_s, GRACE_S)) or {}
            world = self._spec.placement.world
            death = None if len(got) == world else ray.get(self._host.death.remote())
        except ray.exceptions.RayError as error:
            got, death = {}, Death(summary=f"torchrun's host process died ({type(error).__name__})")
        return TrialEnd(world=self._spec.placement.world, reports=got, death=death, waited_s=time.monotonic() - began)

    def close(self) -> None:
        """Let the ranks end; what does not end in time is killed."""
        ray.get(self._host.close.remote(CLOSE_TIMEOUT_S))
        self.reap()

    def reap(self) -> None:
        """Kill torchrun with all its ranks, and the actor."""
        with contextlib.suppress(ray.exceptions.RayError):  # its ranks are ended by pid below
            ray.get(self._host.kill.remote(), timeout=CLOSE_TIMEOUT_S)
        ray.kill(self._host)
        self._crew.watchers.end_processes([(place.node, place.pid) for place in self._registered.values()])

    def _actor(self) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        spec = self._spec
        on_gpus = spec.placement.visible is not None
        node = self._crew.watchers.ray_id(spec.placement.nodes[0])
        return ray.remote(TorchrunHost).options(
            name=f"rtxscale-torchrun-{self.session_id}",
            num_cpus=0 if on_gpus else spec.placement.world,
            num_gpus=spec.placement.world if on_gpus else 0,
            max_concurrency=4,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )

    def _ask(self, answer: Any) -> Any:
        """The answer, or None when the user interrupts first."""
        shut = self._crew.hub.until_shut.remote()
        done, _ = ray.wait([answer, shut], num_returns=1)
        return ray.get(answer) if answer in done else None

    def _check(self) -> None:
        """See that every rank started with the environment it was given.

        Raises:
            RunError: a variable is missing or another.
        """
        for rank, place in sorted(self._registered.items()):
            if place.environment != dict(self._spec.environment):
                self.reap()
                raise RunError(
                    f"session {self.session_id}: found {place.environment} in rank {rank}; expected "
                    f"{dict(self._spec.environment)}: the environment did not reach its workers"
                )


def read_death(output: str, code: int) -> Death:
    r"""How torchrun says that its ranks ended.

    >>> read_death("rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 7)", 1).by_rank
    {1: 'its process died (exit code -9)'}
    """
    by_rank = {int(rank): f"its process died (exit code {status})" for rank, status in FAILED_RANK.findall(output)}
    errors = [line.strip() for line in output.splitlines() if re.match(r"\s*(\[rank\d+\]: )?\w*Error\b", line)]
    last = f": {errors[-1][:300]}" if errors else ""
    return Death(summary=f"torchrun ended with exit code {code}{last}", by_rank=by_rank)


def die_with_parent() -> Callable[[], None]:
    """A function for the child: torchrun gets SIGTERM when the actor dies, and takes its ranks along."""
    libc = ctypes.CDLL(None)  # loaded before the fork
    return lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
