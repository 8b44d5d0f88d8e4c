"""The machine that a run was planned for: as its environment tells it, else as much of it as its trials name.

The second is a part: a card that no trial ran on is not in it. Called by `trial_counts`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from rtxscale.devices.gpus import find_gpu
from rtxscale.devices.inventory import Gpu, Inventory, Node
from rtxscale.results.outcomes import SIMULATED
from rtxscale.results.read import Run

NODE = "node"
"""Name of the only node, where trials name none."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Nodes and GPUs; `whole` is False where there may be more of them than are known."""

    inventory: Inventory
    whole: bool


def planned_machine(run: Run, trials: pl.DataFrame) -> Machine | None:
    """The nodes with their GPUs or CPU cores; None where neither environment nor trials tell any."""
    devices = set(trials["device"].drop_nulls())
    if SIMULATED in devices:
        return Machine(inventory=Inventory(nodes=(Node(node_id="simulated", cpus=1),)), whole=True)
    facts = run.frame("environment").select("node", "subject", "name", "value").collect()
    told, named = (_told_cpus, _named_cpus) if devices == {"cpu"} else (_told_gpus, _named_gpus)
    for nodes, whole in ((told(facts), True), (named(trials), False)):
        if nodes:
            return Machine(inventory=Inventory(nodes=nodes), whole=whole)
    return None


def _told_cpus(facts: pl.DataFrame) -> tuple[Node, ...]:
    cpus = facts.filter((pl.col("subject") == "host") & (pl.col("name") == "cpus usable"))
    known = cpus.filter(pl.col("value").str.contains(r"^[1-9][0-9]{0,5}$")).unique("node", maintain_order=True)
    return tuple(Node(node_id=str(node), cpus=int(count)) for node, _, _, count in known.iter_rows())


def _named_cpus(trials: pl.DataFrame) -> tuple[Node, ...]:
    """One node with as many cores as the largest trial used."""
    cores = (trials["gpus"] * trials["threads"].fill_null(1)).max()
    return (Node(node_id=NODE, cpus=int(cores)),) if isinstance(cores, int) and cores > 0 else ()


def _told_gpus(facts: pl.DataFrame) -> tuple[Node, ...]:
    rows = facts.filter(pl.col("subject") == "gpu")
    nodes = (
        Node(node_id=str(node), cpus=1, gpus=tuple(_gpus(str(node), own)))
        for (node,), own in rows.group_by("node", maintain_order=True)
    )
    return tuple(node for node in nodes if node.gpus)


def _gpus(node: str, facts: pl.DataFrame) -> Iterator[Gpu]:
    values = dict(facts.select("name", "value").iter_rows())
    names = {name.removesuffix(" name"): value for name, value in values.items() if name.endswith(" name") and value}
    for index, (gpu, name) in enumerate(sorted(names.items())):
        memory = str(values.get(f"{gpu} memory") or "").partition(" ")[0]
        mib = int(memory) if memory.isascii() and memory.isdigit() else None
        yield Gpu(name=name, uuid=f"GPU-{node}-{index}", index=index, memory_mib=mib)


def _named_gpus(trials: pl.DataFrame) -> tuple[Node, ...]:
    """The nodes and cards of all trials together; empty where their model is not one, or a trial names none."""
    names = set(trials["device_names"].explode().drop_nulls())
    if len(names) != 1:
        return ()
    name = str(names.pop())
    ranks = trials.select("gpu_uuids", nodes=pl.col("node_names").fill_null([])).drop_nulls("gpu_uuids").unique()
    cards: dict[str, dict[str, None]] = {}
    for uuids, nodes in ranks.sort("nodes", "gpu_uuids").iter_rows():
        for uuid, node in zip(uuids, nodes if len(nodes) == len(uuids) else [NODE] * len(uuids), strict=True):
            cards.setdefault(str(node), {})[str(uuid)] = None
    documented = find_gpu(name)
    memory = None if documented is None else documented.memory_gib * 1024
    return tuple(
        Node(node_id=node, cpus=1, gpus=tuple(_made(name, uuid, index, memory) for index, uuid in enumerate(uuids)))
        for node, uuids in cards.items()
    )


def _made(name: str, uuid: str, index: int, memory_mib: int | None) -> Gpu:
    return Gpu(name=name, uuid=uuid, index=index, memory_mib=memory_mib)
