"""What each knob does, per GPU count: a value against the axis's reference, over otherwise equal cells.

The reference is `auto` where the axis lists it, else the first value as written: the `auto` of a default cell that was
only added to the grid has hardly a partner. The family of a GPU count's comparisons is corrected by Holm. Called by
`analysis.conclude`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from rtxscale.analysis.cells import CellTable, Replicates
from rtxscale.analysis.conclusions import NEEDS_VISITS
from rtxscale.analysis.frames import empty, moments, series, shaped
from rtxscale.analysis.pairs import paired_moments
from rtxscale.analysis.settings import is_knob
from rtxscale.analysis.tables import EFFECTS
from rtxscale.spec.cell import as_text
from rtxscale.stats.compare import holm, ratio_test

SIGNIFICANT = 0.05


def effect_table(cells: CellTable, measured: Replicates, axes: Mapping[str, Sequence[Any]]) -> pl.DataFrame:
    """Effects of every axis that is a setting; `axes` holds each axis's values as written."""
    settings = [axis for axis in cells.axes if is_knob(axis)]
    found = [compared_cells(cells, axis, axes.get(axis, ())) for axis in settings]
    pairs = pl.concat([frame for frame in found if frame.height] or [_NO_PAIRS])
    question = ["axis", "gpus", "value", "reference"]
    effects = paired_moments(pairs, question, measured)
    if not effects.height:
        return empty(EFFECTS)
    test = ratio_test(moments(effects))
    effects = effects.with_columns(
        series("ratio", test.ratio),
        series("ratio_low", test.low),
        series("ratio_high", test.high),
        series("p_holm", holm_by(effects["gpus"].to_numpy(), test.p_value)),
        sessions="visits",
    ).with_columns(verdict=verdict())
    return shaped(_ordered(effects, cells.axes, axes), EFFECTS)


def reference_of(written: Sequence[Any], present: Sequence[str]) -> str | None:
    """The value that others are compared with, among those present; None if there is none.

    >>> reference_of([8, "auto"], ["8", "auto"]), reference_of(["fp32", "bf16"], ["bf16", "fp32"])
    ('auto', 'fp32')
    """
    texts = sorted((as_text(value) for value in written), key=lambda text: text != "auto")
    return next((text for text in texts if text in present), min(present, default=None))


_NO_PAIRS = pl.DataFrame(
    schema={
        "axis": pl.String(),
        "gpus": pl.Int64(),
        "value": pl.String(),
        "reference": pl.String(),
        "cell_id": pl.String(),
        "reference_id": pl.String(),
    }
)


def compared_cells(cells: CellTable, axis: str, written: Sequence[Any]) -> pl.DataFrame:
    """Cells with another value beside the otherwise equal cell with the reference."""
    ids = cells.frame["cell_id"].to_list()
    others = [cells.settings[cell_id].other_than(axis) for cell_id in ids]
    frame = cells.frame.select(
        "cell_id", "gpus", pl.col(f"axis:{axis}").alias("value"), pl.Series("other", others, dtype=pl.String)
    ).filter(pl.col("value").is_not_null())
    reference = reference_of(written, frame["value"].unique().to_list())
    if reference is None:
        return _NO_PAIRS
    is_reference = pl.col("value") == reference
    partners = frame.filter(is_reference).select("other", pl.col("cell_id").alias("reference_id"))
    pairs = frame.filter(~is_reference).join(partners, on="other", maintain_order="left")
    return pairs.with_columns(axis=pl.lit(axis), reference=pl.lit(reference)).select(_NO_PAIRS.columns)


def holm_by(family: np.ndarray, p_values: np.ndarray) -> np.ndarray:
    """P-values adjusted by Holm within each family; rows of one family have the same value of `family`."""
    adjusted = np.full(p_values.shape, np.nan)
    for member in np.unique(family):
        adjusted[family == member] = holm(p_values[family == member])
    return adjusted


def verdict() -> pl.Expr:
    """What `ratio` and `p_holm` say of a value against its reference."""
    significant = pl.col("p_holm") < SIGNIFICANT
    return (
        pl.when(pl.col("p_holm").is_null())
        .then(pl.lit(NEEDS_VISITS))
        .when(significant & (pl.col("ratio") > 1))
        .then(pl.lit("faster"))
        .when(significant & (pl.col("ratio") < 1))
        .then(pl.lit("slower"))
        .otherwise(pl.lit("not separable"))
    )


def _ordered(effects: pl.DataFrame, names: Sequence[str], axes: Mapping[str, Sequence[Any]]) -> pl.DataFrame:
    """By axis and value as written, then GPU count."""
    places = {(axis, as_text(value)): place for axis in names for place, value in enumerate(axes.get(axis, ()))}
    rows = effects.select("axis", "value").iter_rows()
    place = pl.Series("place", [places.get(row, len(places)) for row in rows], dtype=pl.Int64)
    axis_place = pl.col("axis").replace_strict({name: i for i, name in enumerate(names)}, return_dtype=pl.Int64)
    return effects.with_columns(place, axis_place=axis_place).sort("axis_place", "gpus", "place", "value")
