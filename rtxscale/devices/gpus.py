"""Documented facts about a GPU, found by its exact name and memory variant.

Matching is exact on purpose: an RTX 5090 Laptop GPU, an RTX 5090 D or a card with another memory size is not an
RTX 5090, and gets None rather than a neighbour's values. The rows are in `devices.table`. Callers: `plan` (assumed
machines, rules, estimates), `analysis` and `report` (peaks, targets).
"""

from __future__ import annotations

import difflib
import re

from rtxscale.devices.facts import GpuFacts
from rtxscale.devices.table import GPUS

MEMORY_SEEN = (0.90, 1.02)
"""Share of the nominal memory that NVML may report: ECC inside GDDR6 takes 1/16, the driver's reserve up to 1 %."""
MEMORY_WORD = re.compile(r"(\d+)\s*(?:gib|gb|g)\b")
FILLER = frozenset({"nvidia", "geforce", "rtx", "blackwell", "generation"})


def find_gpu(name: str, memory_mib: int | None = None) -> GpuFacts | None:
    """The facts of the GPU that NVML calls `name` and that has `memory_mib` MiB; None when it is not in the table.

    Without `memory_mib` a name that two memory variants share finds nothing.

    >>> find_gpu("NVIDIA RTX PRO 5000 Blackwell", 48935).label
    'RTX PRO 5000 48 GB'
    >>> find_gpu("NVIDIA GeForce RTX 5090 Laptop GPU") is None
    True
    """
    wanted = _nvml_key(name)
    rows = [gpu for gpu in GPUS if wanted in {_nvml_key(known) for known in (gpu.name, *gpu.other_names)}]
    if memory_mib is not None:
        rows = [gpu for gpu in rows if _is_memory_of(gpu, memory_mib)]
    return _only(rows)


def find_by_user_text(text: str) -> GpuFacts | None:
    """The one GPU that a person means by `text`; None when the text fits no row or more than one.

    Case, spaces, "NVIDIA", "GeForce", "RTX", "Blackwell" and "Generation" do not matter; every other word does.

    >>> find_by_user_text("rtx pro 5000 72gb").memory_gib
    72
    >>> find_by_user_text("RTX PRO 5000") is None
    True
    """
    words, memory_gib = _user_key(text)
    if not words:
        return None
    rows = [gpu for gpu in GPUS if words in _user_names(gpu) and memory_gib in (None, gpu.memory_gib)]
    return _only(rows)


def nearest_names(text: str, count: int = 4) -> tuple[str, ...]:
    """Labels of the rows that `text` may mean: all that hold its words, else the most similar ones, best first.

    >>> nearest_names("RTX PRO 5000")
    ('RTX PRO 5000 48 GB', 'RTX PRO 5000 72 GB')
    """
    words, _ = _user_key(text)
    holding = tuple(gpu.label for gpu in GPUS if words and any(set(words) <= set(known) for known in _user_names(gpu)))
    if holding:
        return holding
    folded = {gpu.label.lower(): gpu.label for gpu in GPUS}
    close = difflib.get_close_matches(text.strip().lower(), folded, n=count, cutoff=0.3)
    return tuple(folded[label] for label in close)


def known_labels() -> tuple[str, ...]:
    """Labels of all rows, in table order."""
    return tuple(gpu.label for gpu in GPUS)


def _only(rows: list[GpuFacts]) -> GpuFacts | None:
    return rows[0] if len(rows) == 1 else None


def _is_memory_of(gpu: GpuFacts, memory_mib: int) -> bool:
    low, high = MEMORY_SEEN
    return low <= memory_mib / (gpu.memory_gib * 1024) <= high


def _nvml_key(name: str) -> str:
    # Drivers before 510 left "NVIDIA" out of the name.
    return " ".join(name.split()).removeprefix("NVIDIA ")


def _user_key(text: str) -> tuple[tuple[str, ...], int | None]:
    """Words that count, and the memory size in GiB if one is named."""
    lowered = text.lower().replace("_", " ").replace("-", " ")
    sizes = MEMORY_WORD.findall(lowered)
    words = re.findall(r"[a-z]+|\d+", MEMORY_WORD.sub(" ", lowered))
    return tuple(word for word in words if word not in FILLER), int(sizes[0]) if sizes else None


def _user_names(gpu: GpuFacts) -> set[tuple[str, ...]]:
    return {_user_key(name)[0] for name in (gpu.label, gpu.name, *gpu.other_names)}
