"""Time to target per cell: how many runs got there, and the median over all of them, with those that did not.

A run that was stopped before it got there is right-censored: it would have taken longer, so it counts as longer than
every run that arrived. The median is known as long as more than half arrived, and is at least the time given otherwise.
Called by `analysis.conclude`.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from rtxscale.analysis.frames import shaped
from rtxscale.analysis.tables import TARGETS

NAMED = 4
"""Most cells told in a remark."""
LONGEST_S = 1e9
"""Thirty years: a time that is longer, or none at all, says nothing of a run."""


def target_table(trials: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """One row per cell whose trials went for a target; `trials` are those that count."""
    went = target_runs(trials)
    labels = {row["cell_id"]: row["label"] for row in cells.select("cell_id", "label").iter_rows(named=True)}
    rows = [
        _row(some.sort("target_s"), labels.get(cell_id, cell_id))
        for (cell_id,), some in went.group_by(["cell_id"], maintain_order=True)
    ]
    return shaped(pl.DataFrame(rows, schema=TARGETS), TARGETS).sort("gpus", "label")


def target_runs(trials: pl.DataFrame) -> pl.DataFrame:
    """The trials that went for a target; work that is no number is null."""
    work = pl.col("target_work")
    return trials.filter(went_for_target()).with_columns(pl.when(work.is_finite()).then(work))


def went_for_target() -> pl.Expr:
    """Whether a trial went for a target and says for how long."""
    return pl.col("target_reached").is_not_null() & pl.col("target_s").is_between(0, LONGEST_S)


def _row(some: pl.DataFrame, label: str) -> dict[str, Any]:
    arrived = some.filter(pl.col("target_reached"))
    known = 2 * arrived.height > some.height
    given_s = None if arrived.height == some.height else some.filter(~pl.col("target_reached"))["target_s"].min()
    return {
        "cell_id": some["cell_id"][0],
        "label": label,
        "gpus": some["gpus"][0],
        "global_batch": some["global_batch"][0],
        "runs": some.height,
        "reached": arrived.height,
        "median_s": censored_median(some, "target_s") if known else None,
        "median_steps": censored_median(some, "target_steps") if known else None,
        "median_work": censored_median(some, "target_work") if known else None,
        "work_unit": some["work_unit"][0],
        "not_reached_s": given_s,
    }


def censored_median(runs: pl.DataFrame, column: str) -> float | None:
    """Median of a column over all runs, where those that did not arrive lie above those that did.

    None where half of them or more did not arrive, or one that did lacks the number. Of an even number the two in the
    middle are averaged, if both are known.

    >>> runs = pl.DataFrame({"target_reached": [True, True, False], "target_s": [2.0, 4.0, 1.0]})
    >>> censored_median(runs, "target_s")
    4.0
    """
    arrived = runs.filter(pl.col("target_reached"))[column]
    known = [] if arrived.null_count() else arrived.sort().to_list()
    low, high = (runs.height - 1) // 2, runs.height // 2
    return None if high >= len(known) else (known[low] + known[high]) / 2


def target_remarks(targets: pl.DataFrame) -> tuple[str, ...]:
    """A sentence per cell, up to `NAMED` of them."""
    told = [_sentence(row) for row in targets.head(NAMED).iter_rows(named=True)]
    left = targets.height - NAMED
    return (*told, f"{left} more cells with a target: rtxscale show --csv targets") if left > 0 else tuple(told)


def _sentence(row: dict[str, Any]) -> str:
    said = f"target, {row['label']}: reached in {row['reached']} of {row['runs']} runs"
    if row["median_s"] is not None:
        unit = row["work_unit"] or "unit"
        work = "" if row["median_work"] is None else f" and {row['median_work']:,.0f} {unit}s"
        return f"{said}, median {row['median_s']:.3g} s{work}"
    if row["reached"]:
        return f"{said}; its median is not known: half of the runs or more were stopped before"
    return f"{said}; not reached within {row['not_reached_s']:.3g} s"
