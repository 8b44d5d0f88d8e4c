"""Points of the grid made into cells: batch fields filled in, settings that do not apply set back to auto.

Two points that come down to the same measurement become one cell here. Pure; called by `plan.expand`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rtxscale.models.memory import SHARDED
from rtxscale.plan.grid import Point, make_grid
from rtxscale.plan.model import Dropped
from rtxscale.plan.rules import Site, refusal, refusal_of_fields
from rtxscale.spec.cell import Cell, make_cell
from rtxscale.spec.sweep import Sweep
from rtxscale.spec.workload import CUDA_GRAPH_MODES, CollectivesWorkload

CONSTANT = {"weak": "workload.batch_per_gpu", "strong": "workload.global_batch"}
"""The field that each arm of a study holds constant."""


@dataclass(frozen=True, kw_only=True)
class Cells:
    """The cells that can run, by canonical text and in the order of the grid, and the points that cannot."""

    cells: dict[str, Cell]
    dropped: tuple[Dropped, ...]
    excluded: int
    """Points that the sweep's own rules leave out."""
    added: int
    """Default cells that the axes alone would not give."""


def resolve_cells(sweep: Sweep, site: Site) -> Cells:
    """Every cell of the sweep that can run on the site; the default cells are always among them."""
    grid = make_grid(sweep)
    base = {**sweep.base, "measure": sweep.measure}  # made once; an axis below puts a mapping in its place
    cells: dict[Cell, None] = {}  # an ordered set: equal points, such as all those of one GPU, become one cell
    dropped: dict[tuple[Any, ...], Dropped] = {}
    _resolve_points(sweep, grid.points, base, site, cells, dropped)
    declared = len(cells)
    _resolve_points(sweep, grid.defaults, {**base, "nccl": {}, "ddp": {}}, site, cells, dropped)
    by_text = {cell.canonical(): cell for cell in cells}
    return Cells(cells=by_text, dropped=tuple(dropped.values()), excluded=grid.excluded, added=len(cells) - declared)


def _resolve_points(
    sweep: Sweep,
    points: tuple[Point, ...],
    base: dict[str, Any],
    site: Site,
    cells: dict[Cell, None],
    dropped: dict[tuple[Any, ...], Dropped],
) -> None:
    """Add what becomes of the points to `cells` and `dropped`, once for each arm of the study."""
    for arm in arms(sweep) or ("",):
        unused = dict.fromkeys(path for name, path in CONSTANT.items() if arm and name != arm)
        for point in points:
            outcome = resolve_cell(_put(base, {**point, **unused}), site)
            if isinstance(outcome, Cell):
                cells.setdefault(outcome)
            else:
                rule, reason = outcome
                axes = {path: point.get(path, "auto") for path in sweep.axes}
                dropped.setdefault((*axes.values(), reason), Dropped(axes=axes, rule=rule, reason=reason))


def arms(sweep: Sweep) -> tuple[str, ...]:
    """The curves a sweep asks for: weak, strong or both; none for a workload without throughput."""
    if isinstance(sweep.workload, CollectivesWorkload):
        return ()
    return ("weak", "strong") if sweep.study == "both" else (sweep.study,)


def _put(base: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    fields = dict(base)
    for path, value in values.items():
        section, _, name = path.partition(".")
        fields[section] = _put(dict(fields[section]), {name: value}) if name else value
    return fields


def resolve_cell(fields: dict[str, Any], site: Site) -> Cell | tuple[str, str]:
    """The cell, or the name and the reason of the rule that it breaks."""
    refused = refusal_of_fields(fields["gpus"], fields["workload"], site)
    if refused is not None:
        return refused
    cell = make_cell(_applicable(fields, site))
    return refusal(cell, site) or cell


def _applicable(fields: dict[str, Any], site: Site) -> dict[str, Any]:
    """The fields with both batch sizes, without settings that change nothing in this cell."""
    workload, nccl = _with_batches(fields["workload"], fields["gpus"]), fields["nccl"]
    changes: dict[str, Any] = {"workload": workload}
    if fields["gpus"] == 1:
        changes.update(ddp={}, collectives=None)
    if workload["kind"] == "collectives" or workload.get("parallel") in SHARDED:
        changes["ddp"] = {}
    if idle := _idle_fields(workload):
        changes["workload"] = {name: value for name, value in workload.items() if name not in idle}
    graphs = site.device == "cuda" and workload.get("compile") in CUDA_GRAPH_MODES
    if graphs or workload["kind"] == "script":
        changes["isolation"] = "process"  # what a graph or foreign code holds is given back with the process only
    if site.device == "cpu" or fields["gpus"] == 1:
        changes["nccl"] = {}
    elif nccl.get("protocol") != "ll128":  # `unsafe` means nothing to the other protocols
        changes["nccl"] = {name: value for name, value in nccl.items() if name != "unsafe"}
    return {**fields, **changes}


def _idle_fields(workload: dict[str, Any]) -> tuple[str, ...]:
    """Fields of the workload that another of its fields makes meaningless."""
    resharding = () if workload.get("parallel") == "fsdp" else ("reshard_after_forward",)
    adapters = ("lora_rank", "lora_alpha", "lora_targets") if workload.get("tuning") == "full" else ()
    return resharding + adapters


def _with_batches(workload: dict[str, Any], gpus: int) -> dict[str, Any]:
    if workload.get("batch_per_gpu") is not None:
        return {**workload, "global_batch": workload["batch_per_gpu"] * gpus}
    if workload.get("global_batch") is not None:
        return {**workload, "batch_per_gpu": workload["global_batch"] // gpus}
    return workload
