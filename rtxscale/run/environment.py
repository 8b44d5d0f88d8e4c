"""What the numbers were measured with, and its hash: pure, from facts that others read.

The facts name no machine and do not change by themselves, so a resumed run on the same machine finds the same id.
Caller: `run.foreman`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import pyarrow as pa

from rtxscale.devices.inventory import Inventory
from rtxscale.doctor.finding import SUBJECT as EXAMINED
from rtxscale.results.schema import table
from rtxscale.spec.cell import content_id

WORKERS = "workers"
"""Stands in for a node where a fact holds for every worker: their software is checked to be the same."""

INVENTORY = "inventory"
"""Subject of what each node has: said once more, in words, by the GPUs' own facts, so it is not hashed."""
MEMBER = "member"
"""Subject of a node that the run began with, as data: for the run's own continuation, not for readers."""
SHOWN = 5
RECORDED_ONLY = frozenset({("host", "memory")})
"""Facts that are kept but not hashed: a virtual machine's memory can grow while it is used."""
PACKAGE = "package"
"""Subject of the list of installed packages: kept for the record, not hashed, since most of them decide nothing."""


def environment_rows(
    hosts: Mapping[str, Iterable[Mapping[str, str]]], software: Iterable[Mapping[str, str]]
) -> list[dict[str, str]]:
    """All facts as rows of the `environment` table, without their id."""
    rows = [{"node": WORKERS, **fact} for fact in software]
    rows += [{"node": node, **fact} for node in sorted(hosts) for fact in hosts[node]]
    return rows


def inventory_rows(inventory: Inventory, pool: Inventory) -> list[dict[str, str]]:
    """What each node has, how its GPUs hang together, and whether the sweep uses it.

    `inventory` is the cluster's; a simulated sweep uses nodes of its own, which are not in it.
    """
    used = {node.node_id for node in pool.nodes}
    rows = []
    for node in dict.fromkeys((*inventory.nodes, *pool.nodes)):
        places = {gpu.uuid: str(gpu.index) for gpu in node.gpus}
        links = ", ".join(f"{places[link.a]}-{places[link.b]} {link.label}" for link in node.links)
        facts = {
            "GPUs": node.describe() if node.gpus else "none",
            "CPU cores": str(node.cpus),
            "links by GPU index": links or ("not applicable" if len(node.gpus) < 2 else "unknown"),
            "pool": "used" if node.node_id in used else "left out",
        }
        rows += [{"node": node.node_id, "subject": INVENTORY, "name": name, "value": facts[name]} for name in facts]
    return rows


def environment_id(rows: Iterable[Mapping[str, str]]) -> str:
    """Content hash of the facts that decide a measurement, whatever their order.

    >>> environment_id([{"node": "workers", "subject": "software", "name": "torch", "value": "2.11"}])
    '719d4b157a77'
    """
    facts = sorted(
        [row["node"], row["subject"], row["name"], row["value"]] for row in rows if decides(row["subject"], row["name"])
    )
    return content_id(json.dumps(facts))


def differences(before: Iterable[Mapping[str, str]], now: Iterable[Mapping[str, str]]) -> str:
    """What is not the same in two environments, in words, the first few of them.

    >>> fact = {"node": "workers", "subject": "software", "name": "torch", "value": "2.11"}
    >>> differences([fact], [{**fact, "value": "2.14"}])
    'torch was 2.11, is 2.14'
    """
    old, new = ({(row["node"], row["subject"], row["name"]): row["value"] for row in rows} for rows in (before, now))
    changed = [
        f"{key[2]} was {old.get(key, 'not recorded')}, is {new.get(key, 'not recorded')}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key) and decides(key[1], key[2])
    ]
    more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
    return "; ".join(changed[:SHOWN]) + more


def environment_table(rows: Iterable[Mapping[str, str]], identity: str) -> pa.Table:
    """The rows with their id."""
    return table("environment", [{**row, "environment_id": identity} for row in rows])


def unrecorded(recorded: Iterable[Mapping[str, str]], rows: Iterable[Mapping[str, str]]) -> list[dict[str, str]]:
    """The rows that are not yet among the recorded ones, in their order."""
    known = {(row["node"], row["subject"], row["name"], row["value"]) for row in recorded}
    return [dict(row) for row in rows if (row["node"], row["subject"], row["name"], row["value"]) not in known]


def decides(subject: str, name: str) -> bool:
    """Whether a fact belongs to the environment's identity."""
    return subject not in (PACKAGE, EXAMINED, INVENTORY, MEMBER) and (subject, name) not in RECORDED_ONLY
