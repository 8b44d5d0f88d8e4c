"""Lines of a dossier about the data that were trained on and the target that was to be reached.

Resident data are the same for every run of a kind and are told by `dossier.workload`; what comes from a loader is told
by what the ranks attested and the sweep asked for. Caller: `dossier.workload`.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from rtxscale.analysis.targets import went_for_target
from rtxscale.report.dossier.facts import (
    Answer,
    Facts,
    distinct,
    documented,
    from_attestation,
    from_settings,
    measured,
    not_applicable,
)
from rtxscale.spec.method import target_words

Derived = Callable[[Facts], Answer | None]

TOKENIZERS = {"bytes": "bytes: a token is a byte of the text", "stdlib": "bytes: a token is a byte of the text"}
AUGMENTATIONS = {
    "images": "RandomResizedCrop, RandomHorizontalFlip, ToTensor, Normalize (torchvision's defaults)",
    "digits": "none: enlarged by repetition and normalised",
}
"""What each data set is given besides; a test compares with the workloads."""


def loaded(facts: Facts) -> set[str]:
    """Data sets of the run that came from a loader, by the sweep's word."""
    return {data for cell in facts.cells if (data := getattr(cell.workload, "data", "resident")) != "resident"}


def of_loaded(fallback: dict[str, Derived]) -> dict[str, Derived]:
    """The lines that differ for data from a loader; of resident data they say what they said."""
    answers: dict[str, Derived] = {
        "dataset": lambda facts: from_attestation(facts, "workload.data"),
        "dataset_version": lambda _: documented("told by the hash of its content, in Dataset", "rtxscale"),
        "tokenizer": lambda facts: _told(facts, TOKENIZERS),
        "augmentations": _augmentations,
        "loader": lambda facts: from_settings(facts, "workload.loader_workers"),
        "pinned": lambda facts: from_settings(facts, "workload.pin_memory"),
        "no_target": lambda _: not_applicable("no target was set"),
    }
    return {name: _chosen(answer, fallback[name]) for name, answer in answers.items()}


def _chosen(answer: Derived, fallback: Derived) -> Derived:
    return lambda facts: answer(facts) if loaded(facts) else fallback(facts)


def _told(facts: Facts, texts: dict[str, str]) -> Answer | None:
    known = sorted({texts[data] for data in loaded(facts) if data in texts})
    return documented(distinct(known), "rtxscale's workloads") if known else None


def _augmentations(facts: Facts) -> Answer | None:
    """What the loader does to images; of latents what was said beside them, whose hash is in Dataset."""
    return from_attestation(facts, "workload.augmentations") or _told(facts, AUGMENTATIONS)


def target(facts: Facts) -> Answer | None:
    """The exact target of each cell that has one; None where none has."""
    texts = sorted({target_words(cell.target) for cell in facts.cells if cell.target is not None})
    return measured(distinct(texts), "sweep: target") if texts else None


def time_to_target(facts: Facts) -> Answer | None:
    """How many runs reached the target and how long they took, by GPU count; those that did not are said so."""
    runs = facts.trials.filter(went_for_target() & pl.col("gpus").is_not_null())
    if runs.is_empty():
        return None
    parts = []
    for gpus in sorted(runs["gpus"].unique()):
        some = runs.filter(pl.col("gpus") == gpus)
        there = some.filter(pl.col("target_reached"))
        seconds = sorted(there["target_s"].to_list())
        times = f", {seconds[0]:.3g} to {seconds[-1]:.3g} s" if seconds else ""
        parts.append(f"{gpus} worker{'s' * (gpus != 1)}: {there.height} of {some.height} runs reached it{times}")
    return measured("; ".join(parts), "trials: target_reached, target_s")
