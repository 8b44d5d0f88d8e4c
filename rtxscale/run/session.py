"""A session: one worker group that serves many trials, from its start to the proof that nothing of it is left.

`Session` is what the foreman works with; `RaySession` has Ray Train start the ranks (`run.torchrun_session` has
torchrun do it). It reports what it saw and decides nothing (`run.failures` does). Caller: `run.foreman`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rtxscale.errors import RunError
from rtxscale.plan.model import Placement
from rtxscale.rank.channel import Order
from rtxscale.run.crew import Crew
from rtxscale.run.failures import Death, TrialEnd, describe_ranks
from rtxscale.run.host import FitRequest
from rtxscale.run.hub import Registered
from rtxscale.run.ray_setup import ray

START_TIMEOUT_S = 180.0
CLOSE_TIMEOUT_S = 20.0
GONE_TIMEOUT_S = 30.0
GRACE_S = 10.0
"""How long peers may stay silent after one rank has reported a broken trial; they may hang in a collective."""


class SessionFailed(Exception):  # noqa: N818 - an event the foreman handles, not an error of the program
    """A session did not start."""


class Session(Protocol):
    """One worker group."""

    session_id: str

    def start(self) -> tuple[Registered, ...]:
        """Start the ranks; they have said who they are, by rank.

        Raises:
            SessionFailed: they did not all come up.
        """

    def run(self, order: Order, deadline_s: float) -> TrialEnd:
        """Have every rank run the order, and wait until all have reported, the group has died, or time is up."""

    def close(self) -> None:
        """End it in order, or by force where that takes too long; nothing of it is left."""

    def reap(self) -> None:
        """End it by force; nothing of it is left."""


@dataclass(frozen=True, kw_only=True)
class SessionSpec:
    """What a session is started with."""

    session_id: str
    placement: Placement
    device: str
    threads: int
    environment: Mapping[str, str]


class RaySession:
    """A worker group of Ray Train."""

    def __init__(self, spec: SessionSpec, crew: Crew) -> None:
        """Nothing is started yet."""
        self.session_id = spec.session_id
        self._spec, self._crew = spec, crew
        self._fit: Any = None
        self._registered: dict[int, Registered] = {}
        self._groups_before: set[str] = set()

    def start(self) -> tuple[Registered, ...]:
        """Start the ranks and check that each sees the environment it was given."""
        world = self._spec.placement.world
        self._groups_before = live_groups()
        ray.get(self._crew.hub.open.remote(self.session_id, world))
        self._fit = self._crew.warm_host().fit.remote(self._fit_request())
        ready = self._crew.hub.ready.remote(self.session_id, START_TIMEOUT_S)
        ray.wait([self._fit, ready], num_returns=1)
        if death := self._death():
            self.reap()
            raise SessionFailed(describe_ranks(death.by_rank) or death.summary)
        self._registered = ray.get(ready)
        if len(self._registered) < world:
            found = len(self._registered)
            self.reap()
            raise SessionFailed(f"found {found} of {world} workers after {START_TIMEOUT_S:.0f} s")
        try:
            check_places(self._registered, self._spec)
            nodes = [self._crew.watchers.name_of(place.node) for place in self._registered.values()]
            check_nodes(nodes, self._spec)
        except RunError:
            self.reap()
            raise
        return tuple(self._registered[rank] for rank in sorted(self._registered))

    def run(self, order: Order, deadline_s: float) -> TrialEnd:
        """Hand the order out and wait for the reports, the group's death or the deadline."""
        began = time.monotonic()
        hub, world = self._crew.hub, self._spec.placement.world
        ray.get(hub.give.remote(self.session_id, order))
        reports = hub.reports.remote(self.session_id, order.trial_id, order.attempt, deadline_s, GRACE_S)
        ray.wait([self._fit, reports], num_returns=1)
        death = self._death()
        if death is not None:
            got = ray.get(hub.reports_now.remote(self.session_id, order.trial_id, order.attempt))
        else:
            got = ray.get(reports)
        return TrialEnd(world=world, reports=got, death=death, waited_s=time.monotonic() - began)

    def close(self) -> None:
        """Tell the ranks that there is no more work and wait for the group to end."""
        ray.get(self._crew.hub.close.remote(self.session_id))
        done, _ = ray.wait([self._fit], timeout=CLOSE_TIMEOUT_S)
        if not done or self._ended():
            self.reap()
        else:
            self._clear()

    def reap(self) -> None:
        """Kill the host, and with it the group."""
        self._crew.kill_host()
        self._clear()

    def _clear(self) -> None:
        """Free the placement group and see that every rank is gone.

        Raises:
            RunError: a rank's process or the reservation outlives every effort.
        """
        mine = {place.placement_group for place in self._registered.values() if place.placement_group}
        remove_groups(mine or self._unregistered_groups())
        self._crew.watchers.end_processes([(place.node, place.pid) for place in self._registered.values()])
        ray.get(self._crew.hub.drop.remote(self.session_id))

    def _unregistered_groups(self) -> set[str]:
        """New groups that look like this session's: ranks that never came up could not name theirs.

        Tune's own group is new too, but reserves neither CPU nor GPU.
        """
        table = ray.util.placement_group_table()
        return {
            name
            for name in live_groups() - self._groups_before
            if len(table[name]["bundles"]) == self._spec.placement.world
            and all({"CPU", "GPU"} & set(bundle) for bundle in table[name]["bundles"].values())
        }

    def _death(self) -> Death | None:
        """How the group ended under us, if it has ended."""
        done, _ = ray.wait([self._fit], timeout=0)
        if not done:
            return None
        return self._ended() or Death(summary="the worker group ended although it was not told to")

    def _ended(self) -> Death | None:
        """What `fit` returned: None for a group that was closed."""
        try:
            death: Death | None = ray.get(self._fit)
        except ray.exceptions.RayError as error:
            return Death(summary=f"the session's host process died ({type(error).__name__})")
        return death

    def _fit_request(self) -> FitRequest:
        spec = self._spec
        return FitRequest(
            session_id=self.session_id,
            placement=spec.placement,
            ray_nodes=tuple(self._crew.watchers.ray_id(name) for name in spec.placement.nodes),
            environment=dict(spec.environment),
            arguments={
                "hub": self._crew.hub,
                "session_id": self.session_id,
                "device": spec.device,
                "threads": spec.threads,
                "expected": tuple(spec.environment),
            },
            scratch=self._crew.scratch,
        )


def check_places(registered: Mapping[int, Registered], spec: SessionSpec) -> None:
    """See that every rank got the environment and a GPU of its own from the chosen set.

    Raises:
        RunError: a variable did not reach a rank, or the GPUs are others than those chosen.
    """
    for rank, place in sorted(registered.items()):
        for name, value in spec.environment.items():
            found = place.environment.get(name)
            if not same_setting(name, found, value):
                raise RunError(
                    f"session {spec.session_id}: found {name}={found!r} in rank {rank}; expected {value!r}: the "
                    "session's environment did not reach its workers"
                )
    uuids = sorted(place.gpu_uuid or "" for place in registered.values())
    if spec.device == "cuda" and uuids != sorted(spec.placement.gpu_uuids):
        raise RunError(
            f"session {spec.session_id}: found its ranks on GPUs {uuids}; expected {sorted(spec.placement.gpu_uuids)}, "
            "one each: is something else using GPUs of this Ray cluster?"
        )


def check_nodes(found: Sequence[str], spec: SessionSpec) -> None:
    """See that as many ranks are on each node as the plan has put there.

    Raises:
        RunError: they are elsewhere.
    """
    if sorted(found) != sorted(spec.placement.nodes):
        raise RunError(
            f"session {spec.session_id}: found its ranks on {dict(Counter(sorted(found)))}; expected "
            f"{dict(Counter(sorted(spec.placement.nodes)))}: Ray did not keep to the nodes it was given"
        )


def same_setting(name: str, found: str | None, asked: str) -> bool:
    """Whether a rank has the value it was given; Ray may list the same GPUs in another order.

    >>> same_setting("CUDA_VISIBLE_DEVICES", "10,2", "2,10"), same_setting("NCCL_P2P_DISABLE", None, "1")
    (True, False)
    """
    if name == "CUDA_VISIBLE_DEVICES" and found is not None:
        return sorted(found.split(",")) == sorted(asked.split(","))
    return found == asked


def live_groups() -> set[str]:
    """Ids of the placement groups that hold or ask for resources."""
    return {name for name, group in ray.util.placement_group_table().items() if group["state"] != "REMOVED"}


def remove_groups(names: set[str]) -> None:
    """Remove the placement groups and wait until they are gone.

    Raises:
        RunError: one is still there after half a minute.
    """
    from ray.util.placement_group import PlacementGroup, remove_placement_group

    for name in names & live_groups():
        remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(name))))
    deadline = time.monotonic() + GONE_TIMEOUT_S
    while left := names & live_groups():
        if time.monotonic() > deadline:
            raise RunError(
                f"found placement groups {sorted(left)} still reserved; expected them to be free after removal"
            )
        time.sleep(0.02)
