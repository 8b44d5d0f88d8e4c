"""Bounds of intervals as they leave in a table of numbers: those that say nothing are null, with words beside them.

With two visits, Student's t can span 30 powers of ten; texts say "wider than x10" there, and tables must not say more.
Additive quantities (laws' parameters, the loss budget) keep their bounds. Called by `cli.show`, `dossier`.
"""

from __future__ import annotations

import polars as pl

from rtxscale.analysis.headline import TOO_WIDE
from rtxscale.stats.rounding import WIDEST

WORDS = "interval_note"


def told_bounds(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with every pair `x_low`, `x_high` whose ends differ by more than a factor of ten null.

    A relative change (`gain`) is compared as 1 + change. Where the frame has such pairs, the column `interval_note`
    says of each row what was left out and why, as the headline does.
    """
    names = [low.removesuffix("_low") for low in frame.columns if low.endswith("_low")]
    names = [name for name in names if f"{name}_high" in frame.columns]
    if not names:
        return frame
    absurd = {name: _says_nothing(name) for name in names}
    said = pl.concat_str(
        [pl.when(holds).then(pl.lit(f"{name}: {TOO_WIDE}")) for name, holds in absurd.items()],
        separator="; ",
        ignore_nulls=True,
    )
    nulled = [
        pl.when(~holds).then(pl.col(column)).alias(column)
        for name, holds in absurd.items()
        for column in (f"{name}_low", f"{name}_high")
    ]
    return frame.with_columns(said.alias(WORDS), *nulled).with_columns(
        pl.when(pl.col(WORDS) != "").then(pl.col(WORDS)).alias(WORDS)
    )


def _says_nothing(name: str) -> pl.Expr:
    """Whether the interval of this quantity is too wide; a lower end without an upper one is, as that overflowed."""
    shift = 1.0 if name.endswith("gain") else 0.0
    low, high = pl.col(f"{name}_low") + shift, pl.col(f"{name}_high") + shift
    wide = (low >= 0) & (high.is_null() | (high > WIDEST * low))
    return wide.fill_null(value=False)
