"""Log ratios of otherwise equal cells, paired within a session where they share one, else within a visit.

Pairing removes what the two have in common: the day, the temperature, the session. Several pairs of one question are
averaged within the visit, so the visit stays the replicate. Called by `analysis.effects` and `analysis.best`.
"""

from __future__ import annotations

import polars as pl

from rtxscale.analysis.cells import Replicates
from rtxscale.analysis.frames import over_visits


def paired_moments(pairs: pl.DataFrame, question: list[str], measured: Replicates) -> pl.DataFrame:
    """Moments over visits of ln(cell / reference), one row per distinct `question` that has a visit in common.

    `pairs` has the columns of `question`, `cell_id` and `reference_id`. Result: `question`, `log_mean`, `log_var`,
    `visits`, `pairs`.
    """
    key = [*question, "cell_id", "reference_id"]
    shared = _differences(pairs, measured.sessions, ["visit", "session_id"])
    shared = shared.group_by([*key, "visit"], maintain_order=True).agg(pl.col("difference").mean())
    apart = _differences(pairs, measured.visits, ["visit"]).join(shared, on=[*key, "visit"], how="anti")
    differences = pl.concat([shared, apart.select(shared.columns)]).sort([*key, "visit"])
    per_visit = differences.group_by([*question, "visit"], maintain_order=True).agg(pl.col("difference").mean())
    counts = differences.group_by(question).agg(pl.struct("cell_id", "reference_id").n_unique().alias("pairs"))
    moments = per_visit.group_by(question, maintain_order=True).agg(over_visits("difference"))
    return moments.join(counts.with_columns(pl.col("pairs").cast(pl.Int64)), on=question, maintain_order="left")


def _differences(pairs: pl.DataFrame, means: pl.DataFrame, within: list[str]) -> pl.DataFrame:
    cell = means.select("cell_id", *within, "log")
    reference = cell.rename({"cell_id": "reference_id", "log": "reference_log"})
    joined = pairs.join(cell, on="cell_id").join(reference, on=["reference_id", *within])
    return joined.with_columns(difference=pl.col("log") - pl.col("reference_log"))
