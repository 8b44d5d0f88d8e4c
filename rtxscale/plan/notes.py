"""What a user should know before a plan runs: what collapsed, what was added, which efficiency there will be.

Sentences only; nothing is decided here. Pure; called by `plan.expand`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rtxscale.devices.gpus import find_gpu
from rtxscale.devices.inventory import Inventory
from rtxscale.models.counted import Catalogue
from rtxscale.models.decoder_settings import SHARDED
from rtxscale.plan.grid import is_communication
from rtxscale.plan.memory_notes import memory_notes
from rtxscale.plan.model import Dropped, PlannedSession
from rtxscale.plan.order import WITH_THREE, WITH_TWO, count_sentinels
from rtxscale.plan.resolve import CONSTANT, Cells, arms, idle_fields
from rtxscale.plan.site import site_of
from rtxscale.spec.cell import PER_CLASS, Cell, Ddp, Nccl
from rtxscale.spec.method import energy_shortfall, shortfalls
from rtxscale.spec.sweep import Sweep
from rtxscale.spec.workload import CUDA_GRAPH_MODES

Curve = tuple[Any, ...]


def plan_notes(
    sweep: Sweep,
    cells: Cells,
    sessions: Sequence[PlannedSession],
    inventory: Inventory,
    device: str,
    catalogue: Catalogue,
) -> tuple[str, ...]:
    """Every note on a plan, most general first."""
    return (
        *inventory.notes,
        *_machine_notes(sweep, inventory, device),
        *_collapse_notes(sweep, cells, inventory, device),
        *_idle_notes(sweep, cells),
        *_grid_notes(sweep, cells, device),
        *memory_notes(cells.cells.values(), site_of(inventory, device).memory_mib, catalogue),
        *baseline_notes(sweep, cells, device),
        *_method_notes(sweep, cells, device),
        *_drift_notes(sweep, sessions),
        *_unknown_links(sweep, inventory, device),
        *_placement_notes(sessions),
    )


def _machine_notes(sweep: Sweep, inventory: Inventory, device: str) -> Iterator[str]:
    facts = [find_gpu(gpu.name, gpu.memory_mib) for gpu in inventory.gpus]
    without_p2p = [gpu.label for gpu in facts if gpu is not None and gpu.p2p_stock is False]
    if device == "cuda" and "disabled" in sweep.axes.get("nccl.p2p", ()) and without_p2p:
        yield f"{without_p2p[0]} has no P2P with the stock driver: nccl.p2p auto and disabled may be the same path"
    if device == "cpu" and inventory.gpus:
        yield "hardware.device is cpu: the GPUs are not used"


def _collapse_notes(sweep: Sweep, cells: Cells, inventory: Inventory, device: str) -> Iterator[str]:
    asked = [path for path in sweep.axes if is_communication(path)]
    if device == "cpu" and (sweep.nccl != Nccl() or any(path.startswith("nccl.") for path in asked)):
        yield "nccl.* does not apply on CPU (Gloo): these settings stay on auto"
    baseline = any(cell.gpus == 1 for cell in cells.cells.values())
    if baseline and (asked or sweep.nccl != Nccl() or sweep.ddp != Ddp()):
        yield "nccl.* and ddp.* do not apply to one worker: one baseline without DDP instead"
    without_buckets = ", ".join(sorted({_parallel(cell) for cell in cells.cells.values()}.intersection(SHARDED)))
    if without_buckets and ("ddp.bucket_mib" in asked or sweep.ddp != Ddp()):
        yield f"ddp.* does not apply to parallel {without_buckets}, which has no buckets: it stays on auto there"
    shared = {_parallel(cell) for cell in cells.cells.values() if cell.gpus == 1} - {"ddp"}
    if shared:
        ways = ", ".join(sorted(shared))
        yield f"parallel {ways} with one worker is the whole model: there is nobody to share it with"
    pool = len(inventory.gpus)
    if baseline and device == "cuda" and pool > 1:
        yield f"the 1-GPU baseline is measured on each of the {pool} GPUs in turn"


def _idle_notes(sweep: Sweep, cells: Cells) -> Iterator[str]:
    """Fields of the workload that the sweep gives, and that mean nothing in any of its cells."""
    given = sweep.workload.model_fields_set | {path.removeprefix("workload.") for path in sweep.axes}
    workloads = {id(cell.workload): cell.workload for cell in cells.cells.values()}.values()
    idle = [idle_fields(workload.model_dump()) for workload in workloads]
    causes: dict[str, list[str]] = defaultdict(list)
    for field in given.intersection(*idle) if idle else ():
        causes[" or ".join(dict.fromkeys(one[field] for one in idle))].append(f"workload.{field}")
    for cause, fields in sorted(causes.items()):
        yield f"{', '.join(sorted(fields))} given, which means nothing with {cause}: it changes nothing"


def _grid_notes(sweep: Sweep, cells: Cells, device: str) -> Iterator[str]:
    if cells.excluded:
        yield f"points left out by exclude: {cells.excluded}"
    if cells.added:
        yield f"default cells (nccl.* and ddp.* on auto) added to those of the axes: {cells.added}"
    if device == "cuda" and any(_compile(cell) in CUDA_GRAPH_MODES for cell in cells.cells.values()):
        yield f"compile modes with CUDA graphs ({', '.join(CUDA_GRAPH_MODES)}) run each trial in a process of its own"
    if any(cell.workload.kind == "script" for cell in cells.cells.values()):
        yield "workload kind script runs each trial in processes of its own: nothing that its code leaves behind stays"
    if "ddp.bucket_mib" in sweep.axes and any(_compile(cell) != "off" for cell in cells.cells.values()):
        yield "torch.compile splits the graph at DDP's buckets: ddp.bucket_mib and compile are not independent"


def _method_notes(sweep: Sweep, cells: Cells, device: str) -> Iterator[str]:
    if sweep.visits == 1:
        yield "one visit gives no intervals: sessions are the replicates, and an interval needs at least two visits"
    measures = Counter(cell.measure for cell in cells.cells.values()) or Counter([sweep.measure])
    for measure, count in measures.items():
        share = "" if count == measures.total() else f" ({count} of {measures.total()} cells)"
        if measure.profile == "quick":
            yield f"measure profile quick: not publishable{share}"
        elif lacks := shortfalls(measure):
            yield f"measure profile {measure.profile} as spelled out is not publishable: {'; '.join(lacks)}{share}"
    if device == "cuda" and arms(sweep) and sweep.workload.kind != "simulated":
        yield from dict.fromkeys(filter(None, (energy_shortfall(measure) for measure in measures)))


def _drift_notes(sweep: Sweep, sessions: Sequence[PlannedSession]) -> Iterator[str]:
    """What shows the drift of a session, and what spreads it evenly over its cells."""
    several = any(len(session.trials) > 1 for session in sessions)
    if sweep.sentinels == "off":
        yield "sentinels off: drift within sessions is not seen"
    elif count_sentinels(sessions):
        yield (
            "sentinels: each session's default cell runs at its start, middle and end too (start and end of fewer than "
            f"{WITH_THREE} trials, not at all with fewer than {WITH_TWO}); they show drift and enter no mean"
        )
    else:
        yield f"no session has {WITH_TWO} trials or more: there are no sentinels"
    if sweep.order == "as_written" and several:
        yield "order as_written: drift within a session falls on the cells by their place; interleaved spreads it"


def _unknown_links(sweep: Sweep, inventory: Inventory, device: str) -> Iterator[str]:
    """Nodes whose classes of links are not in the plan although it asks for each class that there is."""
    if device != "cuda" or PER_CLASS not in (sweep.placement, *sweep.axes.get("placement", ())):
        return
    unknown = [node.node_id for node in inventory.nodes if len(node.gpus) > 1 and not node.links]
    if unknown:
        whose = "an assumed machine" if inventory.assumed else ", ".join(unknown)
        yield (
            f"placement by_class: how GPUs of one node are linked is not known of {whose}, so no class within a node "
            "is planned here; a sweep asks NVML on each node, and has a cell more for each class that it finds"
        )


def _placement_notes(sessions: Sequence[PlannedSession]) -> Iterator[str]:
    """Placements that come down to the same GPUs here."""
    layouts: dict[tuple[str, ...], dict[str, None]] = defaultdict(dict)
    for session in sessions:
        if session.placement.gpu_uuids:
            layouts[session.placement.gpu_uuids].setdefault(session.key.layout or "packed")
    for uuids, names in layouts.items():
        if len(names) > 1:
            same = " and ".join(names)
            yield f"placements {same} of {len(uuids)} GPUs are the same GPUs here: they differ in name only"


def baseline_notes(sweep: Sweep, cells: Cells, device: str) -> list[str]:
    """What each curve is relative to, where that is not one worker, and where there is no curve at all."""
    curves_of = arms(sweep)
    if not curves_of:
        return [f"{sweep.workload.label} has bandwidths, no throughput: no efficiency is computed"]
    unit = "GPUs" if device == "cuda" else "workers"
    notes: list[str] = []
    for arm in curves_of:
        curves = _curves(sweep, arm, cells.cells.values())
        notes.extend(_curve_notes(arm, curves, cells.dropped, unit))
    return notes


def _curve_notes(arm: str, curves: dict[Curve, set[int]], dropped: Iterable[Dropped], unit: str) -> Iterator[str]:
    lonely = [counts for counts in curves.values() if len(counts) == 1]
    if lonely or not curves:
        counts = sorted(set().union(*lonely))
        share = "" if len(lonely) == len(curves) else f" for {len(lonely)} of {len(curves)} combinations"
        why = (
            f"only with {_words(counts)} {unit if counts != [1] else unit[:-1]}" if counts else "no cell of it can run"
        )
        yield f"no {arm} efficiency{share}: {why}, and a curve needs two counts{_lost(dropped)}"
    for base in sorted({min(counts) for counts in curves.values() if len(counts) > 1} - {1}):
        yield f"{arm} efficiency relative to {base} {unit}: there is no 1-worker baseline{_lost(dropped, base)}"


def _lost(dropped: Iterable[Dropped], below: int | None = None) -> str:
    """Why points were dropped (of fewer workers than `below`), as the end of a sentence."""
    reasons = {item.reason for item in dropped if below is None or item.axes.get("gpus", below) < below}
    return f" (dropped: {'; '.join(sorted(reasons)[:2])})" if reasons else ""


def _curves(sweep: Sweep, arm: str, cells: Iterable[Cell]) -> dict[Curve, set[int]]:
    """Worker counts of the default cells, by everything that a curve holds constant."""
    path = CONSTANT[arm]
    declared = set(sweep.axes.get(path, ())) or {sweep.base["workload"][path.rpartition(".")[2]]}
    curves: dict[Curve, set[int]] = defaultdict(set)
    for cell in cells:
        constant = cell.at(path)
        if constant not in declared or cell.nccl != Nccl() or cell.ddp != Ddp():
            continue
        workload = [value for name, value in cell.workload if name not in ("batch_per_gpu", "global_batch")]
        curves[(constant, *workload, cell.launcher, cell.isolation, cell.measure)].add(cell.gpus)
    return curves


def _compile(cell: Cell) -> str:
    mode: str = getattr(cell.workload, "compile", "off")
    return mode


def _parallel(cell: Cell) -> str:
    way: str = getattr(cell.workload, "parallel", "ddp")
    return way


def _words(counts: list[int]) -> str:
    return " or ".join(str(count) for count in counts)
