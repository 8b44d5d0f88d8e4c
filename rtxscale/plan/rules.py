"""Why a cell cannot run on a site: one small pure rule per reason, looked at in order.

A rule knows nothing of sweeps, sessions or Ray. `plan.resolve` asks `refusal` for each cell; its answer is what the
user reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rtxscale.nccl import knobs as nccl
from rtxscale.plan.feasibility import memory_shortage
from rtxscale.plan.model import Placement
from rtxscale.plan.site import Site
from rtxscale.plan.training_rules import TRAINING_RULES
from rtxscale.spec.cell import Cell
from rtxscale.spec.method import contradictions
from rtxscale.spec.script import ScriptWorkload
from rtxscale.spec.workload import CollectivesWorkload, SimulatedWorkload, VisionWorkload


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


def target_can_be_measured(cell: Cell, site: Site) -> str | None:
    """Held-out samples come with data only, classes with images only, and no share is more than the whole."""
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
    if metric == "top1" and cell.target.value > 1:
        return f"target top1: the value {cell.target.value:g} is more than all images; it is a share, 90 % is 0.9"
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
    *TRAINING_RULES,
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
