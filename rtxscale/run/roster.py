"""The nodes of a run, under the names that its rows have for them: which are here, which are away, and which are new.

A run keeps the nodes that it began with. When it is continued, each of them is known again by the facts that decide a
measurement, GPU UUIDs among them, whatever the order in which Ray lists the nodes; one that is away stays in the plan
and only its trials wait; one that has joined since is left out. Pure. Caller: `run.sweep`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rtxscale.devices.inventory import Gpu, GpuLink, Inventory, Node
from rtxscale.errors import ResultsError
from rtxscale.run.environment import MEMBER, decides

AS_DATA = "as data"
Facts = frozenset[tuple[str, str, str]]
"""Subject, name and value of what decides a measurement on a node."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A node that has answered: as data, what the user should know about it, and what is recorded of its host."""

    node: Node
    notes: tuple[str, ...] = ()
    host: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Roster:
    """The nodes of a run: `names` has the run's name of each node that was found and belongs to it.

    `inventory` and `hosts` hold all of them, also the `missing` ones, in the run's order; `joined` came after it.
    """

    names: Mapping[str, str]
    inventory: Inventory
    hosts: Mapping[str, Sequence[Mapping[str, str]]]
    missing: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()

    @property
    def here(self) -> Inventory:
        """The nodes that can be used now."""
        nodes = tuple(node for node in self.inventory.nodes if node.node_id not in self.missing)
        return replace(self.inventory, nodes=nodes)

    def remarks(self) -> Iterator[str]:
        """What a user should know about nodes that are away or new."""
        if self.missing:
            yield (
                f"{', '.join(self.missing)} of this run {_are(self.missing)} not in the cluster: the rest goes on; "
                "start what is missing again (`ray start --address=...`), and the same command runs what needs it"
            )
        if self.joined:
            nodes = f"{len(self.joined)} node{'s' * (len(self.joined) > 1)}"
            yield f"{nodes} joined the cluster after this run began: left out; --fresh measures on all"


def member_rows(nodes: Iterable[Node]) -> list[dict[str, str]]:
    """The nodes as rows of the environment table, from which `recorded` reads them back."""
    return [
        {"node": node.node_id, "subject": MEMBER, "name": AS_DATA, "value": json.dumps(_as_data(node), sort_keys=True)}
        for node in nodes
    ]


def recorded(rows: Iterable[Mapping[str, Any]]) -> dict[str, Found]:
    """The nodes that a run began with, by name and in order, from rows of its environment table.

    Raises:
        ResultsError: a row is damaged.
    """
    rows = list(rows)
    nodes = {row["node"]: _from_data(row) for row in rows if (row["subject"], row["name"]) == (MEMBER, AS_DATA)}
    hosts: dict[str, list[Mapping[str, str]]] = {name: [] for name in nodes}
    for row in rows:
        if row["node"] in hosts and decides(row["subject"], row["name"]):
            hosts[row["node"]].append({name: row[name] for name in ("subject", "name", "value")})
    return {name: Found(node=node, host=tuple(hosts[name])) for name, node in nodes.items()}


def roster_of(found: Sequence[Found], known: Mapping[str, Found]) -> Roster:
    """The nodes of a run: those that were found, under the names of those that are known, and those that are away.

    A node that is not known again takes the place of one that is away, if any: what has changed about it is for whoever
    checks the environment to say. Nothing known: a run that begins, with the nodes as they are.
    """
    here = {one.node.node_id: one for one in found}
    names = _matched(here, known) if known else {name: name for name in here}
    found_as = {names[name]: _renamed(one, names[name]) for name, one in here.items() if name in names}
    whole = [found_as.get(name) or known[name] for name in (known or found_as)]
    notes = tuple(dict.fromkeys(note for one in found for note in one.notes))
    return Roster(
        names=names,
        inventory=Inventory(nodes=tuple(one.node for one in whole), notes=notes),
        hosts={one.node.node_id: one.host for one in whole},
        missing=tuple(name for name in known if name not in found_as),
        joined=tuple(name for name in here if name not in names),
    )


def _matched(here: Mapping[str, Found], known: Mapping[str, Found]) -> dict[str, str]:
    """Name as found -> name in the run."""
    free = {name: _facts(one) for name, one in known.items()}
    names: dict[str, str] = {}
    for name, one in here.items():
        twins = [other for other, facts in free.items() if facts == _facts(one)]
        if twins:
            names[name] = name if name in twins else twins[0]
            del free[names[name]]
    for name, other in zip([name for name in here if name not in names], list(free), strict=False):
        names[name] = other
    return names


def _facts(found: Found) -> Facts:
    return frozenset(
        (row["subject"], row["name"], row["value"]) for row in found.host if decides(row["subject"], row["name"])
    )


def _renamed(found: Found, name: str) -> Found:
    return replace(found, node=replace(found.node, node_id=name))


def _as_data(node: Node) -> dict[str, Any]:
    data = asdict(node)
    del data["node_id"]
    return data


def _from_data(row: Mapping[str, Any]) -> Node:
    try:
        data = json.loads(row["value"])
        version = data["nccl_version"]
        return Node(
            node_id=str(row["node"]),
            cpus=int(data["cpus"]),
            gpus=tuple(_gpu(gpu) for gpu in data["gpus"]),
            nccl_version=None if version is None else (int(version[0]), int(version[1]), int(version[2])),
            links=tuple(GpuLink(**{name: str(link[name]) for name in ("a", "b", "label")}) for link in data["links"]),
        )
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
        raise ResultsError(
            f"found a damaged record of {row['node']} in the run's environment table ({type(error).__name__}); "
            "expected it as rtxscale wrote it: restore the run from a copy, or start a new one with --fresh"
        ) from error


def _gpu(data: Mapping[str, Any]) -> Gpu:
    memory, limit = data["memory_mib"], data["power_limit_w"]
    return Gpu(
        name=str(data["name"]),
        uuid=str(data["uuid"]),
        index=int(data["index"]),
        memory_mib=None if memory is None else int(memory),
        power_limit_w=None if limit is None else float(limit),
    )


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
