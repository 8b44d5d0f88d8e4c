"""Who holds the GPUs of the pool beside us, and whether our sessions leave them as they were.

`Guard` looks and `identify` sorts a process out, both on the node itself; the rest is pure. What it means for a trial
is `run.failures`' to decide. A process of somebody else is reported, never ended. Callers: `run.watchers`,
`run.foreman`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rtxscale.run import processes
from rtxscale.run.cluster import OWNER_VARIABLE
from rtxscale.spec.printable import printable
from rtxscale.telemetry.fields import GpuProcess
from rtxscale.telemetry.holders import GpuHolders

GPU_DEVICES = "/dev/nvidia"
LEFT_MIB = 64.0
"""More used memory than before a session is worth a word from here on; the driver's own books vary by a few MiB."""
STUCK_MIB = 1024.0
"""From here on it changes what fits into the next session."""
SHOWN = 4


class Owner(StrEnum):
    """Whose a process on a GPU is."""

    OURS = "ours"
    FOREIGN = "foreign"
    UNKNOWN = "unknown"
    """The driver tells an id that means nothing here: a container has ids of its own."""


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A compute process on a GPU; `used_mib` is None where the driver does not tell."""

    node: str
    uuid: str
    pid: int
    owner: Owner
    name: str = ""
    used_mib: float | None = None


@dataclass(frozen=True, kw_only=True)
class Occupancy:
    """Who is on the GPUs now, who has been since the last look, and each GPU's used memory in MiB by UUID."""

    now: tuple[Holder, ...] = ()
    seen: tuple[Holder, ...] = ()
    used_mib: Mapping[str, float] = field(default_factory=dict)


def identify(process: GpuProcess, node: str, ours: Collection[int]) -> Holder:
    """Whose a process on a GPU of this very machine is; `ours` holds the ids of our session's ranks.

    Ours are the ranks, whatever they started, and everything in a cluster of our own. In a container an id can be
    another process than the one on the GPU: it is only taken for foreign if it has an NVIDIA device open.
    """
    return Holder(
        node=node,
        uuid=process.uuid,
        pid=process.pid,
        owner=_owner(process.pid, ours),
        name=processes.name_of(process.pid),
        used_mib=process.used_mib,
    )


def _owner(pid: int, ours: Collection[int]) -> Owner:
    if not processes.exists(pid):
        return Owner.UNKNOWN
    if not {pid, *processes.ancestors(pid)}.isdisjoint(ours):
        return Owner.OURS
    cluster = os.environ.get(OWNER_VARIABLE)
    if cluster and processes.environment_of(pid).get(OWNER_VARIABLE) == cluster:
        return Owner.OURS
    if processes.knows_machine() or processes.has_open(pid, GPU_DEVICES):
        return Owner.FOREIGN
    return Owner.UNKNOWN


class Guard:
    """Sees who is on one node's GPUs: when asked, and once a second in passing, so that no short visitor is missed."""

    def __init__(self, gpus: GpuHolders, node: str) -> None:
        """Nobody is expected yet."""
        self._gpus, self._node = gpus, node
        self._ours: frozenset[int] = frozenset()
        self._seen: dict[tuple[str, int], Holder] = {}
        self._lock = threading.Lock()

    def expect(self, ranks: Iterable[int]) -> None:
        """These processes, with what they start, are ours; who was seen before does not count any more."""
        with self._lock:
            self._ours = frozenset(ranks)
            self._seen.clear()

    def look(self) -> None:
        """Note who is there."""
        with self._lock:
            self._note(self._gpus.processes())

    def occupancy(self) -> Occupancy:
        """Who is there now, and who has been since the last call."""
        with self._lock:
            use = self._gpus.look()
            now = self._note(use.processes)
            seen = tuple(self._seen.values())
            self._seen.clear()
        return Occupancy(now=now, seen=seen, used_mib=use.used_mib)

    def _note(self, found: Iterable[GpuProcess]) -> tuple[Holder, ...]:
        holders = tuple(identify(process, self._node, self._ours) for process in found)
        for one in holders:
            if one.owner is not Owner.UNKNOWN or (one.uuid, one.pid) not in self._seen:  # it may just have ended
                self._seen[one.uuid, one.pid] = one
        return holders


def joined(parts: Iterable[Occupancy]) -> Occupancy:
    """The occupancy of all nodes."""
    parts = list(parts)
    return Occupancy(
        now=tuple(holder for part in parts for holder in part.now),
        seen=tuple(holder for part in parts for holder in part.seen),
        used_mib={uuid: used for part in parts for uuid, used in part.used_mib.items()},
    )


def strangers(holders: Iterable[Holder], pool: Collection[str], owner: Owner = Owner.FOREIGN) -> tuple[Holder, ...]:
    """Those on GPUs of the pool that are not ours, each once per GPU; `owner` unknown for those nobody can place."""
    found = {(one.uuid, one.pid): one for one in holders if one.owner is owner and one.uuid in pool}
    return tuple(sorted(found.values(), key=lambda one: (one.node, one.uuid, one.pid)))


def describe(holders: Iterable[Holder]) -> str:
    """Which GPU is held by what; no user, no path, no arguments.

    >>> describe([Holder(node="node0", uuid="GPU-a", pid=42, owner=Owner.FOREIGN, name="python3", used_mib=3000.0)])
    'GPU-a on node0 is held by python3 (pid 42, 3,000 MiB)'
    """
    told = [
        f"{one.uuid} on {one.node} is held by {printable(one.name) or 'an unknown process'} (pid {one.pid}, "
        + ("memory unknown)" if one.used_mib is None else f"{one.used_mib:,.0f} MiB)")
        for one in holders
    ]
    more = f" and {len(told) - SHOWN} more" if len(told) > SHOWN else ""
    return "; ".join(told[:SHOWN]) + more


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """Memory in MiB that a GPU has in use above what it had before a session, beyond what strangers explain."""

    uuid: str
    mib: float
    holders: tuple[Holder, ...] = ()

    def __str__(self) -> str:
        """In words, with whoever is on the GPU."""
        who = f"; {describe(self.holders)}" if self.holders else ", by whom is not known"
        return f"{self.mib:,.0f} MiB of {self.uuid} more in use than before the session{who}"


def leftovers(
    before: Occupancy, after: Occupancy, pool: Collection[str], least_mib: float = LEFT_MIB
) -> tuple[Leftover, ...]:
    """What a session that is gone has left in use, at least `least_mib` per GPU.

    Somebody else's memory is not ours to explain: what processes hold that came or grew meanwhile is taken off. One of
    which the driver tells no memory may hold all of it, so nothing is said of its GPU.
    """
    found = []
    for uuid in sorted(set(pool) & before.used_mib.keys() & after.used_mib.keys()):
        others = [one for one in after.now if one.uuid == uuid and one.owner is not Owner.OURS]
        if any(one.used_mib is None for one in others):
            continue
        held = {one.pid: one.used_mib or 0.0 for one in before.now if one.uuid == uuid}
        explained = sum(max(0.0, (one.used_mib or 0.0) - held.get(one.pid, 0.0)) for one in others)
        mib = after.used_mib[uuid] - before.used_mib[uuid] - explained
        if mib >= least_mib:
            found.append(Leftover(uuid=uuid, mib=mib, holders=tuple(one for one in after.now if one.uuid == uuid)))
    return tuple(found)
