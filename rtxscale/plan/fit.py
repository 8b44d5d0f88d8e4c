"""What of a sweep fits into the memory of a GPU, by the memory models: also of one that nobody has at hand.

Unlike `plan`, which drops what clearly does not fit, it tells of every cell how much it needs, how large its batch may
be, and what would make it fit. A prediction: nothing is run. Pure; called by `cli.fit`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rtxscale.devices.gpus import find_by_user_text, known_labels, nearest_names
from rtxscale.devices.inventory import Inventory
from rtxscale.errors import BadInput
from rtxscale.models.counted import Catalogue, shipped
from rtxscale.models.footprint import Subject
from rtxscale.models.memory import GIB
from rtxscale.models.training import Training
from rtxscale.plan.assume import assumed_inventory
from rtxscale.plan.feasibility import MARGIN, MIB, USABLE, advice, largest_batch, subject_of, training_of
from rtxscale.plan.resolve import resolve_cells
from rtxscale.plan.site import site_of
from rtxscale.spec.cell import Cell
from rtxscale.spec.sweep import Sweep
from rtxscale.spec.workload import DiffusionWorkload, VisionWorkload

LARGEST_BATCH = 4096
"""Batches are looked at up to here."""
FITS, TIGHT, TOO_LARGE, UNKNOWN = "fits", "tight", "does not fit", "not known"
NO_MODEL = "no memory model for this workload: measure it"
COMPILED = "counted without the compiler, which keeps less"


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


def fits(sweep: Sweep, gpu: str, catalogue: Catalogue | None = None) -> list[Fit]:
    """Every cell of the sweep that differs in memory, in the order of the grid, as if there were GPUs enough.

    `catalogue` holds what has been counted: what comes with rtxscale where none is given.

    Raises:
        BadInput: the GPU is not known.
    """
    label, memory_gib = memory_of_gpu(gpu)
    varied = [path for path in sweep.axes if path.startswith("workload.")]
    known = shipped() if catalogue is None else catalogue
    return [
        _fit(cell, memory_gib * 1024, {path: cell.at(path) for path in varied}, known) for cell in _cells(sweep, label)
    ]


def uncounted(sweep: Sweep, gpu: str) -> list[Subject]:
    """What has to be counted before `fits` can tell everything: it does not come with rtxscale.

    Raises:
        BadInput: the GPU is not known.
    """
    cells = _cells(sweep, memory_of_gpu(gpu)[0])
    counted = [cell for cell in cells if isinstance(cell.workload, VisionWorkload | DiffusionWorkload)]
    subjects = [subject_of(cell.workload, cell.gpus) for cell in counted]  # type: ignore[arg-type]  # chosen above
    both = dict.fromkeys(replace(subject, checkpointing=value) for subject in subjects for value in (False, True))
    return [subject for subject in both if shipped().find(subject) is None and subject not in shipped().problems]


def _cells(sweep: Sweep, label: str) -> list[Cell]:
    """The cells that differ in workload or world, on as many such GPUs as the largest wants, whatever they hold."""
    site = replace(site_of(_enough(sweep, label), "cuda"), memory_mib=None)
    apart: dict[tuple[Any, int], Cell] = {}
    for cell in resolve_cells(sweep, site).cells.values():
        apart.setdefault((cell.workload, cell.gpus), cell)
    return list(apart.values())


def _enough(sweep: Sweep, label: str) -> Inventory:
    """As many such GPUs as the largest cell wants."""
    counts = [value for value in sweep.axes.get("gpus", (sweep.gpus,)) if isinstance(value, int)]
    return assumed_inventory(f"{max(counts, default=1)}x {label}")


def _fit(cell: Cell, memory_mib: int, settings: dict[str, Any], catalogue: Catalogue) -> Fit:
    training, has = training_of(cell.workload, cell.gpus, catalogue), memory_mib * MIB
    if training is None:
        note = _why_not(cell, catalogue)
        return Fit(gpus=cell.gpus, settings=settings, needs_gib=None, verdict=UNKNOWN, largest_batch=None, note=note)
    needs, verdict = training.peak, _verdict(training, has)
    notes = [advice(training, has)] * (verdict == TOO_LARGE) + [COMPILED] * (training.least < needs)
    return Fit(
        gpus=cell.gpus,
        settings=settings,
        needs_gib=needs / GIB,
        verdict=verdict,
        largest_batch=largest_batch(training, USABLE * has, LARGEST_BATCH),
        note="; ".join(notes),
    )


def _verdict(training: Training, has: float) -> str:
    """What to make of a peak; one that a compiler may lower says nothing where it is too large."""
    if training.peak <= USABLE * has:
        return FITS
    if training.peak <= MARGIN * has:
        return TIGHT
    return TOO_LARGE if training.least > MARGIN * has else UNKNOWN


def _why_not(cell: Cell, catalogue: Catalogue) -> str:
    """Why nothing is known of a cell."""
    if not isinstance(cell.workload, VisionWorkload | DiffusionWorkload):
        return NO_MODEL
    problem = catalogue.problems.get(subject_of(cell.workload, cell.gpus), "not counted")
    return f"workload.model {cell.workload.model}: {problem}"
