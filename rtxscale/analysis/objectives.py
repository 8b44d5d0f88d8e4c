"""The best cell of each GPU count for what somebody may want: throughput, work per joule, work per unit of money.

Chosen and judged like the fastest cell (`analysis.best`): by the paired gain over the default, widened for the number
of cells, unconfirmed until measured again. Called by `analysis.interpret`.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from rtxscale.analysis.best import best_table
from rtxscale.analysis.cells import Replicates, revalued
from rtxscale.analysis.cost import Billing, energy_replicates, money_replicates
from rtxscale.analysis.frames import empty, shaped
from rtxscale.analysis.tables import OBJECTIVES

THROUGHPUT, PER_WATT, PER_MONEY = "throughput", "perf/W", "perf/money"


def objective_table(
    cells: pl.DataFrame, counted: pl.DataFrame, best: pl.DataFrame, billing: Billing | None
) -> pl.DataFrame:
    """One row per GPU count, curve, batch and objective; `best` is the answer for throughput."""
    unit = next(iter(cells["work_unit"].drop_nulls()), "unit")
    parts = [_renamed(best, THROUGHPUT, f"{unit}s/s")]
    parts += [
        _renamed(best_table(revalued(cells, measured), measured), objective, f"{unit}s/{per}")
        for objective, per, measured in _quantities(counted, billing)
    ]
    filled = [part for part in parts if part.height]
    if not filled:
        return empty(OBJECTIVES)
    return shaped(pl.concat(filled).sort("gpus", "curve", maintain_order=True), OBJECTIVES)


def _quantities(counted: pl.DataFrame, billing: Billing | None) -> Iterator[tuple[str, str, Replicates]]:
    yield PER_WATT, "J", energy_replicates(counted)
    if billing is not None:
        yield PER_MONEY, billing.currency, money_replicates(counted, billing)


def _renamed(best: pl.DataFrame, objective: str, unit: str) -> pl.DataFrame:
    """The best cells by another quantity, in words that fit it."""
    verdict = pl.col("verdict")
    if objective != THROUGHPUT:
        verdict = verdict.str.replace_all("fastest", "best").str.replace_all("faster", "better")
    return best.select(
        "gpus",
        "curve",
        pl.lit(objective).alias("objective"),
        "cell_id",
        "label",
        pl.col("throughput_per_s").alias("value"),
        pl.lit(unit).alias("unit"),
        pl.col("default_throughput_per_s").alias("default_value"),
        "visits",
        "gain",
        "gain_low",
        "gain_high",
        verdict,
    )
