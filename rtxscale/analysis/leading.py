"""Which of many curves a run is spoken of by: one choice for the sentence, the key numbers, the tables and the charts.

The default settings lead where they have a result on the curve; else the fastest series at the largest GPU count does.
Of several models the first leads, in the order of the cells: work per second says nothing between them.
Called by `analysis.headline` and by `report`.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from rtxscale.analysis.efficiency import BATCH_OF_CURVE


def ranked_series(efficiency: pl.DataFrame, cells: pl.DataFrame | None = None) -> pl.DataFrame:
    """The last point of each series of one curve: default series first, then largest GPU count, model, throughput.

    Without `cells`, which know the models, throughput alone decides after the GPU count.
    """
    order = ["is_default", "gpus", *([] if cells is None else ["model"]), "throughput_per_s", "series"]
    points = efficiency if cells is None else with_model(efficiency, cells)
    last = points.sort("gpus", maintain_order=True).group_by("series", "is_default", maintain_order=True).last()
    rising = {"model", "series"}
    return last.sort(order, descending=[name not in rising for name in order], nulls_last=True)


def with_model(points: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """The points with the place of what each trains among all that the cells train, as column `model`."""
    place = cells.select("workload").unique(maintain_order=True).with_row_index("model")
    of_cell = cells.select("cell_id", "workload").join(place, on="workload").select("cell_id", "model")
    return points.join(of_cell, on="cell_id", how="left", maintain_order="left")


def leading_points(cells: pl.DataFrame, efficiency: pl.DataFrame) -> list[dict[str, Any]]:
    """The point that each curve is spoken of by, weak before strong: of its leading series at the largest GPU count.

    Of several default series it is the one with the largest batch. Beside the columns of the table: `constant`, the
    batch that the curve holds constant, how many `batches` and `curves` there are to choose from, of `every` curve of
    the kind, and `largest`, the largest GPU count of any series of the curve.
    """
    of_kind = pl.struct("series", "base_cell_id").n_unique().over("curve")
    points = with_model(efficiency.filter(pl.col("cell_id") != pl.col("base_cell_id")), cells)
    points = points.with_columns(largest=pl.col("gpus").max().over("curve"), every=of_kind)
    points = points.filter(pl.col("is_default") == pl.col("is_default").any().over("curve"))
    points = points.join(cells.select("cell_id", *BATCH_OF_CURVE.values()), on="cell_id", maintain_order="left")
    weak, strong = (pl.col(BATCH_OF_CURVE[curve]) for curve in ("weak", "strong"))
    points = points.with_columns(constant=pl.when(pl.col("curve") == "weak").then(weak).otherwise(strong)).with_columns(
        batches=pl.col("constant").n_unique().over("curve"),
        curves=of_kind,
        # Only of the defaults the batch decides: without them the tables lead with the fastest of any batch.
        batch=pl.when("is_default").then("constant"),
    )
    order = ["curve", "gpus", "model", "batch", "throughput_per_s", "series"]
    rising = {"model", "series"}
    falling = [name not in rising for name in order]
    ranked = points.sort(order, descending=falling, nulls_last=True, maintain_order=True)
    return ranked.unique("curve", keep="first", maintain_order=True).drop("batch", "model").to_dicts()
