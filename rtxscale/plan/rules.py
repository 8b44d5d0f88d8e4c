"""Why a cell cannot run on a site: one small pure rule per reason, looked at in order.

A rule knows nothing of sweeps, sessions or Ray. `plan.resolve` asks `refusal` for each cell; its answer is what the
user reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rtxscale.devices.gpus import find_gpu
from rtxscale.devices.inventory import Inventory
from rtxscale.models.memory import SHARDED
from rtxscale.nccl import knobs as nccl
from rtxscale.plan.feasibility import memory_shortage
from rtxscale.plan.model import Placement
from rtxscale.plan.placement import Placer
from rtxscale.spec.cell import Cell
from rtxscale.spec.method import contradictions
from rtxscale.spec.workload import (
    CUDA_GRAPH_MODES,
    CollectivesWorkload,
    LanguageWorkload,
    ScriptWorkload,
    SimulatedWorkload,
    VisionWorkload,
)

HALF_PRECISIONS = ("fp16", "bf16", "fp8")
QUANTISED_CAPABILITY = (7, 5)
FLOAT8_CAPABILITY = (8, 9)
"""Tensor cores multiply FP8 from Ada on (NVIDIA, CUDA C++ programming guide, compute capabilities)."""


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


def too_few_workers(gpus: int, site: Site) -> str | None:
    """Each worker has a GPU or a core of its own."""
    return f"{gpus} {site.unit} asked for, {site.workers} there" if gpus > site.workers else None


def undivided_batch(workload: dict[str, Any], gpus: int) -> str | None:
    """Every worker gets the same part of a global batch."""
    batch = workload.get("global_batch")
    return f"a global batch of {batch} does not divide by {gpus}" if batch is not None and batch % gpus else None


def nodes_times_gpus_per_node(gpus: int, nodes: int | None, gpus_per_node: int | None) -> str | None:
    """A cell's three counts agree."""
    if nodes is None or gpus_per_node is None:
        return None
    return None if nodes * gpus_per_node == gpus else f"{nodes} nodes of {gpus_per_node} are not gpus {gpus}"


def there_is_such_a_place(cell: Cell, site: Site) -> str | None:
    """Nodes and GPUs have room for the workers, placed as asked."""
    place = site.placer.of(cell)
    return None if isinstance(place, Placement) else place


def one_node_for_torchrun(cell: Cell, site: Site) -> str | None:
    """`torchrun --standalone` starts workers on one node only."""
    if cell.launcher != "torchrun":
        return None
    place = site.placer.of(cell)
    if not isinstance(place, Placement) or len(place.distinct_nodes) == 1:
        return None
    return f"launcher torchrun stays on one node: {cell.gpus} {site.unit} are on {len(place.distinct_nodes)} nodes"


def a_simulation_starts_no_processes(cell: Cell, site: Site) -> str | None:
    """There is nothing for torchrun to start."""
    if cell.launcher != "torchrun" or cell.workload.kind != "simulated":
        return None
    return "workload simulated has no processes that torchrun could start; use launcher ray"


def two_ranks_for_collectives(cell: Cell, site: Site) -> str | None:
    """A collective among one worker moves nothing."""
    if cell.workload.kind != "collectives" or cell.gpus >= 2:
        return None
    return "a collective needs at least 2 workers"


def precision_exists(cell: Cell, site: Site) -> str | None:
    """TF32 and FP8 are formats of NVIDIA's tensor cores; FP4 is not trained in."""
    precision = cell.workload.precision
    if precision == "fp4":
        return "precision fp4 is refused: no installed library vouches for training in it on this card; use fp8 or bf16"
    if precision == "fp8":
        return _float8_exists(cell, site)
    if site.device != "cpu" or cell.workload.precision != "tf32":
        return None
    return "precision tf32 does not exist on CPU; use fp32 or bf16"


def _float8_exists(cell: Cell, site: Site) -> str | None:
    """FP8 by torchao: on tensor cores that have it, of whole models whose every weight is trained."""
    needs = "precision fp8 needs torchao >= 0.8 and a compute capability >= 8.9"
    if site.device == "cpu":
        return f"{needs}: there is no GPU; use fp32 or bf16"
    if site.capability is not None and site.capability < FLOAT8_CAPABILITY:
        return f"{needs}: the GPU has {site.capability[0]}.{site.capability[1]}; use bf16"
    workload = cell.workload
    if isinstance(workload, LanguageWorkload) and (workload.parallel in SHARDED or workload.tuning != "full"):
        return (
            f"precision fp8 with parallel {workload.parallel} and tuning {workload.tuning} is not supported; use bf16"
        )
    return None


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


def quantised_base_is_whole(cell: Cell, site: Site) -> str | None:
    """QLoRA: four-bit weights are not sharded, and bitsandbytes has no kernels for the oldest cards."""
    workload = cell.workload
    if not isinstance(workload, LanguageWorkload) or workload.tuning != "qlora":
        return None
    if workload.parallel in SHARDED:
        return f"tuning qlora with parallel {workload.parallel} is not supported: use ddp or zero1, or tuning lora"
    if site.capability is not None and site.capability < QUANTISED_CAPABILITY:
        needs = "tuning qlora needs bitsandbytes >= 0.46 and a compute capability >= 7.5"
        return f"{needs}: the GPU has {site.capability[0]}.{site.capability[1]}; use lora"
    return None


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


def target_can_be_measured(cell: Cell, site: Site) -> str | None:
    """Held-out samples come with data only, and classes with images only."""
    if cell.target is None:
        return None
    metric, workload = cell.target.metric, cell.workload
    data = getattr(workload, "data", "resident")
    if isinstance(workload, CollectivesWorkload | ScriptWorkload | SimulatedWorkload):
        return f"target {metric}: a workload of kind {workload.kind} trains no model of ours"
    if metric != "loss" and data in ("resident", "synthetic"):
        return f"target {metric}: data {data} has nothing held out; use the metric loss, or real data"
    if metric == "top1" and not isinstance(workload, VisionWorkload):
        return "target top1: only images have classes; use val_loss"
    return None


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
    there_is_such_a_place,
    a_simulation_starts_no_processes,
    one_node_for_torchrun,
    two_ranks_for_collectives,
    precision_exists,
    whole_buckets_under_compile,
    attention_kernel_exists,
    sharding_takes_precision,
    quantised_base_is_whole,
    graphs_keep_addresses,
    criterion_can_hold,
    target_can_be_measured,
    nccl_allows,
    fits_in_memory,
)


def refusal_of_fields(fields: dict[str, Any], site: Site) -> tuple[str, str] | None:
    """Name and reason of the rule that a cell's plain fields break: what is asked before a cell is made of them."""
    gpus = fields["gpus"]
    reasons = {
        nodes_times_gpus_per_node.__name__: nodes_times_gpus_per_node(gpus, fields["nodes"], fields["gpus_per_node"]),
        too_few_workers.__name__: too_few_workers(gpus, site),
        undivided_batch.__name__: undivided_batch(fields["workload"], gpus),
    }
    return next(((rule, reason) for rule, reason in reasons.items() if reason is not None), None)


def refusal(cell: Cell, site: Site) -> tuple[str, str] | None:
    """Name and reason of the first rule that a cell breaks, or None."""
    for rule in RULES_OF_CELLS:
        reason = rule(cell, site)
        if reason is not None:
            return rule.__name__, reason
    return None
