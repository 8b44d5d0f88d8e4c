"""Which rows count: one row per trial, and of those the ones that may enter a mean.

A retried trial counts once, with its last good attempt. What failed, diverged or has no finite number never counts; it
is shown among the outcomes instead. Called by `analysis.conclude`.
"""

from __future__ import annotations

import polars as pl

from rtxscale.analysis.conclusions import OUTCOMES
from rtxscale.analysis.frames import shaped
from rtxscale.results.outcomes import Outcome


def of_stage(trials: pl.DataFrame, stage: str) -> pl.DataFrame:
    """The trials that were measured for this stage; rows older than stages were measured for the sweep."""
    return trials.filter(pl.col("stage").fill_null("sweep") == stage)


def settled_trials(trials: pl.DataFrame) -> pl.DataFrame:
    """One row per trial id: its last ok attempt, else its last attempt."""
    order = ["trial_id", "ok", "attempt", "ended_ns", "throughput_per_s"]
    return (
        trials.with_columns(ok=pl.col("outcome") == Outcome.OK)
        .sort(order, nulls_last=False)
        .unique(subset="trial_id", keep="last", maintain_order=True)
        .drop("ok")
    )


def counted_trials(settled: pl.DataFrame) -> pl.DataFrame:
    """The ok trials of a known cell whose loss and throughput, where they have one, are finite.

    A throughput must also be positive.
    """
    finite_loss = pl.col("loss_last").is_null() | pl.col("loss_last").is_finite()
    throughput = pl.col("throughput_per_s")
    sound = throughput.is_null() | (throughput.is_finite() & (throughput > 0))
    known = pl.col("cell_id").is_not_null() & pl.col("gpus").is_not_null()
    return settled.filter((pl.col("outcome") == Outcome.OK) & finite_loss & sound & known)


def outcome_table(settled: pl.DataFrame) -> pl.DataFrame:
    """How the trials of each stage ended, the sweep's first, the most frequent ending first, each with an example."""
    sweep_first = pl.col("stage") != "sweep"
    table = (
        settled.with_columns(pl.col("stage").fill_null("sweep"))
        .group_by("stage", "outcome", maintain_order=True)
        .agg(pl.len().alias("trials"), pl.first("trial_id").alias("example"), pl.first("message"))
        .sort([sweep_first, "stage", "trials", "outcome"], descending=[False, False, True, False])
    )
    return shaped(table, OUTCOMES)
