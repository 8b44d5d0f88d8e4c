"""Nodes and GPUs as plain data: what `plan` decides on and what `telemetry` and `run` find out.

Nothing here looks at a machine. Callers: `plan` (rules), `telemetry.facts` (fills it from NVML and psutil), `run`
(fills it for a whole cluster), `cli` (`--assume`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One NVIDIA GPU of a node."""

    name: str
    uuid: str
    index: int
    memory_mib: int | None = None
    power_limit_w: float | None = None


@dataclass(frozen=True, kw_only=True)
class GpuLink:
    """How two GPUs of a node are connected: their UUIDs and the label of `nvidia-smi topo -m`, such as `PHB`."""

    a: str
    b: str
    label: str


@dataclass(frozen=True, kw_only=True)
class Node:
    """One machine: its GPUs, in PCI bus order, the links between them as far as known, and its CPU count."""

    node_id: str
    cpus: int
    gpus: tuple[Gpu, ...] = ()
    nccl_version: tuple[int, int, int] | None = None
    links: tuple[GpuLink, ...] = ()

    def describe(self) -> str:
        """Its GPUs in words, such as `4x NVIDIA H200`, else its cores."""
        counts = Counter(gpu.name for gpu in self.gpus)
        return " + ".join(f"{count}x {name}" for name, count in sorted(counts.items())) or f"{self.cpus} CPU cores"


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """What a sweep can run on. `device` is `cuda` where any node has a GPU, else `cpu`.

    `assumed` is true for a machine named by `--assume`: nothing was looked at.
    """

    nodes: tuple[Node, ...]
    assumed: bool = False
    notes: tuple[str, ...] = field(default=())

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """All GPUs of all nodes, node by node."""
        return tuple(gpu for node in self.nodes for gpu in node.gpus)

    @property
    def device(self) -> str:
        """`cuda` or `cpu`."""
        return "cuda" if self.gpus else "cpu"

    @property
    def cpus(self) -> int:
        """CPU count of all nodes."""
        return sum(node.cpus for node in self.nodes)

    def describe(self) -> str:
        """A short phrase, such as `2x NVIDIA H200` or `CPU only, 2 cores`."""
        if not self.gpus:
            return f"CPU only, {self.cpus} cores"
        counts = Counter(gpu.name for gpu in self.gpus)
        text = " + ".join(f"{count}x {name}" for name, count in sorted(counts.items()))
        return text if len(self.nodes) == 1 else f"{text} on {len(self.nodes)} nodes"
