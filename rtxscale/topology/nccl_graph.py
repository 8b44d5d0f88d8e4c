"""NCCL's own view of the links, from the graph lines of its log (`NCCL_DEBUG_SUBSYS=GRAPH`).

A third source beside NVML and nvidia-smi, and one that follows NCCL's settings: with peer access off, its paths between
GPUs go through the CPU. Not which algorithm ran (`nccl.log`). Callers: `topology.sources`, reports.

Source: NVIDIA/nccl src/graph/topo.cc and paths.cc at v2.18 to v2.28: `printNodePaths`, `ncclTopoPrintRec`,
`topoPathTypeStr`, `busIdToInt64`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rtxscale.topology.links import Link, LinkClass
from rtxscale.topology.matrix import clean_lines

# What nvidia-smi may call a path of NCCL's type. NCCL has no NODE: all host bridges of a NUMA node are one CPU in
# its graph. NVB goes over another GPU's NVLinks, where nvidia-smi names the direct way.
PATH_TYPES: Mapping[str, tuple[frozenset[LinkClass], str]] = {
    "LOC": (frozenset({LinkClass.SELF}), "the device itself"),
    "NVL": (frozenset({LinkClass.NVLINK}), "NVLink"),
    "NVB": (frozenset(LinkClass) - {LinkClass.SELF, LinkClass.NVLINK}, "NVLink over another GPU"),
    "C2C": (frozenset(), "NVLink-C2C between CPU and GPU"),
    "PIX": (frozenset({LinkClass.PIX, LinkClass.BOARD}), "at most one PCIe bridge"),
    "PXB": (frozenset({LinkClass.PXB}), "several PCIe bridges, without the CPU's host bridge"),
    "P2C": (frozenset(), "a network device reached over the CPU's C2C link"),
    "PXN": (frozenset(), "a network device reached over another GPU"),
    "PHB": (frozenset({LinkClass.PHB, LinkClass.NODE}), "a PCIe host bridge, typically the CPU"),
    "SYS": (frozenset({LinkClass.SYS}), "the interconnect between NUMA nodes"),
    "NET": (frozenset(), "the network"),
    "DIS": (frozenset(), "no way at all"),
}
_ID = r"[0-9a-f]{1,16}(?:-[0-9a-f]{1,16})?"
_FROM = re.compile(rf"(?:^|\s)(GPU/{_ID}) :(?=[A-Z]{{3}}/)", re.ASCII)
_PATH = re.compile(rf"([A-Z]{{3}}/{_ID}) \((\d{{1,4}})/(\d{{1,9}}(?:\.\d{{1,9}})?)/([A-Z0-9]{{3}})\)", re.ASCII)
_RANK = re.compile(rf"\+ [A-Z0-9]{{3}}\[[\d.]{{1,12}}\] - (GPU/{_ID}) \((\d{{1,6}})\)", re.ASCII)
_BUS_ID = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-9a-f])", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class NcclPath:
    """The best path NCCL found between two GPUs: its type, the hops and NCCL's model bandwidth in GB/s."""

    source: str
    target: str
    kind: str
    hops: int
    bandwidth_gb_s: float


@dataclass(frozen=True, kw_only=True)
class NcclGraph:
    """Distinct paths between GPUs in order of appearance, and ranks by node name.

    Several paths of one pair mean that ranks, or communicators with different settings, see different things.
    """

    paths: tuple[NcclPath, ...]
    ranks: Mapping[str, tuple[int, ...]]

    def between(self, a: str, b: str) -> tuple[NcclPath, ...]:
        """All distinct paths from a to b or from b to a."""
        return tuple(path for path in self.paths if {path.source, path.target} == {a, b})


def parse_graph(text: str) -> NcclGraph:
    """Paths between GPUs in a piece of NCCL log; never raises. NCCL cuts its lines at 1024 characters.

    >>> parse_graph("[0] NCCL INFO GPU/0-60 :GPU/0-60 (0/5000.0/LOC) GPU/0-70 (2/370.8/NVL) ").paths[0].kind
    'NVL'
    """
    paths: dict[NcclPath, None] = {}
    ranks: dict[str, dict[int, None]] = {}
    for _, line in clean_lines(text):
        if (start := _FROM.search(line)) is not None:
            for target, hops, bandwidth, kind in _PATH.findall(line, start.end()):
                if target.startswith("GPU/") and target != start[1]:
                    path = NcclPath(
                        source=start[1], target=target, kind=kind, hops=int(hops), bandwidth_gb_s=float(bandwidth)
                    )
                    paths[path] = None
        elif match := _RANK.search(line):
            ranks.setdefault(match[1], {})[int(match[2])] = None
    return NcclGraph(paths=tuple(paths), ranks={name: tuple(found) for name, found in ranks.items()})


def node_name(bus_id: str, system: int = 0) -> str | None:
    """NCCL's name of the GPU with this PCI bus id on the given host of the job; None for text that is no bus id.

    >>> node_name("00000000:C1:00.0"), node_name("0000:00:06.0")
    ('GPU/0-c1000', 'GPU/0-60')
    """
    match = _BUS_ID.fullmatch(bus_id.strip().lower())
    if match is None:
        return None
    domain, bus, device = (int(part, 16) for part in match.groups()[:3])
    # The function (last digit) is dropped: functions of one device share its PCIe link.
    return f"GPU/{system:x}-{domain << 20 | bus << 12 | device << 4:x}"


def link_of_path(path: NcclPath) -> Link:
    """NCCL's path in the common vocabulary, nearest class first where it can mean several."""
    allowed, _ = PATH_TYPES.get(path.kind, (frozenset(), ""))
    kind = min(allowed, key=lambda one: one.distance, default=LinkClass.OTHER)
    return Link(kind=kind, label=path.kind)
