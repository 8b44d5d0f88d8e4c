"""Why a cell cannot run on a site: one small pure rule per reason, looked at in order.

A rule knows nothing of sweeps, sessions or Ray. `plan.resolve` asks `refusal` for each cell; its answer is what the
user reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rtxscale.devices.inventory import Inventory
from rtxscale.nccl import knobs as nccl
from rtxscale.spec.cell import Cell
from rtxscale.spec.workload import VisionWorkload


@dataclass(frozen=True, kw_only=True)
class Site:
    """What the rules need to know about the machines: `workers` in all and on the largest node (GPUs, or CPUs)."""

    device: str
    workers: int
    largest_node: int
    nccl_version: tuple[int, int, int] | None

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
    return Site(device=device, workers=sum(counts), largest_node=max(counts, default=0), nccl_version=oldest)


def too_few_workers(gpus: int, site: Site) -> str | None:
    """Each worker has a GPU or a core of its own."""
    return f"{gpus} {site.unit} asked for, {site.workers} there" if gpus > site.workers else None


def undivided_batch(workload: dict[str, Any], gpus: int) -> str | None:
    """Every worker gets the same part of a global batch."""
    batch = workload.get("global_batch")
    return f"a global batch of {batch} does not divide by {gpus}" if batch is not None and batch % gpus else None


def one_node_for_torchrun(cell: Cell, site: Site) -> str | None:
    """`torchrun --standalone` starts workers on one node only."""
    if cell.launcher != "torchrun" or cell.gpus <= site.largest_node:
        return None
    return f"launcher torchrun stays on one node: {cell.gpus} {site.unit} asked for, {site.largest_node} on the largest"


def two_ranks_for_collectives(cell: Cell, site: Site) -> str | None:
    """A collective among one worker moves nothing."""
    if cell.workload.kind != "collectives" or cell.gpus >= 2:
        return None
    return "a collective needs at least 2 workers"


def precision_exists(cell: Cell, site: Site) -> str | None:
    """TF32 is a format of NVIDIA's tensor cores."""
    if site.device != "cpu" or cell.workload.precision != "tf32":
        return None
    return "precision tf32 does not exist on CPU; use fp32 or bf16"


def whole_buckets_under_compile(cell: Cell, site: Site) -> str | None:
    """torch.compile's DDP optimiser asserts a bucket cap of at least 1 MiB."""
    bucket = cell.ddp.bucket_mib
    if not isinstance(cell.workload, VisionWorkload) or cell.workload.compile == "off" or isinstance(bucket, str):
        return None
    if bucket >= 1:
        return None
    return f"ddp.bucket_mib {bucket:g} with torch.compile: the compiler needs at least 1"


def warmup_has_room(cell: Cell, site: Site) -> str | None:
    """The longest warm-up is not shorter than the least."""
    measure = cell.measure.resolved()
    least, most = measure.warmup_min_s or 0.0, measure.warmup_max_s or 0.0
    if most >= least:
        return None
    return f"measure.warmup_max_s {most:g} is below measure.warmup_min_s {least:g}"


def nccl_allows(cell: Cell, site: Site) -> str | None:
    """NCCL of this version takes these settings for this many ranks."""
    if site.device != "cuda":
        return None
    channels = None if cell.nccl.channels == "auto" else cell.nccl.channels
    knobs = nccl.Knobs(algorithm=cell.nccl.algorithm, channels=channels, protocol=cell.nccl.protocol, p2p=cell.nccl.p2p)
    return nccl.refusal(knobs, cell.gpus, site.nccl_version, cell.nccl.unsafe)


RULES_OF_CELLS: tuple[Callable[[Cell, Site], str | None], ...] = (
    one_node_for_torchrun,
    two_ranks_for_collectives,
    precision_exists,
    whole_buckets_under_compile,
    warmup_has_room,
    nccl_allows,
)


def refusal_of_fields(gpus: int, workload: dict[str, Any], site: Site) -> tuple[str, str] | None:
    """Name and reason of the rule that a cell's plain fields break: what is asked before a cell is made of them."""
    reason = too_few_workers(gpus, site)
    if reason is not None:
        return too_few_workers.__name__, reason
    reason = undivided_batch(workload, gpus)
    return None if reason is None else (undivided_batch.__name__, reason)


def refusal(cell: Cell, site: Site) -> tuple[str, str] | None:
    """Name and reason of the first rule that a cell breaks, or None."""
    for rule in RULES_OF_CELLS:
        reason = rule(cell, site)
        if reason is not None:
            return rule.__name__, reason
    return None
