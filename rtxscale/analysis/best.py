"""The best cell of each GPU count against the default cell: selected, not confirmed.

Of many equal cells the best one always looks better than the rest. So the interval of its gain is widened for the
number of cells it was chosen from (Bonferroni), and a gain stays "unconfirmed" until winner and default have been run
again in fresh sessions. Called by `analysis.conclude`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl

from rtxscale.analysis.cells import Replicates
from rtxscale.analysis.conclusions import BEST, NEEDS_VISITS
from rtxscale.analysis.efficiency import BATCH_OF_CURVE, on_curve
from rtxscale.analysis.frames import empty, moments, series, shaped
from rtxscale.analysis.pairs import paired_moments
from rtxscale.stats.compare import ratio_test

GROUP = ["curve", "gpus", "constant", "rest"]
ERROR_RATE = 0.05


def best_table(cells: pl.DataFrame, measured: Replicates) -> pl.DataFrame:
    """One row per curve, GPU count, batch and workload settings."""
    known = cells.filter(pl.col("throughput_per_s").is_not_null())
    groups = pl.concat([_chosen(on_curve(known, curve)) for curve in BATCH_OF_CURVE])
    if not groups.height:
        return empty(BEST)
    pairs = groups.filter(pl.col("cell_id") != pl.col("reference_id")).select(*GROUP, "cell_id", "reference_id")
    gains = paired_moments(pairs, GROUP, measured)
    rows = groups.join(gains.select(*GROUP, *_MOMENTS), on=GROUP, how="left", maintain_order="left")
    rows = rows.with_columns(_gain_columns(rows))
    return shaped(
        rows.with_columns(verdict=_verdict()).sort("curve", "gpus", "label", descending=[True, False, False]), BEST
    )


_MOMENTS = ("log_mean", "log_var", "visits")


def _chosen(cells: pl.DataFrame) -> pl.DataFrame:
    """The fastest cell of each group beside the default one, of groups whose batch belongs to a curve."""
    sizes = pl.col("gpus").n_unique().over("constant", "rest")
    on_a_curve = cells.filter(sizes > 1)
    used = on_a_curve if on_a_curve.height else cells
    fastest = (
        used.sort(["throughput_per_s", "is_default", "cell_id"], descending=[True, True, False])
        .group_by(GROUP, maintain_order=True)
        .agg(
            pl.first("cell_id", "label", "throughput_per_s"),
            pl.len().alias("candidates"),
        )
    )
    default = used.filter("is_default").sort("cell_id").unique(GROUP, keep="first", maintain_order=True)
    return fastest.join(
        default.select(
            *GROUP,
            pl.col("cell_id").alias("reference_id"),
            pl.col("throughput_per_s").alias("default_throughput_per_s"),
        ),
        on=GROUP,
        how="left",
        maintain_order="left",
    )


def _gain_columns(rows: pl.DataFrame) -> Iterable[pl.Series]:
    """Paired gain with its interval; from the two throughputs alone where best and default share no visit."""
    gain, low, high = [], [], []
    for one, candidates in zip(rows.select(_MOMENTS).iter_slices(1), rows["candidates"], strict=True):
        test = ratio_test(moments(one), 1 - ERROR_RATE / max(1, candidates - 1))
        gain.append(test.ratio[0])
        low.append(test.low[0])
        high.append(test.high[0])
    ratio = (rows["throughput_per_s"] / rows["default_throughput_per_s"]).to_numpy()
    same = (rows["cell_id"] == rows["reference_id"]).fill_null(value=False).to_numpy()
    paired = np.asarray(gain)
    measured = np.where(np.isnan(paired), ratio, paired) - 1
    return (
        series("gain", np.where(same, np.nan, measured)),
        series("gain_low", np.asarray(low) - 1),
        series("gain_high", np.asarray(high) - 1),
    )


def _verdict() -> pl.Expr:
    several = pl.format("the default is the fastest of {}", "candidates")
    return (
        pl.when(pl.col("reference_id").is_null())
        .then(pl.lit("the default cell has no result"))
        .when(pl.col("candidates") == 1)
        .then(pl.lit("only cell"))
        .when(pl.col("cell_id") == pl.col("reference_id"))
        .then(several)
        .when(pl.col("gain_low").is_null())
        .then(pl.lit(f"measured faster than the default, {NEEDS_VISITS}"))
        .when(pl.col("gain_low") > 0)
        .then(pl.lit("faster than the default (unconfirmed)"))
        .otherwise(pl.lit("not separable from the default"))
    )
