"""What of a sweep fits into the memory of a GPU, by `models.memory`: also of one that nobody has at hand.

Unlike `plan`, which drops what clearly does not fit, it tells of every cell how much it needs, how large its batch may
be, and what would make it fit. A prediction: nothing is run. Pure; called by `cli.fit`.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Any

from rtxscale.devices.gpus import find_by_user_text, known_labels, nearest_names
from rtxscale.devices.inventory import Inventory
from rtxscale.errors import BadInput
from rtxscale.models.memory import GIB, DecoderTraining, memory_of, training_states
from rtxscale.models.shapes import UNET_PARAMETERS
from rtxscale.plan.assume import assumed_inventory
from rtxscale.plan.feasibility import MARGIN, MIB, USABLE, memory_shortage, training_of
from rtxscale.plan.resolve import resolve_cells
from rtxscale.plan.rules import site_of
from rtxscale.spec.cell import Cell
from rtxscale.spec.sweep import Sweep
from rtxscale.spec.workload import DiffusionWorkload, LanguageWorkload

LARGEST_BATCH = 4096
"""Batches are looked at up to here."""
FITS, TIGHT, TOO_LARGE, UNKNOWN = "fits", "tight", "does not fit", "not known"
STATES_ONLY = "weights, gradients and optimizer states alone: activations are not modelled"
NO_MODEL = "no memory model for this kind of workload: measure it"


@dataclass(frozen=True, kw_only=True)
class Fit:
    """One cell: what sets it apart, the predicted GiB of each GPU (None: not known), and what to make of it."""

    gpus: int
    settings: dict[str, Any]
    needs_gib: float | None
    verdict: str
    largest_batch: int | None
    """Largest batch per GPU that leaves a tenth of the memory free; None where that is not known, 0: not even one."""
    note: str


def memory_of_gpu(text: str) -> tuple[str, int]:
    """Label and memory in GiB of the GPU that a person means.

    Raises:
        BadInput: it is not known by exactly this name.

    >>> memory_of_gpu("rtx 5090")
    ('RTX 5090', 32)
    """
    found = find_by_user_text(text)
    if found is None:
        near = nearest_names(text) or known_labels()
        raise BadInput(f"--gpu: found {text!r}, which is not known by that name; nearest: {', '.join(near)}")
    return found.label, found.memory_gib


def fits(sweep: Sweep, gpu: str) -> list[Fit]:
    """Every cell of the sweep that differs in memory, in the order of the grid, as if there were GPUs enough.

    Raises:
        BadInput: the GPU is not known.
    """
    label, memory_gib = memory_of_gpu(gpu)
    site = replace(site_of(_enough(sweep, label), "cuda"), memory_mib=None)
    cells = resolve_cells(sweep, site).cells.values()
    varied = [path for path in sweep.axes if path.startswith("workload.")]
    apart: dict[tuple[Any, int], Cell] = {}
    for cell in cells:
        apart.setdefault((cell.workload, cell.gpus), cell)
    return [_fit(cell, memory_gib * 1024, {path: cell.at(path) for path in varied}) for cell in apart.values()]


def _enough(sweep: Sweep, label: str) -> Inventory:
    """As many such GPUs as the largest cell wants."""
    counts = [value for value in sweep.axes.get("gpus", (sweep.gpus,)) if isinstance(value, int)]
    return assumed_inventory(f"{max(counts, default=1)}x {label}")


def _fit(cell: Cell, memory_mib: int, settings: dict[str, Any]) -> Fit:
    workload, has = cell.workload, memory_mib * MIB
    if isinstance(workload, LanguageWorkload):
        training = training_of(workload, cell.gpus)
        needs, largest, note = memory_of(training).peak, _largest_batch(training, USABLE * has), ""
    elif isinstance(workload, DiffusionWorkload):
        sharded = workload.parallel == "fsdp" and cell.gpus > 1
        needs, largest = training_states(UNET_PARAMETERS[workload.model], cell.gpus, sharded=sharded), None
        note = STATES_ONLY
    else:
        return Fit(
            gpus=cell.gpus, settings=settings, needs_gib=None, verdict=UNKNOWN, largest_batch=None, note=NO_MODEL
        )
    verdict = FITS if needs <= USABLE * has else TIGHT if needs <= MARGIN * has else TOO_LARGE
    if verdict == FITS and isinstance(workload, DiffusionWorkload):
        verdict = UNKNOWN
    if verdict == TOO_LARGE:
        note = (memory_shortage(cell, memory_mib) or "").partition("; ")[2] or note
    return Fit(
        gpus=cell.gpus,
        settings=settings,
        needs_gib=needs / GIB,
        verdict=verdict,
        largest_batch=largest,
        note=note,
    )


def _largest_batch(training: DecoderTraining, limit: float) -> int:
    sizes = range(1, LARGEST_BATCH + 1)
    return bisect_right(sizes, limit, key=lambda size: memory_of(replace(training, sequences=size)).peak)
