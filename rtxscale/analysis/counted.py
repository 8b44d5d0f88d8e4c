"""Which rows count: one row per trial, and of those the ones that may enter a mean.

A retried trial counts once, with its last good attempt. What failed, diverged or has no finite number never counts; it
is shown among the outcomes instead. Called by `analysis.conclude`.
"""

from __future__ import annotations

import polars as pl

from rtxscale.analysis.frames import shaped
from rtxscale.analysis.tables import OUTCOMES
from rtxscale.results.outcomes import Outcome

FASTEST, SLOWEST = 1e18, 1e-9
"""Units of work per second that no machine reaches, and fewer than anybody waits for: one unit in thirty years."""
_THROUGHPUT = pl.col("throughput_per_s")
REASONS: tuple[tuple[str, pl.Expr], ...] = (
    ("without the name of a cell", pl.col("cell_id").is_null() | pl.col("gpus").is_null()),
    ("whose loss is not a finite number", ~pl.col("loss_last").is_finite()),
    ("whose throughput is not a finite number", ~_THROUGHPUT.is_finite()),
    ("whose throughput is 0", _THROUGHPUT == 0),
    ("whose throughput is negative", _THROUGHPUT < 0),
    (f"whose throughput is above {FASTEST:.0e} per second, which no machine reaches", _THROUGHPUT > FASTEST),
    (f"whose throughput is below {SLOWEST:.0e} per second, one unit of work in 30 years", _THROUGHPUT < SLOWEST),
)
"""Why an ok trial does not count: words that follow a number of trials, and when they hold."""


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

    A throughput must also be positive and one that a machine can reach.
    """
    return settled.filter((pl.col("outcome") == Outcome.OK) & _unsound().is_null())


def not_counted(settled: pl.DataFrame) -> list[tuple[str, int]]:
    """Why ok trials do not count and how many: each by the first reason that holds, in the order of `REASONS`."""
    reasons = settled.filter(pl.col("outcome") == Outcome.OK).select(_unsound().alias("reason"))["reason"].drop_nulls()
    found = dict(reasons.value_counts().iter_rows())
    return [(words, found[words]) for words, _ in REASONS if words in found]


def _unsound() -> pl.Expr:
    """The first reason against a trial; null where there is none."""
    return pl.coalesce(pl.when(holds.fill_null(value=False)).then(pl.lit(words)) for words, holds in REASONS)


def retry_table(trials: pl.DataFrame) -> pl.DataFrame:
    """How the attempts ended that were followed by another one at the same trial; shaped like the outcomes."""
    one = ["trial_id", "attempt"]
    attempts = trials.sort([*one, "ended_ns", "outcome"], nulls_last=False).unique(
        one, keep="last", maintain_order=True
    )
    return outcome_table(attempts.join(settled_trials(trials).select(one), on=one, how="anti", nulls_equal=True))


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
