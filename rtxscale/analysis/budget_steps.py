"""Steps without synchronisation, trial by trial: how long they took on average, on the slowest rank, and which that is.

The table of steps stays lazy and is read once. Called by `analysis.budget`, which says what they mean.
"""

from __future__ import annotations

import polars as pl

from rtxscale.results.read import polars_schema

PHASE = "no_sync"
ATTEMPT = ["trial_id", "attempt"]


def no_sync_times(steps: pl.LazyFrame, trials: pl.DataFrame) -> pl.DataFrame:
    """Per trial the mean step without synchronisation, the mean over steps of the slowest rank's, and which rank lags.

    Columns `mean_s`, `max_s` (s) and `slowest`, the rank with the longest mean. Only arms of which every rank has every
    step.
    """
    wanted = trials.select(*ATTEMPT, "gpus").lazy()
    time = pl.col("step_time_s")
    arm = steps.filter((pl.col("phase") == PHASE) & time.is_finite()).join(wanted, on=ATTEMPT)
    each_step = arm.group_by(*ATTEMPT, "step").agg(
        time.mean().alias("mean_s"),
        time.max().alias("max_s"),
        (pl.col("rank").n_unique() == pl.col("gpus").first()).alias("whole"),
    )
    whole = each_step.group_by(ATTEMPT).agg(
        pl.col("mean_s").sort().mean(), pl.col("max_s").sort().mean(), pl.col("whole").all()
    )
    each_rank = arm.group_by(*ATTEMPT, "rank").agg(time.sort().mean())
    slowest = each_rank.sort("step_time_s", pl.col("rank").neg()).group_by(ATTEMPT).agg(slowest=pl.last("rank"))
    per_step, per_rank = pl.collect_all([whole, slowest])
    return per_step.filter("whole").drop("whole").join(per_rank, on=ATTEMPT).sort(ATTEMPT)


def no_steps() -> pl.LazyFrame:
    """The steps of a run that has none."""
    return pl.LazyFrame(schema=polars_schema("steps"))


def with_arms(trials: pl.DataFrame, times: pl.DataFrame) -> pl.DataFrame:
    """Trials with their parts in seconds; of a cell that has arms, only trials with one, so that its parts add up."""
    sync = pl.col("step_time_mean_s")
    found = trials.join(times, on=ATTEMPT, how="left", maintain_order="left")
    has_arm = pl.col("mean_s").is_not_null() & sync.is_not_null()
    return found.filter(has_arm | ~has_arm.any().over("cell_id")).with_columns(
        straggling_s=pl.col("max_s") - pl.col("mean_s"), synchronising_s=sync - pl.col("max_s")
    )


def slowest_ranks(trials: pl.DataFrame, times: pl.DataFrame) -> pl.DataFrame:
    """Per cell, which rank lags in how many of its trials, in words (`slowest`)."""
    found = trials.select(*ATTEMPT, "cell_id").join(times, on=ATTEMPT)
    counts = found.group_by("cell_id", "slowest").agg(pl.len().alias("times"))
    most = counts.sort("times", "slowest", descending=[True, False]).group_by("cell_id", maintain_order=True).first()
    totals = found.group_by("cell_id").agg(pl.len().alias("all"))
    words = pl.format("rank {} has the longest mean in {} of {} trials", "slowest", "times", "all")
    return most.join(totals, on="cell_id").select("cell_id", slowest=words)
