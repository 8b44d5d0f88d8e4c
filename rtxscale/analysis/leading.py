"""Which of many curves a run is spoken of by: one choice for the sentence, the key numbers, the tables and the charts.

The default settings lead where they have a result on the curve; else the fastest series at the largest GPU count does.
Called by `analysis.headline` and by `report`.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from rtxscale.analysis.efficiency import BATCH_OF_CURVE


def ranked_series(efficiency: pl.DataFrame) -> pl.DataFrame:
    """The last point of each series of one curve: default series first, then largest GPU count, then throughput."""
    order = ["is_default", "gpus", "throughput_per_s", "series"]
    last = efficiency.sort("gpus", maintain_order=True).group_by("series", "is_default", maintain_order=True).last()
    return last.sort(order, descending=[True, True, True, False], nulls_last=True)


def leading_points(cells: pl.DataFrame, efficiency: pl.DataFrame) -> list[dict[str, Any]]:
    """The point that each curve is spoken of by, weak before strong: of its leading series at the largest GPU count.

    Of several default series it is the one with the largest batch. Beside the columns of the table: `constant`, the
    batch that the curve holds constant, how many `batches` and `curves` there are to choose from, and `largest`, the
    largest GPU count of any series of the curve.
    """
    points = efficiency.filter(pl.col("cell_id") != pl.col("base_cell_id"))
    points = points.with_columns(largest=pl.col("gpus").max().over("curve"))
    points = points.filter(pl.col("is_default") == pl.col("is_default").any().over("curve"))
    points = points.join(cells.select("cell_id", *BATCH_OF_CURVE.values()), on="cell_id", maintain_order="left")
    weak, strong = (pl.col(BATCH_OF_CURVE[curve]) for curve in ("weak", "strong"))
    points = points.with_columns(constant=pl.when(pl.col("curve") == "weak").then(weak).otherwise(strong)).with_columns(
        batches=pl.col("constant").n_unique().over("curve"),
        curves=pl.struct("series", "base_cell_id").n_unique().over("curve"),
        # Only of the defaults the batch decides: without them the tables lead with the fastest of any batch.
        batch=pl.when("is_default").then("constant"),
    )
    order = ["curve", "gpus", "batch", "throughput_per_s", "series"]
    ranked = points.sort(order, descending=[True, True, True, True, False], nulls_last=True, maintain_order=True)
    return ranked.unique("curve", keep="first", maintain_order=True).drop("batch").to_dicts()
