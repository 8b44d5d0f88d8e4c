"""Which workers of a session run where: pure, from the nodes and the session's key.

Ray's own choice is the lowest free GPU; a session wants a named set (the first n of the pool, or one slot for a 1-GPU
baseline), so each worker is pinned to its node and sees that node's chosen GPUs alone. Caller: `run.session`.
"""

from __future__ import annotations

from dataclasses import dataclass

from rtxscale.devices.inventory import Node
from rtxscale.errors import RunError


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a session's workers run.

    `nodes` names the node of each worker, by rank; `gpu_uuids` their GPUs, node by node in PCI bus order (empty on
    CPU); `visible` is `CUDA_VISIBLE_DEVICES` for all of them, None on CPU.
    """

    nodes: tuple[str, ...]
    gpu_uuids: tuple[str, ...] = ()
    visible: str | None = None

    @property
    def world(self) -> int:
        """Number of workers."""
        return len(self.nodes)

    @property
    def distinct_nodes(self) -> tuple[str, ...]:
        """Nodes used, each once, in order."""
        return tuple(dict.fromkeys(self.nodes))


def place(nodes: tuple[Node, ...], device: str, workers: int, slot: int = 0) -> Placement:
    """Choose nodes and GPUs for `workers` workers; `slot` picks the GPU of a 1-worker session.

    One node is used where one is large enough, else whole nodes in order.

    Raises:
        RunError: the nodes do not hold that many, or Ray cannot express the choice.

    >>> place((Node(node_id="node0", cpus=4),), "cpu", 2).nodes
    ('node0', 'node0')
    """
    if device == "cpu":
        return Placement(nodes=_fill([(node.node_id, node.cpus) for node in nodes], workers))
    if workers == 1:
        return _slot(nodes, slot)
    names = _fill([(node.node_id, len(node.gpus)) for node in nodes], workers)
    chosen: list[tuple[str, ...]] = []
    uuids: list[str] = []
    for node in nodes:
        count = names.count(node.node_id)
        gpus = node.gpus[:count]
        uuids += [gpu.uuid for gpu in gpus]
        if count:
            chosen.append(tuple(str(gpu.index) for gpu in gpus))
    longest = max(chosen, key=len)
    if any(indices != longest[: len(indices)] for indices in chosen):
        raise RunError(
            f"found GPU indices {chosen} on the nodes of a session; expected the same indices on every node, "
            "because all its workers share one CUDA_VISIBLE_DEVICES"
        )
    return Placement(nodes=names, gpu_uuids=tuple(uuids), visible=",".join(longest))


def _slot(nodes: tuple[Node, ...], slot: int) -> Placement:
    """One worker on the GPU at place `slot` of the whole pool."""
    pool = [(node.node_id, gpu) for node in nodes for gpu in node.gpus]
    if slot >= len(pool):
        raise RunError(f"found {len(pool)} GPUs; expected at least {slot + 1} for the baseline on GPU {slot}")
    name, gpu = pool[slot]
    return Placement(nodes=(name,), gpu_uuids=(gpu.uuid,), visible=str(gpu.index))


def _fill(capacity: list[tuple[str, int]], workers: int) -> tuple[str, ...]:
    """The node of each worker: the first node that holds all, else node after node."""
    for name, room in capacity:
        if room >= workers:
            return (name,) * workers
    names = [name for name, room in capacity for _ in range(room)]
    if len(names) < workers:
        raise RunError(f"found room for {len(names)} workers; expected at least {workers}: plan again on this cluster")
    return tuple(names[:workers])
