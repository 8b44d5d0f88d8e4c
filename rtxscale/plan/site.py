"""What rules need to know about the machines that a sweep is planned for. Pure; callers: `plan.expand`, `plan.fit`."""

from __future__ import annotations

from dataclasses import dataclass, field

from rtxscale.devices.gpus import find_gpu
from rtxscale.devices.inventory import Inventory
from rtxscale.plan.placement import Placer


@dataclass(frozen=True, kw_only=True)
class Site:
    """What the rules need to know about the machines: `workers` in all (GPUs, or CPUs), and who sits where.

    `memory_mib` is that of the smallest GPU, None on CPUs or where a GPU's is not known.
    """

    device: str
    workers: int
    placer: Placer = field(compare=False, repr=False)
    nccl_version: tuple[int, int, int] | None
    memory_mib: int | None = None
    capability: tuple[int, int] | None = None
    """Lowest compute capability of the GPUs; None where that of any is not known."""

    @property
    def unit(self) -> str:
        """What a worker occupies."""
        return "GPUs" if self.device == "cuda" else "CPU cores"


def site_of(inventory: Inventory, device: str) -> Site:
    """The site that an inventory is when `device` is used."""
    counts = [len(node.gpus) if device == "cuda" else node.cpus for node in inventory.nodes]
    versions = [node.nccl_version for node in inventory.nodes if node.gpus]
    known = [version for version in versions if version is not None]
    oldest = min(known) if device == "cuda" and known and len(known) == len(versions) else None
    return Site(
        device=device,
        workers=sum(counts),
        placer=Placer(inventory.nodes, device),
        nccl_version=oldest,
        memory_mib=_smallest_memory(inventory) if device == "cuda" else None,
        capability=_lowest_capability(inventory) if device == "cuda" else None,
    )


def _lowest_capability(inventory: Inventory) -> tuple[int, int] | None:
    facts = [find_gpu(gpu.name, gpu.memory_mib) for gpu in inventory.gpus]
    known = [found.compute_capability for found in facts if found is not None]
    return min(known) if known and len(known) == len(facts) else None


def _smallest_memory(inventory: Inventory) -> int | None:
    sizes = [gpu.memory_mib for gpu in inventory.gpus]
    known = [size for size in sizes if size is not None]
    return min(known) if known and len(known) == len(sizes) else None
