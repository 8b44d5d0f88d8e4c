"""The nodes that a sweep runs on: in a mixed cluster one pool whose nodes hold the same GPU models.

A scaling figure over unlike cards compares cards. So nodes are put into pools by the models on them, and a sweep
measures one pool: that of the model it names, else the one with most GPUs. A node that mixes GPU generations is
refused unless the sweep allows it (PLAYBOOK P6, P23). Pure; called by `plan.expand`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rtxscale.devices.gpus import find_gpu
from rtxscale.devices.inventory import Gpu, Inventory, Node
from rtxscale.errors import PlanError
from rtxscale.spec.sweep import Hardware

Models = tuple[tuple[str, int | None], ...]
"""The different models on a node: name as NVML tells it, memory in MiB."""


def matched_pool(hardware: Hardware, inventory: Inventory) -> Inventory:
    """The pool that the sweep runs on, with a note on what is left out and why; all nodes where there are no GPUs.

    Raises:
        PlanError: a node mixes generations, or no node has the model that is asked for.
    """
    if hardware.device == "cpu" or not inventory.gpus:
        return inventory
    pools = pools_of(inventory)
    chosen = _asked(hardware.gpu, pools, inventory)
    if hardware.mixed_generations == "refuse":
        _refuse_mixed(pools[chosen])
    notes = (*inventory.notes, *_left_out(chosen, pools), *_mixed(pools[chosen]))
    return replace(inventory, nodes=pools[chosen], notes=notes)


def pools_of(inventory: Inventory) -> dict[Models, tuple[Node, ...]]:
    """Nodes with GPUs by the models on them, in the order of the inventory."""
    pools: dict[Models, list[Node]] = {}
    for node in inventory.nodes:
        if node.gpus:
            pools.setdefault(models_of(node), []).append(node)
    return {models: tuple(nodes) for models, nodes in pools.items()}


def models_of(node: Node) -> Models:
    """The different models on a node."""
    return tuple(sorted({(gpu.name, gpu.memory_mib) for gpu in node.gpus}, key=lambda one: (one[0], one[1] or 0)))


def generations_of(node: Node) -> tuple[str, ...]:
    """The different GPU generations on a node, of the models that are known."""
    facts = (find_gpu(gpu.name, gpu.memory_mib) for gpu in node.gpus)
    return tuple(sorted({found.architecture for found in facts if found is not None}))


def _asked(name: str, pools: dict[Models, tuple[Node, ...]], inventory: Inventory) -> Models:
    if name == "auto":
        return max(pools, key=lambda models: _count(pools[models]))
    wanted = " ".join(name.lower().split())
    fitting = [models for models in pools if any(wanted in _names(model) for model in models)]
    if len(fitting) != 1:
        there = ", ".join(sorted({gpu.name for gpu in inventory.gpus}))
        found = "several kinds of nodes with it" if fitting else "no node with it"
        raise PlanError(f"hardware.gpu: {name}: found {found}; expected one of {there}, or auto")
    return fitting[0]


def _names(model: tuple[str, int | None]) -> set[str]:
    """How a model may be called: as NVML does, and as the table of known GPUs does."""
    facts = find_gpu(*model)
    return {model[0].lower()} | (set() if facts is None else {facts.label.lower()})


def _refuse_mixed(nodes: Sequence[Node]) -> None:
    for node in nodes:
        generations = generations_of(node)
        if len(generations) > 1:
            raise PlanError(
                f"found {' and '.join(generations)} GPUs in {node.node_id} ({node.describe()}); expected one "
                "generation per node: hide the others (CUDA_VISIBLE_DEVICES) or say hardware.mixed_generations: allow"
            )


def _left_out(chosen: Models, pools: dict[Models, tuple[Node, ...]]) -> Iterator[str]:
    if len(pools) < 2:
        return
    others = "; ".join(
        f"{_count(nodes)} GPUs on {', '.join(node.node_id for node in nodes)} ({_words(nodes[0].gpus)})"
        for models, nodes in pools.items()
        if models != chosen
    )
    yield (
        f"a mixed cluster: this sweep runs on its {_count(pools[chosen])} {_words(pools[chosen][0].gpus)}; left out: "
        f"{others}: hardware.gpu picks the model, in a sweep of its own"
    )


def _mixed(nodes: Sequence[Node]) -> Iterator[str]:
    for node in nodes:
        names = sorted({gpu.name for gpu in node.gpus})
        if len(names) > 1:
            yield f"different GPUs in {node.node_id} ({', '.join(names)}): a figure over them compares models too"


def _count(nodes: Sequence[Node]) -> int:
    return sum(len(node.gpus) for node in nodes)


def _words(gpus: Sequence[Gpu]) -> str:
    return " + ".join(dict.fromkeys(gpu.name for gpu in gpus))
