"""A topology as nodes and edges, ready to be drawn: the devices with their NUMA nodes, and each pair's link.

Data only; the chart is the report's. Caller: `report`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from rtxscale.topology.smi import Topology


@dataclass(frozen=True, kw_only=True)
class DrawnDevice:
    """One device: its name, the name behind it for a numbered NIC, and its NUMA nodes as printed."""

    name: str
    is_gpu: bool
    alias: str | None
    numa: str | None


@dataclass(frozen=True, kw_only=True)
class DrawnLink:
    """One pair: label, meaning in words, and place in the order of distance (0 nearest); all None where unknown."""

    a: str
    b: str
    label: str | None
    meaning: str | None
    distance: int | None


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """Devices in column order, and every pair of them once."""

    devices: tuple[DrawnDevice, ...]
    links: tuple[DrawnLink, ...]


def draw(topology: Topology, *, nics: bool = True) -> Drawing:
    """The drawing of a topology; empty where there is none, so look at its status first."""
    names = topology.devices if nics else topology.gpus
    devices = []
    for name in names:
        placement = topology.placements.get(name)
        devices.append(
            DrawnDevice(
                name=name,
                is_gpu=name in topology.gpus,
                alias=topology.nic_names.get(name),
                numa=None if placement is None else placement.numa,
            )
        )
    return Drawing(devices=tuple(devices), links=tuple(_link(topology, a, b) for a, b in combinations(names, 2)))


def _link(topology: Topology, a: str, b: str) -> DrawnLink:
    link = topology.link(a, b)
    if link is None:
        return DrawnLink(a=a, b=b, label=None, meaning=None, distance=None)
    return DrawnLink(a=a, b=b, label=link.label, meaning=link.meaning, distance=link.kind.distance)
