"""Points of the grid made into cells: batches and nodes filled in, settings that do not apply set back to auto.

Two points that come down to the same measurement become one cell here. Pure; called by `plan.expand`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rtxscale.models.decoder_settings import SHARDED
from rtxscale.plan.grid import Point, make_grid
from rtxscale.plan.model import Dropped
from rtxscale.plan.rules import refusal, refusal_of_fields
from rtxscale.plan.site import Site
from rtxscale.spec.cell import PER_CLASS, Cell, make_cell
from rtxscale.spec.sweep import Sweep
from rtxscale.spec.workload import CUDA_GRAPH_MODES, CollectivesWorkload

CONSTANT = {"weak": "workload.batch_per_gpu", "strong": "workload.global_batch"}
"""The field that each arm of a study holds constant."""

READ_FROM_PATH = ("images", "tokens", "bytes", "latents")
"""Data that lie in `workload.data_path`."""


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
    if "gpus" not in sweep.model_fields_set and (sweep.nodes or sweep.gpus_per_node or "nodes" in sweep.axes):
        base["gpus"] = None  # what it is comes from the other two
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
            for fields in _of_each_class(with_nodes(_put(base, {**point, **unused})), site):
                outcome = resolve_cell(fields, site)
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


def with_nodes(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with the third of gpus, nodes and gpus_per_node, where two are given and it comes out even.

    One worker is the baseline, which is on one node whatever the others are on.

    >>> with_nodes({"gpus": 16, "nodes": 2, "gpus_per_node": None})
    {'gpus': 16, 'nodes': 2, 'gpus_per_node': 8}
    """
    gpus, nodes, each = (fields[name] for name in ("gpus", "nodes", "gpus_per_node"))
    if gpus is None:
        gpus = (nodes or 1) * (each or 1)
    if gpus == 1:
        nodes = each = None
    elif nodes is None and each is not None:
        nodes = max(1, gpus // each)
    elif each is None and nodes is not None:
        each = max(1, gpus // nodes)
    return {**fields, "gpus": gpus, "nodes": nodes, "gpus_per_node": each}


def _of_each_class(fields: dict[str, Any], site: Site) -> Iterator[dict[str, Any]]:
    """The fields, once for each class of links that the machine has where the placement is `by_class`."""
    if fields["placement"] != PER_CLASS or fields["gpus"] == 1:
        yield fields
        return
    classes = site.placer.classes(fields["gpus"], fields["nodes"], fields["gpus_per_node"])
    for name in classes:
        yield {**fields, "placement": name}
    if not classes:
        yield fields


def resolve_cell(fields: dict[str, Any], site: Site) -> Cell | tuple[str, str]:
    """The cell, or the name and the reason of the rule that it breaks."""
    refused = refusal_of_fields(fields, site)
    if refused is not None:
        return refused
    if fields["placement"] == PER_CLASS and fields["gpus"] > 1:
        return "there_is_such_a_place", f"placement by_class: {fields['gpus']} {site.unit} have no known class here"
    cell = make_cell(_applicable(fields, site))
    return refusal(cell, site) or cell


def _applicable(fields: dict[str, Any], site: Site) -> dict[str, Any]:
    """The fields with both batch sizes, without settings that change nothing in this cell."""
    workload, nccl = _with_batches(fields["workload"], fields["gpus"]), fields["nccl"]
    changes: dict[str, Any] = {"workload": workload}
    if fields["gpus"] == 1:
        changes.update(ddp={}, collectives=None, nodes=None, gpus_per_node=None, placement="packed")
    if (workload["kind"] == "collectives" and not workload.get("buckets_of")) or workload.get("parallel") in SHARDED:
        changes["ddp"] = {}
    if workload["kind"] == "simulated":
        changes["collectives"] = None
    if idle := idle_fields(workload):
        changes["workload"] = {name: value for name, value in workload.items() if name not in idle}
    graphs = site.device == "cuda" and workload.get("compile") in CUDA_GRAPH_MODES
    if graphs or workload["kind"] == "script":
        changes["isolation"] = "process"  # what a graph or foreign code holds is given back with the process only
    if site.device == "cpu" or fields["gpus"] == 1:
        changes["nccl"] = {}
    elif nccl.get("protocol") != "ll128":  # `unsafe` means nothing to the other protocols
        changes["nccl"] = {name: value for name, value in nccl.items() if name != "unsafe"}
    return {**fields, **changes}


def idle_fields(workload: dict[str, Any]) -> dict[str, str]:
    """Fields of the workload that another of its fields makes meaningless, with that one and its value in words."""
    data, parallel, precision = (workload.get(name) for name in ("data", "parallel", "precision"))
    own = workload.get("path") and workload["kind"] == "language"
    causes = (
        (own, "path", ("size",)),
        (precision != "fp8", f"precision {precision}", ("fp8_library",)),
        (workload.get("schedule", "constant") == "constant", "schedule constant", ("schedule_steps",)),
        (parallel != "fsdp", f"parallel {parallel}", ("reshard_after_forward",)),
        (workload.get("tuning") == "full", "tuning full", ("lora_rank", "lora_alpha", "lora_targets")),
        (data in (None, "resident"), f"data {data}", ("loader_workers", "pin_memory")),
        (data not in READ_FROM_PATH, f"data {data}", ("data_path",)),
    )
    return {field: cause for holds, cause, fields in causes if holds for field in fields}


def _with_batches(workload: dict[str, Any], gpus: int) -> dict[str, Any]:
    if workload.get("batch_per_gpu") is not None:
        return {**workload, "global_batch": workload["batch_per_gpu"] * gpus}
    if workload.get("global_batch") is not None:
        return {**workload, "batch_per_gpu": workload["global_batch"] // gpus}
    return workload
