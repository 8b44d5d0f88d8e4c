"""The best cell of each GPU count against the default cell, over the visits that have both: selected, not confirmed.

Of many equal cells the best one always looks better than the rest. So the interval of its gain is widened for the
number of cells it was chosen from (Bonferroni), and a gain stays "unconfirmed" until winner and default have been run
again in fresh sessions (`analysis.confirmed`). Called by `analysis.conclude`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl

from rtxscale.analysis.cells import Replicates
from rtxscale.analysis.conclusions import NEEDS_VISITS, UNCONFIRMED
from rtxscale.analysis.efficiency import BATCH_OF_CURVE, on_curve
from rtxscale.analysis.frames import empty, moments, series, shaped
from rtxscale.analysis.pairs import paired_moments
from rtxscale.analysis.tables import BEST
from rtxscale.stats.compare import ratio_test

GROUP = ["curve", "gpus", "constant", "rest"]
ERROR_RATE = 0.05
ONLY_CELL = "only cell"
"""The verdict of a group in which nothing was compared: its settings of the communication are one."""


def best_table(cells: pl.DataFrame, measured: Replicates) -> pl.DataFrame:
    """One row per curve, GPU count, batch and workload settings."""
    known = cells.filter(pl.col("throughput_per_s").is_not_null())
    candidates = _candidates(known)
    if not candidates.height:
        return empty(BEST)
    each = [*GROUP, "cell_id"]
    pairs = candidates.filter(pl.col("cell_id") != pl.col("reference_id")).select(*each, "reference_id")
    gains = paired_moments(pairs, each, measured).select(*each, *_MOMENTS)
    rows = _fastest(candidates.join(gains, on=each, how="left", maintain_order="left"))
    rows = rows.with_columns(_gain_columns(rows))
    rows = rows.with_columns(verdict=_verdict()).rename({"reference_id": "default_cell_id"})
    return shaped(rows.sort("curve", "gpus", "label", descending=[True, False, False]), BEST)


_MOMENTS = ("log_mean", "log_var", "visits")


def _candidates(cells: pl.DataFrame) -> pl.DataFrame:
    """The cells of each group beside its default one, of groups whose batch belongs to a curve.

    Where no batch has a curve, as with one GPU count alone, all cells stand under every curve they are declared for.
    """
    curves = [on_curve(cells, curve) for curve in BATCH_OF_CURVE]
    sizes = pl.col("gpus").n_unique().over("constant", "rest")
    on_a_curve = pl.concat([curve.filter(sizes > 1) for curve in curves])
    used = on_a_curve if on_a_curve.height else pl.concat(curves)
    default = used.filter("is_default").sort("cell_id").unique(GROUP, keep="first", maintain_order=True)
    reference = default.select(
        *GROUP,
        pl.col("cell_id").alias("reference_id"),
        pl.col("throughput_per_s").alias("default_throughput_per_s"),
    )
    columns = [*GROUP, "cell_id", "label", "throughput_per_s"]
    return used.select(columns).join(reference, on=GROUP, how="left", maintain_order="left")


def _fastest(candidates: pl.DataFrame) -> pl.DataFrame:
    """The best candidate of each group, by the gain over the default; by throughput where the default has no result.

    Means over all visits would compare a cell's good visit with the default's bad one, so they only decide where the
    two share no visit.
    """
    apart = (pl.col("throughput_per_s") / pl.col("default_throughput_per_s")).log()
    is_default = (pl.col("cell_id") == pl.col("reference_id")).fill_null(value=False)
    ranked = candidates.with_columns(
        is_default=is_default,
        gained=pl.when(is_default).then(0.0).otherwise(pl.coalesce("log_mean", apart)),
        candidates=pl.len().over(GROUP),
        leads=pl.col("throughput_per_s") == pl.col("throughput_per_s").max().over(GROUP),
    )
    order = ["gained", "is_default", "throughput_per_s", "cell_id"]
    ranked = ranked.sort(order, descending=[True, True, True, False], nulls_last=True)
    return ranked.unique(GROUP, keep="first", maintain_order=True)


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
    fastest = pl.format("the default is the fastest of {}", "candidates")
    return (
        pl.when(pl.col("reference_id").is_null())
        .then(pl.lit("the default cell has no result"))
        .when(pl.col("candidates") == 1)
        .then(pl.lit(ONLY_CELL))
        .when(pl.col("cell_id") == pl.col("reference_id"))
        .then(pl.when("leads").then(fastest).otherwise(pl.format("{} where both ran", fastest)))
        .when(pl.col("visits").is_null())
        .then(pl.lit("measured faster than the default, needs a visit that has both"))
        .when(pl.col("gain_low").is_null())
        .then(pl.lit(f"measured faster than the default, {NEEDS_VISITS}"))
        .when(pl.col("gain_low") > 0)
        .then(pl.lit(f"measured faster than the default ({UNCONFIRMED})"))
        .otherwise(pl.lit("not separable from the default"))
    )
