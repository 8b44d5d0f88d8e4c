"""Bandwidth of collectives per cell, operation and message size, with the interval over visits.

Only counted trials; a result that was checked and is wrong does not count. Called by `analysis.conclude`.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from rtxscale.analysis.frames import empty, moments, over_visits, series, shaped
from rtxscale.analysis.tables import BANDWIDTH
from rtxscale.stats.intervals import geometric_mean_interval

POINT = ["cell_id", "operation", "size_bytes"]
SPEEDS = ("time_p50_s", "algbw_gb_s", "busbw_gb_s")
MOST = 1e9
"""Seconds (thirty years) and GB/s that no collective takes or reaches."""


def bandwidth_table(collectives: pl.DataFrame, settled: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """One row per cell, operation and size. `settled` are the counted trials, one row each."""
    rows = right_rows(collectives, settled)
    if not rows.height:
        return empty(BANDWIDTH)
    visits = rows.group_by([*POINT, "visit"], maintain_order=True).agg(
        *(pl.col(name).mean() for name in SPEEDS), pl.col("trial_id").n_unique().alias("trials")
    )
    # One GPU has no bus: its bus bandwidth is 0, which has no logarithm and needs no interval.
    logged = visits.with_columns(log=_log("busbw_gb_s"), log_algbw=_log("algbw_gb_s"))
    points = logged.group_by(POINT, maintain_order=True).agg(
        *(pl.col(name).mean() for name in SPEEDS),
        pl.col("trials").sum(),
        pl.col("log_algbw").mean().exp().alias("geometric_algbw"),
        *over_visits("log"),
    )
    interval = geometric_mean_interval(moments(points))
    points = points.with_columns(
        series("estimate", interval.estimate), series("busbw_low", interval.low), series("busbw_high", interval.high)
    ).with_columns(
        busbw_gb_s=pl.coalesce("estimate", "busbw_gb_s"), algbw_gb_s=pl.coalesce("geometric_algbw", "algbw_gb_s")
    )
    points = points.join(cells.select("cell_id", "label", "gpus"), on="cell_id", maintain_order="left")
    return shaped(points.sort("operation", "gpus", "label", "cell_id", "size_bytes"), BANDWIDTH)


def _log(name: str) -> pl.Expr:
    return pl.when(pl.col(name) > 0).then(pl.col(name).log())


def right_rows(collectives: pl.DataFrame, settled: pl.DataFrame) -> pl.DataFrame:
    """Rows of these trials' counted attempts, possible and not known to be wrong, with their cell and visit."""
    return (
        of_trials(collectives, settled)
        .filter(is_possible() & pl.col("data_ok").fill_null(value=True))
        .unique(["trial_id", "operation", "size_bytes", "dtype"], keep="last")
        .sort("trial_id", "operation", "size_bytes")
    )


def bandwidth_remarks(collectives: pl.DataFrame, settled: pl.DataFrame) -> Iterator[str]:
    """Which collectives do not count: those that returned wrong data, and those whose numbers cannot be."""
    own = of_trials(collectives, settled)
    wrong, broken = own.filter(~pl.col("data_ok")), own.filter(~is_possible())
    if wrong.height:
        yield (
            f"{_many(wrong)} returned wrong data and {_is(wrong)} not counted, first in trial {wrong['trial_id'][0]}: "
            "trust no number of this machine until that is explained."
        )
    if broken.height:
        yield (
            f"{_many(broken)} lacked a name or a size, or had a time or bandwidth that is negative, not finite or "
            f"impossible, and {_is(broken)} not counted, first in trial {broken['trial_id'][0]}."
        )


def _many(rows: pl.DataFrame) -> str:
    return f"{rows.height} collective{'s' * (rows.height != 1)}"


def _is(rows: pl.DataFrame) -> str:
    return "is" if rows.height == 1 else "are"


def is_possible() -> pl.Expr:
    """Whether a collective has a name and a size, and its times and bandwidths, if any, are such as there can be."""
    told = [pl.col(name).is_null() | pl.col(name).is_between(0, MOST) for name in ("time_mean_s", *SPEEDS)]
    named = pl.col("operation").is_not_null() & (pl.col("size_bytes") > 0).fill_null(value=False)
    return pl.all_horizontal(*told, named)


def of_trials(collectives: pl.DataFrame, settled: pl.DataFrame) -> pl.DataFrame:
    """Rows that belong to these trials and attempts."""
    return collectives.join(settled.select("trial_id", "attempt", "cell_id", "visit"), on=["trial_id", "attempt"])
