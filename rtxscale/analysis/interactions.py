"""Whether the effect of one knob depends on another: double differences of log throughput, per GPU count.

Of four cells that are equal but for two axes, ln T(a, b) - ln T(a, 0) - ln T(0, b) + ln T(0, 0) is the interaction; its
exponential is the ratio of the effects, 1 where the two do not touch each other. Paired like main effects, and the
family of a GPU count's interactions is corrected by Holm. Called by `analysis.interpret`.

Source: G. E. P. Box, J. S. Hunter, W. G. Hunter, Statistics for Experimenters (2005), chapter 5, factorial designs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import polars as pl

from rtxscale.analysis.cells import CellTable, Replicates
from rtxscale.analysis.conclusions import NEEDS_VISITS
from rtxscale.analysis.effects import SIGNIFICANT, holm_by, reference_of
from rtxscale.analysis.frames import empty, moments, series, shaped
from rtxscale.analysis.pairs import contrast_moments
from rtxscale.analysis.settings import SIZE_AXES, is_compared
from rtxscale.analysis.tables import INTERACTIONS
from rtxscale.stats.compare import ratio_test

QUAD = {"cell_id": 1, "without_other": -1, "without_this": -1, "reference_id": 1}
"""The four cells of an interaction with the signs of their logarithms."""
QUESTION = ["axis", "value", "reference", "other_axis", "other_value", "other_reference", "gpus"]
MORE, LESS = "together more than apart", "together less than apart"


def interaction_table(cells: CellTable, measured: Replicates, axes: Mapping[str, Sequence[Any]]) -> pl.DataFrame:
    """Interactions of every pair of axes that are not sizes; `axes` holds each axis's values as written."""
    names = [axis for axis in cells.axes if is_compared(axis) and axis not in SIZE_AXES]
    found = [_quads(cells, pair, axes) for pair in combinations(names, 2)]
    filled = [frame for frame in found if frame.height]
    if not filled:
        return empty(INTERACTIONS)
    table = contrast_moments(pl.concat(filled), QUESTION, measured, QUAD)
    if not table.height:
        return empty(INTERACTIONS)
    test = ratio_test(moments(table))
    table = table.with_columns(
        series("ratio", test.ratio),
        series("ratio_low", test.low),
        series("ratio_high", test.high),
        series("p_holm", holm_by(table["gpus"].to_numpy(), test.p_value)),
        quads="pairs",
        quads_left_out="pairs_left_out",
        sessions="visits",
    ).with_columns(verdict=_verdict())
    order = {axis: place for place, axis in enumerate(names)}
    places = [pl.col(name).replace_strict(order, return_dtype=pl.Int64) for name in ("axis", "other_axis")]
    return shaped(table.sort(*places, "gpus", "value", "other_value"), INTERACTIONS)


def _quads(cells: CellTable, pair: tuple[str, str], axes: Mapping[str, Sequence[Any]]) -> pl.DataFrame:
    """Sets of four cells that differ in these two axes alone, each with the reference of both."""
    ids = cells.frame["cell_id"].to_list()
    frame = cells.frame.select(
        "cell_id",
        "gpus",
        pl.col(f"axis:{pair[0]}").alias("value"),
        pl.col(f"axis:{pair[1]}").alias("other_value"),
        pl.Series("same", [cells.settings[cell_id].other_than(*pair) for cell_id in ids], dtype=pl.String),
    ).drop_nulls(["value", "other_value"])
    first, second = (
        reference_of(axes.get(axis, ()), frame[name].unique().to_list())
        for axis, name in zip(pair, ("value", "other_value"), strict=True)
    )
    if first is None or second is None:
        return frame.clear()
    plain, other_plain = pl.col("value") == first, pl.col("other_value") == second
    return (
        frame.filter(~plain & ~other_plain)
        .join(_named(frame.filter(~plain & other_plain), "without_other", "value"), on=["same", "value"])
        .join(_named(frame.filter(plain & ~other_plain), "without_this", "other_value"), on=["same", "other_value"])
        .join(_named(frame.filter(plain & other_plain), "reference_id"), on="same")
        .with_columns(
            axis=pl.lit(pair[0]), other_axis=pl.lit(pair[1]), reference=pl.lit(first), other_reference=pl.lit(second)
        )
        .select(*QUESTION, *QUAD)
    )


def _named(frame: pl.DataFrame, name: str, *keys: str) -> pl.DataFrame:
    return frame.select("same", *keys, pl.col("cell_id").alias(name))


def _verdict() -> pl.Expr:
    certain = pl.col("p_holm") < SIGNIFICANT
    return (
        pl.when(pl.col("p_holm").is_null())
        .then(pl.lit(NEEDS_VISITS))
        .when(certain & (pl.col("ratio") > 1))
        .then(pl.lit(MORE))
        .when(certain & (pl.col("ratio") < 1))
        .then(pl.lit(LESS))
        .otherwise(pl.lit("not separable"))
    )
