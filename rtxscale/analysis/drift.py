"""How far each session drifted, seen by its sentinels: trials of one and the same cell at its start, middle and end.

`drift` is the relative change from the first to the last sentinel in order of time, with its sign; `spread` is the
largest over the smallest, minus 1, which also sees what comes and goes. A session whose spread is above its threshold
is `drifting`. That is a remark on its trials, not a correction: nothing is scaled or left out, and sentinels enter no
mean. Called by `analysis.conclude`.
"""

from __future__ import annotations

import polars as pl

from rtxscale.analysis.bandwidth import right_rows
from rtxscale.analysis.conclusions import DRIFTING, NEEDS_SENTINELS, WITHIN
from rtxscale.analysis.counted import counted_trials, of_stage
from rtxscale.analysis.frames import shaped
from rtxscale.analysis.tables import DRIFT, SENTINELS
from rtxscale.spec.method import measure_of

THRESHOLDS = {"quick": 0.05, "published": 0.035}
"""Profile -> least threshold of the spread.

Of sessions that do not drift, with three sentinels and 1 % noise from trial to trial, 0.2 % (quick) and 4 % (published)
exceed it; of sessions that drift by 6 %, 75 % and 96 % do. At 2 % a third of the quiet sessions would. Simulated;
`tests/unit/analysis/test_drift.py` does it again. A quick window is shorter, its noise larger.
"""

BANDWIDTH_UNIT = "GB/s"
POINT = ["session_id", "operation", "size_bytes", "dtype"]


def sentinel_table(settled: pl.DataFrame, collectives: pl.DataFrame) -> pl.DataFrame:
    """One row per sentinel that counts, session by session, in order of time.

    The value is the throughput; in sessions without one, the bus bandwidth of the largest message.
    """
    counted = of_stage(counted_trials(settled), "sentinel").filter(pl.col("session_id").is_not_null())
    throughputs = _throughputs(counted)
    without = counted.filter(~pl.col("session_id").is_in(_sessions_of(counted, throughputs).implode()))
    values = pl.concat([throughputs, _bandwidths(without, collectives)])
    at_ns = pl.coalesce("window_start_ns", "started_ns")
    rows = counted.join(values, on="trial_id").with_columns(at_ns=at_ns)
    rows = rows.sort("session_id", "at_ns", "repeat", "trial_id", nulls_last=True).with_columns(
        place=pl.col("repeat"),
        minutes=(pl.col("at_ns") - pl.col("at_ns").min().over("session_id")) / 60e9,
        change=pl.col("value") / pl.col("value").mean().over("session_id") - 1,
    )
    return shaped(rows, SENTINELS)


def _throughputs(counted: pl.DataFrame) -> pl.DataFrame:
    known = counted.filter(pl.col("throughput_per_s").is_not_null())
    return known.select(
        "trial_id",
        pl.lit("throughput").alias("quantity"),
        pl.col("throughput_per_s").alias("value"),
        pl.col("work_unit").alias("unit"),
    )


def _bandwidths(counted: pl.DataFrame, collectives: pl.DataFrame) -> pl.DataFrame:
    """Bus bandwidth at the one message of each session that most of its sentinels have, of those the largest."""
    rows = right_rows(collectives, counted).filter(pl.col("busbw_gb_s") > 0)
    rows = rows.join(counted.select("trial_id", "session_id"), on="trial_id", maintain_order="left")
    messages = rows.group_by(POINT).agg(pl.col("trial_id").n_unique().alias("sentinels"))
    order = ["sentinels", "size_bytes", "operation", "dtype"]
    chosen = messages.sort(order, descending=[True, True, False, False]).unique("session_id", keep="first")
    rows = rows.join(chosen.select(POINT), on=POINT, nulls_equal=True, maintain_order="left")
    words = pl.format("{} of {} B, bus bandwidth", "operation", "size_bytes")
    return rows.select(
        "trial_id",
        words.alias("quantity"),
        pl.col("busbw_gb_s").alias("value"),
        pl.lit(BANDWIDTH_UNIT).alias("unit"),
    )


def _sessions_of(counted: pl.DataFrame, values: pl.DataFrame) -> pl.Series:
    return counted.filter(pl.col("trial_id").is_in(values["trial_id"].implode()))["session_id"].unique()


def drift_table(settled: pl.DataFrame, sentinels: pl.DataFrame) -> pl.DataFrame:
    """One row per session that has sentinels, in the order they began; `sentinels` is that of `sentinel_table`."""
    planned = of_stage(settled, "sentinel").filter(pl.col("session_id").is_not_null()).sort("trial_id")
    sessions = planned.group_by("session_id", maintain_order=True).agg(
        pl.first("gpus", "visit", "cell_json", "profile"), pl.col("started_ns").min()
    )
    value, several = pl.col("value"), pl.len() > 1
    seen = sentinels.group_by("session_id", maintain_order=True).agg(
        pl.len().alias("sentinels"),
        pl.when(several).then(pl.col("minutes").max() - pl.col("minutes").min()).alias("minutes"),
        pl.when(several).then(value.last() / value.first() - 1).alias("drift"),
        pl.when(several).then(value.max() / value.min() - 1).alias("spread"),
    )
    limits = [threshold(row["cell_json"], row["profile"]) for row in sessions.iter_rows(named=True)]
    table = (
        sessions.with_columns(pl.Series("threshold", limits, dtype=pl.Float64))
        .join(seen, on="session_id", how="left", maintain_order="left")
        .with_columns(pl.col("sentinels").fill_null(0))
        .with_columns(verdict=_verdict())
        .sort("started_ns", "session_id", nulls_last=True)
    )
    return shaped(table, DRIFT)


def _verdict() -> pl.Expr:
    return (
        pl.when(pl.col("spread").is_null())
        .then(pl.lit(NEEDS_SENTINELS))
        .when(pl.col("spread") > pl.col("threshold"))
        .then(pl.lit(DRIFTING))
        .otherwise(pl.lit(WITHIN))
    )


def threshold(cell_json: str | None, profile: str | None) -> float:
    """Spread from which on a session with sentinels of this cell drifts, as a share.

    That of its profile, or the sweep's own `measure.tolerance` where that is larger: what may change within a warm-up
    that counts as steady is no drift. Of a measure that cannot be read the profile's, of an unknown profile the larger.

    >>> threshold(None, "published"), threshold('{"measure":{"tolerance":0.25},"workload":{"kind":"vision"}}', "quick")
    (0.035, 0.25)
    """
    least = THRESHOLDS.get(profile or "", max(THRESHOLDS.values()))
    measure = measure_of(cell_json or "")
    return max(least, 0.0 if measure is None else measure.resolved().tolerance or 0.0)
