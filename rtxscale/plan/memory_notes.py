"""What a user should know of the memory that planned cells need: which may not fit, and of which nothing is known.

Sentences only; what clearly does not fit has been dropped by `plan.rules`. Pure; called by `plan.notes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rtxscale.models.counted import Catalogue
from rtxscale.models.memory import GIB
from rtxscale.plan.feasibility import MIB, USABLE, training_of
from rtxscale.spec.cell import Cell
from rtxscale.spec.workload import DiffusionWorkload, LanguageWorkload, VisionWorkload


def memory_notes(cells: Iterable[Cell], memory_mib: int | None, catalogue: Catalogue) -> Iterator[str]:
    """Notes on cells for GPUs of so much memory; none where that is not known, or on CPUs."""
    if memory_mib is None:
        return
    every = [cell for cell in cells if isinstance(cell.workload, VisionWorkload | DiffusionWorkload | LanguageWorkload)]
    apart = {(cell.workload, cell.gpus) for cell in every}
    known = {key: training.peak for key in apart if (training := training_of(*key, catalogue)) is not None}
    tight = {key for key, needs in known.items() if needs > USABLE * memory_mib * MIB}
    if tight:
        count = sum((cell.workload, cell.gpus) in tight for cell in every)
        most = max(known[key] for key in tight)
        yield (
            f"{count} of {len(every)} cells may not fit: by the memory model they need up to {most / GIB:.1f} of "
            f"{memory_mib / 1024:.1f} GiB on each GPU; they are tried, and rtxscale fit says which they are"
        )
    unknown = sorted({workload.label for workload, gpus in apart - known.keys()})
    if unknown:
        yield (
            f"memory of {', '.join(unknown)} is not predicted here, so nothing is dropped for it; rtxscale fit counts "
            "any timm model"
        )
