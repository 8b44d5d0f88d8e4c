"""Machines named in words, such as `4x RTX 5090` or `8 nodes of 4x RTX 5090, 2 nodes of 8x RTX 4090`, to plan for.

`+` joins what is in one node, a comma kinds of nodes. Names are exact: an unknown card is refused with the nearest
known ones, never taken for a neighbour. Nothing is looked at. Called by `cli`.
"""

from __future__ import annotations

import re
from itertools import count

from rtxscale.devices.facts import GpuFacts
from rtxscale.devices.gpus import find_by_user_text, known_labels, nearest_names
from rtxscale.devices.inventory import Gpu, Inventory, Node
from rtxscale.errors import BadInput

GPUS = re.compile(r"\s*(?:(\d{1,4})\s*(?:x|×|\*)?\s+|(\d{1,4})\s*(?:x|×|\*)\s*)?(\S.*?)\s*", re.IGNORECASE)  # noqa: RUF001 - people paste the sign
CPU = re.compile(r"\s*(?:(\d{1,4})\s*(?:x|×|\*)?\s*)?cpus?\s*", re.IGNORECASE)  # noqa: RUF001 - as above

NODES = re.compile(r"\s*(\d{1,4})\s+nodes?\s+(?:of|with)\s+(\S.*)", re.IGNORECASE)

Cards = tuple[tuple[int, GpuFacts], ...]
"""What is in a node: how many of which."""

CPU_CORES = 8
CORES_PER_GPU = 8
MOST = 1024
EXAMPLES = (
    '"4x RTX 5090", "2x RTX PRO 5000 72 GB", "8 nodes of 4x RTX 5090", "2 nodes of 4x RTX 5090, 1 node of 8x RTX '
    '4090", "1x RTX 5090 + 1x RTX 4090" (in one node) or "cpu"'
)


def assumed_inventory(text: str) -> Inventory:
    """Nodes with the GPUs (or CPU cores) that the text names, one where it says nothing of nodes.

    Raises:
        BadInput: a card is not known by exactly its name, a count is not 1 to 1024, or there are more nodes than that.
    """
    kinds = [_kind(part, text) for part in text.split(",")]
    several = sum(number for number, _, _ in kinds) > 1
    names = (f"assumed{place}" for place in count()) if several else iter(["assumed"])
    nodes = tuple(_node(next(names), cards, cores) for number, cards, cores in kinds for _ in range(number))
    if len(nodes) > MOST:
        raise BadInput(f"--assume: found {len(nodes)} nodes in {text!r}; expected at most {MOST}")
    words = "; ".join(_words(*kind) for kind in kinds)
    return Inventory(nodes=nodes, assumed=True, notes=(f"assumed: {words}",))


def _kind(part: str, text: str) -> tuple[int, Cards, int]:
    """How many nodes of a kind, the cards in each, and its CPU cores."""
    several = NODES.fullmatch(part)
    number, inside = (_count(text, several.group(1), 1), several.group(2)) if several else (1, part)
    if cpu := CPU.fullmatch(inside):
        return number, (), _count(text, cpu.group(1), CPU_CORES)
    cards = tuple(_cards(words, text) for words in inside.split("+"))
    total = _count(text, str(sum(each for each, _ in cards)), 1)
    return number, cards, CORES_PER_GPU * total


def _cards(words: str, text: str) -> tuple[int, GpuFacts]:
    match = GPUS.fullmatch(words)
    if match is None:
        raise BadInput(f"--assume: found {text!r}; expected a count and a GPU, such as {EXAMPLES}")
    facts = find_by_user_text(match.group(3))
    if facts is None:
        raise BadInput(_unknown(match.group(3)))
    return _count(text, match.group(1) or match.group(2), 1), facts


def _node(name: str, cards: Cards, cores: int) -> Node:
    models = [facts for each, facts in cards for _ in range(each)]
    gpus = tuple(
        Gpu(name=facts.name, uuid=f"GPU-{name}-{index}", index=index, memory_mib=facts.memory_gib * 1024)
        for index, facts in enumerate(models)
    )
    return Node(node_id=name, cpus=cores, gpus=gpus)


def _words(number: int, cards: Cards, cores: int) -> str:
    nodes = "one node" if number == 1 else f"{number} nodes"
    if not cards:
        return f"{nodes}, {cores} CPU cores, no GPU"
    return (
        f"{nodes}, {' + '.join(f'{each}x {facts.label}' for each, facts in cards)}, {CORES_PER_GPU} CPU cores per GPU"
    )


def _count(text: str, digits: str | None, default: int) -> int:
    count = default if digits is None else int(digits)
    if not 1 <= count <= MOST:
        raise BadInput(f"--assume: found a count of {count} in {text!r}; expected 1 to {MOST}")
    return count


def _unknown(name: str) -> str:
    near = nearest_names(name) or known_labels()
    return f"--assume: found the GPU {name!r}, which is not known by that name; nearest: {', '.join(near)}"
