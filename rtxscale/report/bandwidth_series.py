"""Bus bandwidths of a run as series over message size, for chart and table alike.

Cells that differ only in what a raw collective cannot notice (precision of the model; bucket size, unless buckets are
what is sent) are one series here.
Called by `charts.bandwidth` and `tables.conclusions`.
"""

from __future__ import annotations

import polars as pl

from rtxscale.analysis.settings import in_words
from rtxscale.report.chosen import AXIS

TOLD_APART = 8
DEFAULT = "defaults"
REPLAYS, OF_REPLAYS = "collectives/", ("ddp.bucket_mib", "workload.buckets_of")
"""Workloads that all-reduce the gradient buckets of a model, and the axes that say which buckets these are."""


def bandwidth_series(bandwidth: pl.DataFrame, cells: pl.DataFrame, workers: str) -> pl.DataFrame:
    """One row per operation, series and size: the geometric mean of its cells, with their interval or their range."""
    known = bandwidth.filter((pl.col("busbw_gb_s") > 0) & (pl.col("size_bytes") > 0))
    named = known.join(_names(cells, workers), on="cell_id", how="left").with_columns(
        pl.coalesce("series", "label").alias("series")
    )
    one = pl.len() == 1
    return named.group_by("operation", "series", "gpus", "size_bytes", maintain_order=True).agg(
        pl.col("busbw_gb_s").log().mean().exp(),
        pl.when(one).then(pl.col("busbw_low").first()).otherwise(pl.col("busbw_gb_s").min()).alias("low"),
        pl.when(one).then(pl.col("busbw_high").first()).otherwise(pl.col("busbw_gb_s").max()).alias("high"),
        pl.col("time_p50_s").median(),
        pl.len().alias("cells"),
        pl.col("cell_id").first(),
    )


def _names(cells: pl.DataFrame, workers: str) -> pl.DataFrame:
    """Series name of each cell: GPU count and, in words, what is not auto of NCCL and of replayed buckets."""
    axes = [column.removeprefix(AXIS) for column in cells.columns if column.startswith(AXIS)]
    paths = [path for path in axes if path.startswith("nccl.") or path in OF_REPLAYS]
    names = []
    for row in cells.select("cell_id", "gpus", "workload", *(AXIS + path for path in paths)).iter_rows(named=True):
        replayed = row["workload"].startswith(REPLAYS)
        values = {path: row[AXIS + path] for path in paths if replayed or path not in OF_REPLAYS}
        words = [in_words(path, value) for path, value in values.items() if value not in (None, "auto")]
        count = f"{row['gpus']} {workers}"
        names.append({"cell_id": row["cell_id"], "series": ", ".join([count, *(words or [DEFAULT])])})
    return pl.DataFrame(names, schema={"cell_id": pl.String, "series": pl.String})


def told_apart(rows: pl.DataFrame) -> list[str]:
    """Up to `TOLD_APART` series: every default first, then spread evenly over the rank at the largest size."""
    last = rows.sort("size_bytes").group_by("series", maintain_order=True).last()
    ranked = last.sort(["gpus", "busbw_gb_s"], descending=True)["series"].to_list()
    defaults = [name for name in ranked if name.endswith(f", {DEFAULT}")][:TOLD_APART]
    others = [name for name in ranked if name not in defaults]
    room = TOLD_APART - len(defaults)
    if len(others) > room:
        others = [others[round(index * (len(others) - 1) / max(room - 1, 1))] for index in range(room)]
    return [*defaults, *others]
