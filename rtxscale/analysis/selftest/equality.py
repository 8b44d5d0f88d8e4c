"""Checks that two ways of running the same cell measure the same: warm against fresh processes, Ray against torchrun.

Equality has to be shown (TOST with a margin), not failed to be disproved. Called by `cli.selftest`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from rtxscale.analysis.frames import moments
from rtxscale.analysis.headline import TOO_WIDE
from rtxscale.analysis.pairs import paired_moments
from rtxscale.analysis.selftest.verdicts import FAILED, INCONCLUSIVE, PASSED, Check, Evidence, bounds, is_delayed, known
from rtxscale.analysis.settings import Settings
from rtxscale.stats.compare import equivalence_paired, ratio_test
from rtxscale.stats.intervals import CONFIDENCE

MARGIN = 0.01
"""Two ways within one per cent of each other are as good as equal."""

TOST_CONFIDENCE = 0.90
"""Two one-sided tests at 5 % accept exactly where the 90 % interval is inside the margin."""

EQUAL, NOT_SHOWN, UNEQUAL = "equal", "not shown equal", "unequal"


def check_isolation(evidence: Evidence) -> Check:
    """A process of its own for every trial against the warm session: each cell's throughput within `MARGIN`."""
    pairs = paired_cells(evidence.settings, "isolation", {"value": "process", "reference": "warm"})
    return _equality("isolation", "fresh processes / warm session", _by_cell(pairs, evidence.counted), evidence)


def check_launcher(evidence: Evidence) -> Check:
    """Ray Train against torchrun: throughput over all cells within `MARGIN`; cells are averaged within the visit."""
    pairs = paired_cells(evidence.settings, "launcher", {"value": "ray", "reference": "torchrun"})
    cells = "1 cell" if pairs.height == 1 else f"{pairs.height} cells"
    return _equality("launcher", "Ray / torchrun", pairs.with_columns(question=pl.lit(cells)), evidence)


def paired_cells(settings: Mapping[str, Settings], axis: str, sides: Mapping[str, str]) -> pl.DataFrame:
    """Cells with `sides["value"]` beside those with `sides["reference"]` that are equal otherwise and not delayed."""
    defaults = {"isolation": "warm", "launcher": "ray"}
    found: dict[str, dict[str, str]] = {}
    for cell_id, item in settings.items():
        if not is_delayed(item):
            found.setdefault(item.other_than(axis), {})[item.flat.get(axis, defaults[axis])] = cell_id
    pairs = [
        {"cell_id": cells[sides["value"]], "reference_id": cells[sides["reference"]]}
        for cells in found.values()
        if sides["value"] in cells and sides["reference"] in cells
    ]
    return pl.DataFrame(pairs, schema={"cell_id": pl.String(), "reference_id": pl.String()})


def _by_cell(pairs: pl.DataFrame, counted: pl.DataFrame) -> pl.DataFrame:
    """Each pair as a question of its own, named by its batch."""
    batches = counted.select("cell_id", "batch_per_gpu").unique(subset="cell_id", maintain_order=True)
    named = pairs.join(batches, on="cell_id", how="left", maintain_order="left").sort("batch_per_gpu", nulls_last=True)
    return named.select("cell_id", "reference_id", question=pl.format("batch {}", "batch_per_gpu"))


def _equality(name: str, what: str, pairs: pl.DataFrame, evidence: Evidence) -> Check:
    """One TOST a question: it passes where all are equal, which needs no correction for their number.

    It fails where one is shown to be outside the margin: by an interval at 1 - 0.05/k for k questions (Bonferroni), so
    that noise alone does so in at most 5 of 100 runs.
    """
    tested = paired_moments(pairs, ["question"], evidence.measured)
    if not tested.height:
        return Check(name=name, verdict=INCONCLUSIVE, said=f"{what}: no cell was measured both ways")
    test = ratio_test(moments(tested), TOST_CONFIDENCE)
    tost = equivalence_paired(moments(tested), MARGIN)
    wide = ratio_test(moments(tested), 1 - (1 - CONFIDENCE) / tested.height)
    columns = (tested["question"], tested["visits"], test.ratio, test.low, test.high, tost.p_value)
    words = [_word(*item) for item in zip(wide.low, wide.high, tost.equivalent, strict=True)]
    rows = tuple(
        {
            "cells": question,
            "visits": visits,
            "ratio": known(ratio),
            **dict(zip(("low", "high"), bounds(low, high), strict=True)),
            "p_value": known(p_value),
            "verdict": word,
        }
        for (question, visits, ratio, low, high, p_value), word in zip(zip(*columns, strict=True), words, strict=True)
    )
    said = f"{what}: {'; '.join(_sentence(row) for row in rows)}; margin {MARGIN:.0%}, 90 % intervals"
    return Check(name=name, verdict=_verdict([row["verdict"] for row in rows]), said=said, rows=rows)


def _word(low: float, high: float, equal: bool) -> str:
    """The word for one question; `low` and `high` are NaN without an interval, and then nothing is outside."""
    if equal:
        return EQUAL
    return UNEQUAL if low > 1 + MARGIN or high < 1 / (1 + MARGIN) else NOT_SHOWN


def _verdict(words: Sequence[str]) -> str:
    if UNEQUAL in words:
        return FAILED
    return PASSED if set(words) == {EQUAL} else INCONCLUSIVE


def _sentence(row: Mapping[str, Any]) -> str:
    if row["low"] is None:
        few = TOO_WIDE if row["visits"] > 1 else "without an interval"
        return f"{row['cells']} {row['ratio']:.4f}, {few}"
    return f"{row['cells']} {row['ratio']:.4f} ({row['low']:.4f}-{row['high']:.4f}) {row['verdict']}"
