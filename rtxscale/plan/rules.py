"""Why a cell cannot run on a site: one small pure rule per reason, looked at in order.

A rule knows nothing of sweeps, sessions or Ray. `plan.resolve` asks `refusal` for each cell; its answer is what the
user reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rtxscale.devices.inventory import Inventory
from rtxscale.models.memory import SHARDED
from rtxscale.nccl import knobs as nccl
from rtxscale.plan.feasibility import memory_shortage
from rtxscale.spec.cell import Cell
from rtxscale.spec.method import contradictions
from rtxscale.spec.workload import CUDA_GRAPH_MODES, LanguageWorkload, VisionWorkload

HALF_PRECISIONS = ("fp16", "bf16")


@dataclass(frozen=True, kw_only=True)
class Site:
    """What the rules need to know about the machines: `workers` in all and on the largest node (GPUs, or CPUs).

    `memory_mib` is that of the smallest GPU, None on CPUs or where a GPU's is not known.
    """

    device: str
    workers: int
    largest_node: int
    nccl_version: tuple[int, int, int] | None
    memory_mib: int | None = None

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
        largest_node=max(counts, default=0),
        nccl_version=oldest,
        memory_mib=_smallest_memory(inventory) if device == "cuda" else None,
    )


def _smallest_memory(inventory: Inventory) -> int | None:
    sizes = [gpu.memory_mib for gpu in inventory.gpus]
    known = [size for size in sizes if size is not None]
    return min(known) if known and len(known) == len(sizes) else None


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
    if getattr(cell.workload, "compile", "off") == "off" or isinstance(bucket, str):
        return None
    if bucket >= 1:
        return None
    return f"ddp.bucket_mib {bucket:g} with torch.compile: the compiler needs at least 1"


def attention_kernel_exists(cell: Cell, site: Site) -> str | None:
    """PyTorch has two attention kernels on CPU; on GPUs two of its four compute in half precision only."""
    workload = cell.workload
    if not isinstance(workload, LanguageWorkload):
        return None
    if site.device == "cpu":
        missing = workload.attention in ("efficient", "cudnn")
        return f"attention {workload.attention} does not exist on CPU; use auto, flash or math" if missing else None
    if workload.attention not in ("flash", "cudnn") or workload.precision in HALF_PRECISIONS:
        return None
    return f"attention {workload.attention} needs precision fp16 or bf16; {workload.precision} has efficient and math"


def sharding_takes_precision(cell: Cell, site: Site) -> str | None:
    """Gradient scaling looks at gradients rank by rank; ranks of FSDP would skip different steps."""
    workload = cell.workload
    if not isinstance(workload, LanguageWorkload) or workload.parallel not in SHARDED or workload.precision != "fp16":
        return None
    return f"precision fp16 with parallel {workload.parallel} is not supported: gradients are scaled whole; use bf16"


def graphs_keep_addresses(cell: Cell, site: Site) -> str | None:
    """CUDA graphs replay fixed addresses: FSDP moves the weights, and accumulation outlives the graph's gradients."""
    workload = cell.workload
    if site.device != "cuda" or not isinstance(workload, LanguageWorkload | VisionWorkload):
        return None
    if workload.compile not in CUDA_GRAPH_MODES:
        return None
    uses = f"compile {workload.compile} uses CUDA graphs"
    if isinstance(workload, LanguageWorkload) and workload.parallel in SHARDED:
        return f"{uses}, which parallel {workload.parallel} does not allow; use compile default"
    return f"{uses}, which accumulation does not allow; use compile default" if workload.accumulation > 1 else None


def fits_in_memory(cell: Cell, site: Site) -> str | None:
    """What the model of its memory says is clearly too large is not tried."""
    return None if site.memory_mib is None else memory_shortage(cell, site.memory_mib)


def criterion_can_hold(cell: Cell, site: Site) -> str | None:
    """The measure leaves room to become steady; where its fields are fixed, reading the sweep has checked that."""
    found = contradictions(cell.measure)
    return f"measure: {found[0].found}; needs {found[0].expected}" if found else None


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
    attention_kernel_exists,
    sharding_takes_precision,
    graphs_keep_addresses,
    criterion_can_hold,
    nccl_allows,
    fits_in_memory,
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
