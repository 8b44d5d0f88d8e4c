"""Classes of connection between two devices: their order of distance, and the class of a set of GPUs.

One vocabulary for three sources: `nvidia-smi topo -m`, NVML's common-ancestor levels, NCCL's path types. Not whether
peer access works: a short link may refuse it. Callers: `topology.smi`, `topology.sources`, the doctor, reports.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations


class LinkClass(StrEnum):
    """How two devices are connected, nearest first. The value is nvidia-smi's label; `BOARD` is only NVML's."""

    SELF = "X"
    NVLINK = "NV"
    BOARD = "BOARD"
    PIX = "PIX"
    PXB = "PXB"
    PHB = "PHB"
    NODE = "NODE"
    SYS = "SYS"
    OTHER = "OTHER"

    @property
    def distance(self) -> int:
        """Place in the order of distance: 0 for the device itself; a label nobody knows counts as farthest."""
        return tuple(LinkClass).index(self)


# Source: legend of `nvidia-smi topo -m`, driver 595; `BOARD`: nvml.h, NVML_TOPOLOGY_INTERNAL.
MEANINGS: Mapping[LinkClass, str] = {
    LinkClass.SELF: "the device itself",
    LinkClass.NVLINK: "a bonded set of NVLinks",
    LinkClass.BOARD: "both on one board",
    LinkClass.PIX: "at most one PCIe bridge",
    LinkClass.PXB: "several PCIe bridges, without the host bridge of the CPU",
    LinkClass.PHB: "PCIe and one PCIe host bridge, typically the CPU",
    LinkClass.NODE: "PCIe and the interconnect between host bridges of one NUMA node",
    LinkClass.SYS: "PCIe and the interconnect between NUMA nodes (QPI, UPI, Infinity Fabric)",
    LinkClass.OTHER: "a label that is not known here",
}
# Source: nvml.h, nvmlGpuTopologyLevel_t; NODE was called CPU before CUDA 10.
NVML_LEVELS: Mapping[int, LinkClass] = {
    0: LinkClass.BOARD,
    10: LinkClass.PIX,
    20: LinkClass.PXB,
    30: LinkClass.PHB,
    40: LinkClass.NODE,
    50: LinkClass.SYS,
}
# Drivers before R384 call SYS "SOC", a socket-level link.
_LABELS = {**{kind.value: kind for kind in LinkClass if kind not in (LinkClass.NVLINK, LinkClass.OTHER)}}
_LABELS["SOC"] = LinkClass.SYS
_NVLINK = re.compile(r"NV([1-9]\d?)", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Link:
    """One connection: its class, the number of bonded NVLinks where it is made of them, and the source's own word."""

    kind: LinkClass
    label: str
    nvlinks: int | None = None

    @property
    def order(self) -> tuple[int, int]:
        """Sorts near before far, and more NVLinks before fewer."""
        return self.kind.distance, -(self.nvlinks or 0)

    @property
    def meaning(self) -> str:
        """What the label says, in words.

        >>> read_link("NV18").meaning
        '18 bonded NVLinks'
        """
        if self.nvlinks is not None:
            return f"{self.nvlinks} bonded NVLinks" if self.nvlinks > 1 else "1 NVLink"
        return MEANINGS[self.kind]


def read_link(label: str) -> Link:
    """The link that a label of `nvidia-smi topo -m` stands for; `OTHER` for a word that is not in its vocabulary.

    >>> read_link("NV4").nvlinks, read_link("SOC").kind.value, read_link("XYZ").kind.value
    (4, 'SYS', 'OTHER')
    """
    word = label.strip()
    if match := _NVLINK.fullmatch(word):
        return Link(kind=LinkClass.NVLINK, label=word, nvlinks=int(match[1]))
    return Link(kind=_LABELS.get(word, LinkClass.OTHER), label=word)


def nvml_link(level: int | None, nvlinks: int | None) -> Link | None:
    """The link that NVML describes by its common-ancestor level and its count of active NVLinks; None for neither.

    >>> nvml_link(30, 0).label, nvml_link(50, 18).label
    ('PHB', 'NV18')
    """
    if nvlinks:
        return Link(kind=LinkClass.NVLINK, label=f"NV{nvlinks}", nvlinks=nvlinks)
    if level is None:
        return None
    kind = NVML_LEVELS.get(level, LinkClass.OTHER)
    return Link(kind=kind, label=kind.value if kind is not LinkClass.OTHER else f"level {level}")


@dataclass(frozen=True, kw_only=True)
class SetOfGpus:
    """The links among a set of GPUs: its class is that of its worst pair, as a ring or tree must cross it."""

    gpus: tuple[str, ...]
    worst: Link | None
    worst_pair: tuple[str, str] | None
    counts: Mapping[str, int]
    unknown: tuple[tuple[str, str], ...]

    @property
    def label(self) -> str | None:
        """Label of the worst pair; None where a pair is unknown, or there is only one GPU."""
        return None if self.unknown or self.worst is None else self.worst.label


def links_of_set(gpus: Iterable[str], links: Mapping[tuple[str, str], Link]) -> SetOfGpus:
    """How the given GPUs hang together, from links keyed by pairs in either order.

    >>> links = {("GPU0", "GPU1"): read_link("NV4"), ("GPU0", "GPU2"): read_link("NODE"),
    ...          ("GPU1", "GPU2"): read_link("NODE")}
    >>> links_of_set(["GPU0", "GPU1"], links).label, links_of_set(["GPU2", "GPU0", "GPU1"], links).label
    ('NV4', 'NODE')
    """
    names = tuple(dict.fromkeys(gpus))
    found: dict[tuple[str, str], Link] = {}
    unknown: list[tuple[str, str]] = []
    for a, b in combinations(names, 2):
        both = [link for link in (links.get((a, b)), links.get((b, a))) if link is not None]
        if both:
            found[a, b] = max(both, key=lambda link: link.order)
        else:
            unknown.append((a, b))
    worst_pair = max(found, key=lambda pair: found[pair].order, default=None)
    return SetOfGpus(
        gpus=names,
        worst=None if worst_pair is None else found[worst_pair],
        worst_pair=worst_pair,
        counts=dict(Counter(link.label for link in sorted(found.values(), key=lambda link: link.order))),
        unknown=tuple(unknown),
    )


def difference(one: SetOfGpus, other: SetOfGpus) -> str | None:
    """What to say where two sets of GPUs are compared and hang together differently; None where they do not.

    >>> links = {("GPU0", "GPU1"): read_link("NV4"), ("GPU0", "GPU2"): read_link("NODE"),
    ...          ("GPU1", "GPU2"): read_link("NODE")}
    >>> difference(links_of_set(["GPU0", "GPU1"], links), links_of_set(["GPU0", "GPU1", "GPU2"], links))
    '2 GPUs linked by NV4 against 3 GPUs linked by NODE: the links differ, not only the number of GPUs'
    """
    # One GPU uses no link, so it can be compared with any set.
    if min(len(one.gpus), len(other.gpus)) < 2 or (one.label == other.label and one.label is not None):
        return None
    unknown = one.label is None or other.label is None
    what = "the links may differ" if unknown else "the links differ, not only the number of GPUs"
    said = [f"{len(found.gpus)} GPUs linked by {found.label or 'unknown links'}" for found in (one, other)]
    return f"{said[0]} against {said[1]}: {what}"
