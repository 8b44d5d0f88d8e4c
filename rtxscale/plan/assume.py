"""Machines named in words, such as `4x RTX 5090` or `8 nodes of 4x RTX 5090`, as an inventory to plan for.

Names are exact: an unknown card is refused with the nearest known ones, never taken for a neighbour. Nothing is looked
at. Called by `cli`.
"""

from __future__ import annotations

import re
from dataclasses import replace

from rtxscale.devices.gpus import find_by_user_text, known_labels, nearest_names
from rtxscale.devices.inventory import Gpu, Inventory, Node
from rtxscale.errors import BadInput

GPUS = re.compile(r"\s*(?:(\d{1,4})\s*(?:x|×|\*)?\s+|(\d{1,4})\s*(?:x|×|\*)\s*)?(\S.*?)\s*", re.IGNORECASE)  # noqa: RUF001 - people paste the sign
CPU = re.compile(r"\s*(?:(\d{1,4})\s*(?:x|×|\*)?\s*)?cpus?\s*", re.IGNORECASE)  # noqa: RUF001 - as above

NODES = re.compile(r"\s*(\d{1,4})\s+nodes?\s+(?:of|with)\s+(\S.*)", re.IGNORECASE)

CPU_CORES = 8
CORES_PER_GPU = 8
MOST = 1024
EXAMPLES = '"4x RTX 5090", "2x RTX PRO 5000 72 GB", "8 nodes of 4x RTX 5090" or "cpu"'


def assumed_inventory(text: str) -> Inventory:
    """Nodes with the GPUs (or CPU cores) that the text names, one where it says nothing of nodes.

    Raises:
        BadInput: the card is not known by exactly this name, or a count is not 1 to 1024.
    """
    several = NODES.fullmatch(text)
    if several is None:
        return _one_node(text)
    one = _one_node(several.group(2))
    nodes = tuple(_renamed(one.nodes[0], f"assumed{place}") for place in range(_count(text, several.group(1), 1)))
    return replace(one, nodes=nodes, notes=(f"{one.notes[0]}; {len(nodes)} such nodes",))


def _renamed(node: Node, name: str) -> Node:
    return replace(node, node_id=name, gpus=tuple(replace(gpu, uuid=f"GPU-{name}-{gpu.index}") for gpu in node.gpus))


def _one_node(text: str) -> Inventory:
    cpu = CPU.fullmatch(text)
    if cpu:
        cores = _count(text, cpu.group(1), CPU_CORES)
        note = f"assumed: {cores} CPU cores, no GPU"
        return Inventory(nodes=(Node(node_id="assumed", cpus=cores),), assumed=True, notes=(note,))
    match = GPUS.fullmatch(text)
    if match is None:
        raise BadInput(f"--assume: found {text!r}; expected a count and a GPU, such as {EXAMPLES}")
    count = _count(text, match.group(1) or match.group(2), 1)
    facts = find_by_user_text(match.group(3))
    if facts is None:
        raise BadInput(_unknown(match.group(3)))
    gpus = tuple(
        Gpu(name=facts.name, uuid=f"GPU-assumed-{index}", index=index, memory_mib=facts.memory_gib * 1024)
        for index in range(count)
    )
    node = Node(node_id="assumed", cpus=CORES_PER_GPU * count, gpus=gpus)
    note = f"assumed: one node, {count}x {facts.label}, {CORES_PER_GPU} CPU cores per GPU"
    return Inventory(nodes=(node,), assumed=True, notes=(note,))


def _count(text: str, digits: str | None, default: int) -> int:
    count = default if digits is None else int(digits)
    if not 1 <= count <= MOST:
        raise BadInput(f"--assume: found a count of {count} in {text!r}; expected 1 to {MOST}")
    return count


def _unknown(name: str) -> str:
    near = nearest_names(name) or known_labels()
    return f"--assume: found the GPU {name!r}, which is not known by that name; nearest: {', '.join(near)}"
