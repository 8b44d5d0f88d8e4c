"""Which workers of a session run where: chosen here, from nodes and links as data, and carried out by `run`.

A session is matched: as many workers on every node it uses. GPUs are the first of their node in PCI bus order, or one
representative set of a class of links: of the sets whose worst pair has that class the one with most such pairs, then
the first. Ray gives all workers of a session one `CUDA_VISIBLE_DEVICES`, so the GPUs have the same indices on every
node. Not here: which models may be mixed (`plan.pools`). Pure; callers: `plan.rules`, `plan.order`, `plan.confirm`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, islice

from rtxscale.devices.inventory import Gpu, Node
from rtxscale.plan.model import Placement
from rtxscale.spec.cell import LINK_CLASSES, PER_CLASS, Cell
from rtxscale.topology.links import Link, LinkClass, links_of_set, read_link

CROSS_NODE = "cross_node"
CLASS_OF: dict[LinkClass, str] = {
    LinkClass.NVLINK: "nvlink",
    LinkClass.BOARD: "same_switch",
    LinkClass.PIX: "same_switch",
    LinkClass.PXB: "same_switch",
    LinkClass.PHB: "same_root",
    LinkClass.NODE: "same_numa",
    LinkClass.SYS: "cross_socket",
}
"""Class of a set of GPUs by its worst link; a link that nobody knows is in none."""
WITHIN_NODE = tuple(name for name in LINK_CLASSES if name != CROSS_NODE)
MOST_SETS = 20_000
"""Sets of GPUs of a node that are looked at, in PCI bus order: all of them up to 8 of 16."""
MOST_NODE_SETS = 200
"""Sets of nodes that are tried, in order, for GPUs with the same indices: the first one nearly always has them."""

Shape = tuple[int, int | None, int | None, str]
"""Workers in all, nodes and workers on each (None: free), placement."""


class Placer:
    """Chooses among the nodes of one pool; asked for the same shape again, it answers from memory."""

    def __init__(self, nodes: Sequence[Node], device: str) -> None:
        """`device` is `cuda` or `cpu`: what a worker occupies one of."""
        self._nodes = tuple(node for node in nodes if device == "cpu" or node.gpus)
        self._on_cpu = device == "cpu"
        self._known: dict[Shape, Placement | str] = {}
        self._by_class: dict[tuple[str, int], dict[str, tuple[Gpu, ...]]] = {}

    @property
    def slots(self) -> int:
        """GPUs that a baseline of one worker is measured on in turn; one place on CPUs."""
        return 1 if self._on_cpu else sum(len(node.gpus) for node in self._nodes)

    def slot(self, slot: int) -> Placement:
        """One worker on the GPU at place `slot` of the whole pool; on CPUs on the first node."""
        if self._on_cpu:
            return Placement(nodes=(self._nodes[0].node_id,))
        node, gpu = [(node, gpu) for node in self._nodes for gpu in node.gpus][slot]
        return Placement(nodes=(node.node_id,), gpu_uuids=(gpu.uuid,), visible=str(gpu.index))

    def of(self, cell: Cell) -> Placement | str:
        """Where the workers of a cell run, or in words why there is no such place."""
        return self.place(cell.gpus, cell.nodes, cell.gpus_per_node, cell.placement)

    def place(
        self, gpus: int, nodes: int | None = None, gpus_per_node: int | None = None, placement: str = "packed"
    ) -> Placement | str:
        """Where so many workers run, or in words why there is no such place; both of the middle two or none."""
        shape = (gpus, nodes, gpus_per_node, placement)
        if shape not in self._known:
            self._known[shape] = self.slot(0) if gpus == 1 else self._choose(*shape)
        return self._known[shape]

    def classes(self, gpus: int, nodes: int | None = None, gpus_per_node: int | None = None) -> tuple[str, ...]:
        """The classes of links that so many workers can have here, closest first."""
        found = ((name, self.place(gpus, nodes, gpus_per_node, name)) for name in LINK_CLASSES)
        return tuple(name for name, place in found if isinstance(place, Placement))

    def _choose(self, gpus: int, nodes: int | None, gpus_per_node: int | None, placement: str) -> Placement | str:
        if placement == PER_CLASS:
            raise ValueError("by_class stands for several placements: ask for one of them")
        if placement in WITHIN_NODE:
            return self._of_class(gpus, nodes, placement)
        if placement == "spread" and nodes is not None:
            return "placement spread chooses the number of nodes itself; leave nodes and gpus_per_node out"
        if placement == CROSS_NODE and nodes == 1:
            return "placement cross_node needs two nodes; nodes is 1"
        if placement == "packed" and nodes is None and self._on_cpu:
            return self._filled(gpus)
        return self._matched(gpus, self._counts(gpus, nodes, placement), placement)

    def _counts(self, gpus: int, nodes: int | None, placement: str) -> Iterable[int]:
        """Numbers of nodes to try, the wished one first."""
        if nodes is not None:
            return (nodes,)
        most = min(len(self._nodes), gpus)
        if placement == "spread":
            return range(most, 1, -1)
        return range(2 if placement == CROSS_NODE else 1, most + 1)

    def _matched(self, gpus: int, counts: Iterable[int], placement: str) -> Placement | str:
        """The first number of nodes on which as many workers each have room."""
        counts = tuple(counts)
        for count in counts:
            each, left = divmod(gpus, count)
            room = [] if left else [node for node in self._nodes if self._room(node) >= each]
            for chosen in islice(combinations(room, count), MOST_NODE_SETS):
                if (found := self._first(chosen, each)) is not None:
                    return found
        unit = "CPU cores" if self._on_cpu else "GPUs"
        there = ", ".join(f"{node.node_id} with {self._room(node)}" for node in self._nodes[:4])
        more = f" and {len(self._nodes) - 4} more" if len(self._nodes) > 4 else ""
        on = f"{counts[0]} nodes" if len(counts) == 1 else "any number of nodes"
        same = "" if self._on_cpu or len(self._nodes) < 2 else " and with the same indices"
        return f"placement {placement}: {gpus} {unit} on {on}, as many on each{same}, are not there: {there}{more}"

    def _room(self, node: Node) -> int:
        """Workers that a node holds."""
        return node.cpus if self._on_cpu else len(node.gpus)

    def _first(self, nodes: Sequence[Node], each: int) -> Placement | None:
        """The first `each` CPUs, or GPUs with indices that all the nodes have; None where those do not suffice."""
        names = tuple(node.node_id for node in nodes for _ in range(each))
        if self._on_cpu:
            return Placement(nodes=names, link_class=CROSS_NODE if len(nodes) > 1 else None)
        shared = set.intersection(*({gpu.index for gpu in node.gpus} for node in nodes))
        chosen = [[gpu for gpu in node.gpus if gpu.index in shared][:each] for node in nodes]
        if any(len(gpus) < each for gpus in chosen):
            return None
        if len(nodes) == 1:
            return _on_node(nodes[0], chosen[0])
        uuids = tuple(gpu.uuid for gpus in chosen for gpu in gpus)
        return Placement(nodes=names, gpu_uuids=uuids, visible=_visible(chosen[0]), link_class=CROSS_NODE)

    def _filled(self, workers: int) -> Placement | str:
        """CPU workers on the first node that holds all, else on node after node."""
        for node in self._nodes:
            if node.cpus >= workers:
                return Placement(nodes=(node.node_id,) * workers)
        names = [node.node_id for node in self._nodes for _ in range(node.cpus)]
        if len(names) < workers:
            return f"{workers} CPU cores asked for, {len(names)} there"
        return Placement(nodes=tuple(names[:workers]), link_class=CROSS_NODE)

    def _of_class(self, gpus: int, nodes: int | None, name: str) -> Placement | str:
        """The representative GPUs of a class, on the first node that has them."""
        if self._on_cpu:
            return f"placement {name} is about links between GPUs; CPU workers have packed, spread and cross_node"
        if nodes not in (None, 1):
            return f"placement {name} is within one node; nodes is {nodes}"
        for node in self._nodes:
            if found := self._classes_of(node, gpus).get(name):
                return _on_node(node, found)
        known = any(node.links for node in self._nodes)
        why = "no node has such a set" if known else "the links between the GPUs are not known here"
        return f"placement {name} with {gpus} GPUs: {why}"

    def _classes_of(self, node: Node, gpus: int) -> dict[str, tuple[Gpu, ...]]:
        """The representative set of each class that `gpus` GPUs of a node can have."""
        key = (node.node_id, gpus)
        if key not in self._by_class:
            self._by_class[key] = _representatives(node, gpus) if node.links else {}
        return self._by_class[key]


def _representatives(node: Node, gpus: int) -> dict[str, tuple[Gpu, ...]]:
    links = _links(node)
    best: dict[str, tuple[int, tuple[Gpu, ...]]] = {}
    for chosen in islice(combinations(node.gpus, gpus), MOST_SETS):
        name = class_of((gpu.uuid for gpu in chosen), links)
        if name is None:
            continue
        pairs = combinations((gpu.uuid for gpu in chosen), 2)
        crossing = sum(CLASS_OF.get(links[pair].kind) == name for pair in pairs)
        if name not in best or crossing > best[name][0]:
            best[name] = (crossing, chosen)
    return {name: chosen for name, (_, chosen) in best.items()}


def class_of(uuids: Iterable[str], links: dict[tuple[str, str], Link]) -> str | None:
    """Class of the worst link among these GPUs; None for one GPU, or where a link is not known."""
    found = links_of_set(uuids, links)
    return None if found.unknown or found.worst is None else CLASS_OF.get(found.worst.kind)


def _links(node: Node) -> dict[tuple[str, str], Link]:
    """The links of a node by pairs of UUIDs in both orders."""
    read = {(link.a, link.b): read_link(link.label) for link in node.links}
    return read | {(b, a): link for (a, b), link in read.items()}


def _on_node(node: Node, gpus: Sequence[Gpu]) -> Placement:
    uuids = tuple(gpu.uuid for gpu in gpus)
    return Placement(
        nodes=(node.node_id,) * len(uuids),
        gpu_uuids=uuids,
        visible=_visible(gpus),
        link_class=class_of(uuids, _links(node)) if len(uuids) > 1 else None,
    )


def _visible(gpus: Iterable[Gpu]) -> str:
    return ",".join(str(gpu.index) for gpu in gpus)
