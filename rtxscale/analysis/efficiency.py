"""Weak and strong efficiency of every series of cells against its base, with Welch's interval.

A series holds everything equal but the GPU count: the batch per GPU on a weak curve, the global batch on a strong one.
Where one GPU ran, its cell is the base of every series (communication does not apply there); else the smallest count of
the series itself. Called by `analysis.conclude`.

    S = T(N) / T(N0)      efficiency = S N0 / N      extra_gpu = (S - 1) / (N / N0 - 1)
"""

from __future__ import annotations

import polars as pl

from rtxscale.analysis.conclusions import NEEDS_VISITS
from rtxscale.analysis.frames import empty, moments, series, shaped
from rtxscale.analysis.tables import EFFICIENCY
from rtxscale.stats.intervals import ratio_interval

BATCH_OF_CURVE = {"weak": "batch_per_gpu", "strong": "global_batch"}
SUSPICIOUS = 1.02
"""An efficiency above this is remarked on even where its interval reaches below 1."""

SUPERLINEAR = (
    "superlinear: a slow base (clocks, temperature, host), more cache or memory per unit of work, or a faster kernel "
    "at the smaller batch"
)
ABOVE_ONE = "above 1, not separable from it: check the base and its spread"


def efficiency_table(cells: pl.DataFrame) -> pl.DataFrame:
    """All curves of `CellTable.frame`; no rows where a size has nothing to be compared with."""
    measured = cells.filter(pl.col("throughput_per_s").is_not_null())
    curves = [_curve(measured, curve) for curve in BATCH_OF_CURVE]
    rows = pl.concat([frame for frame in curves if frame.height] or [empty(EFFICIENCY)])
    order = ["curve", "is_default", "series", "base_cell_id", "gpus", "cell_id"]
    return rows.sort(order, descending=[True, True, False, False, False, False])


def on_curve(cells: pl.DataFrame, curve: str) -> pl.DataFrame:
    """Cells that are declared for the curve and have the batch that it holds constant, as column `constant`."""
    return cells.filter(pl.col("study").is_in([curve, "both"])).with_columns(
        constant=pl.col(BATCH_OF_CURVE[curve]), curve=pl.lit(curve)
    )


def _curve(cells: pl.DataFrame, curve: str) -> pl.DataFrame:
    points = _named(_with_base(on_curve(cells, curve)), curve)
    if not points.height:
        return empty(EFFICIENCY)
    interval = ratio_interval(moments(points), moments(points, "base_"))
    scale = pl.col("base_gpus") / pl.col("gpus")
    is_base = pl.col("cell_id") == pl.col("base_cell_id")
    rows = points.with_columns(
        series("speedup", interval.estimate), series("low", interval.low), series("high", interval.high)
    ).with_columns(
        speedup=pl.when(is_base).then(1.0).otherwise("speedup"),
        efficiency=pl.when(is_base).then(1.0).otherwise(pl.col("speedup") * scale),
        efficiency_low=pl.when(~is_base).then(pl.col("low") * scale),
        efficiency_high=pl.when(~is_base).then(pl.col("high") * scale),
        visits=pl.min_horizontal("visits", "base_visits"),
        extra_gpu=pl.when(~is_base).then((pl.col("speedup") - 1) / (1 / scale - 1)),
    )
    return shaped(rows.with_columns(note=_note(is_base)), EFFICIENCY)


def _with_base(points: pl.DataFrame) -> pl.DataFrame:
    """Each series' points, its base among them, beside the base's columns."""
    group = ["rest_alone", "constant"]
    preference = points.sort(["communication", "cell_id"]).sort("is_default", descending=True, maintain_order=True)
    single = preference.filter(pl.col("gpus") == 1).unique(group, keep="first", maintain_order=True)
    several = points.filter(pl.col("gpus") > 1)
    own = [*group, "rest", "communication"]
    smallest = (
        several.join(single, on=group, how="anti")
        .sort("gpus", "cell_id")
        .unique(own, keep="first", maintain_order=True)
    )
    columns = ["cell_id", "gpus", "log_mean", "log_var", "visits"]
    renamed = {name: f"base_{name}" for name in columns}
    by_single = several.join(single.select(*group, *columns).rename(renamed), on=group)
    by_own = several.join(smallest.select(*own, *columns).rename(renamed), on=own).filter(
        pl.col("gpus").max().over(own) > pl.col("base_gpus")
    )
    named = by_single.select(*own, "series", "is_default").unique(own, keep="first", maintain_order=True)
    base = single.drop("series", "is_default", "communication", "rest")
    bases = named.join(base, on=group, how="inner").with_columns(pl.col(name).alias(f"base_{name}") for name in columns)
    return pl.concat([by_single, by_own, bases.select(by_single.columns)])


def _named(points: pl.DataFrame, curve: str) -> pl.DataFrame:
    """Put the batch into the series' name where several batches have a curve."""
    if points["constant"].n_unique() < 2:
        return points
    words = "batch {} per GPU" if curve == "weak" else "global batch {}"
    return points.with_columns(series=pl.format("{}, " + words, "series", "constant"))


def _note(is_base: pl.Expr) -> pl.Expr:
    unknown = pl.col("efficiency_low").is_null()
    notes = [
        pl.when(pl.col("base_gpus") > 1).then(pl.format("relative to {} GPUs", "base_gpus")),
        pl.when(is_base).then(pl.lit("base")),
        pl.when(~is_base & unknown).then(pl.lit(NEEDS_VISITS)),
        pl.when(~is_base & (pl.col("efficiency_low") > 1)).then(pl.lit(SUPERLINEAR)),
        pl.when(~is_base & (pl.col("efficiency") > SUSPICIOUS) & (unknown | (pl.col("efficiency_low") <= 1))).then(
            pl.lit(ABOVE_ONE)
        ),
    ]
    return pl.concat_str(notes, separator="; ", ignore_nulls=True)
