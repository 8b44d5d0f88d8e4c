"""Small frames in the shapes of `analysis.conclusions`: right columns, right types, never NaN or infinity.

Called by every other module of `analysis`.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from rtxscale.stats.intervals import Floats, LogMoments


def shaped(frame: pl.DataFrame, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """The columns of the schema, in its order and types; missing ones null, numbers that are not finite null."""
    columns = []
    for name, kind in schema.items():
        column = (pl.col(name) if name in frame.columns else pl.lit(None)).cast(kind)
        if kind == pl.Float64():
            column = pl.when(column.is_finite()).then(column)
        columns.append(column.alias(name))
    return frame.select(columns)


def empty(schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """No rows, but all columns."""
    return pl.DataFrame(schema=dict(schema))


def series(name: str, values: Floats) -> pl.Series:
    """A float column from the arrays of `stats`, where NaN means not known."""
    return pl.Series(name, values, dtype=pl.Float64, nan_to_null=True)


def positive(name: str) -> pl.Expr:
    """The column; null where it is no positive finite number."""
    return pl.when(pl.col(name).is_finite() & (pl.col(name) > 0)).then(pl.col(name))


def moments(frame: pl.DataFrame, prefix: str = "") -> LogMoments:
    """The columns `log_mean`, `log_var` and `visits` (with a prefix) as `stats` wants them."""
    return LogMoments.of(
        mean=frame[f"{prefix}log_mean"].to_numpy(),
        variance=frame[f"{prefix}log_var"].to_numpy(),
        n=frame[f"{prefix}visits"].to_numpy(),
    )


def over_visits(value: str) -> list[pl.Expr]:
    """Aggregation of one value per visit into the columns that `moments` reads; `value` is already a logarithm."""
    return [
        pl.col(value).mean().alias("log_mean"),
        pl.col(value).var(ddof=1).alias("log_var"),
        pl.col(value).count().cast(pl.Int64).alias("visits"),
    ]
