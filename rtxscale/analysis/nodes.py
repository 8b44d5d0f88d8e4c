"""Efficiency in a node and across nodes: where a cell on several machines loses what it loses.

A cell on k nodes of m GPUs is compared with the otherwise equal cell of m GPUs on one node. Called by
`analysis.interpret`.

    within = (T(m) / T(N0)) (N0 / m)      across = T(k m) / (k T(m))      efficiency = within x across
"""

from __future__ import annotations

import polars as pl

from rtxscale.analysis.conclusions import NEEDS_VISITS
from rtxscale.analysis.efficiency import on_curve
from rtxscale.analysis.frames import empty, moments, series, shaped
from rtxscale.analysis.tables import NODES
from rtxscale.stats.intervals import ratio_interval

MOMENTS = ("log_mean", "log_var", "visits")
ALIKE = ["rest_alone", "communication", "constant", "gpus_per_node"]


def node_table(efficiency: pl.DataFrame, cells: pl.DataFrame, counted: pl.DataFrame) -> pl.DataFrame:
    """One row per curve and cell on several nodes that has its like on one node; `cells` is `CellTable.frame`."""
    used = counted.group_by("cell_id").agg(pl.col("nodes").drop_nulls().first())
    measured = cells.join(used, on="cell_id", maintain_order="left").filter(pl.col("throughput_per_s").is_not_null())
    even = measured.filter(pl.col("gpus") % pl.col("nodes") == 0)
    curves = [on_curve(even, curve) for curve in ("weak", "strong")]
    rows = pl.concat([_beside_one_node(frame) for frame in curves])
    if not rows.height:
        return empty(NODES)
    across = ratio_interval(moments(rows), moments(rows, "node_"))
    scale = pl.col("nodes")
    rows = rows.with_columns(
        series("across", across.estimate), series("across_low", across.low), series("across_high", across.high)
    ).with_columns(pl.col("across", "across_low", "across_high") / scale)
    return shaped(_with_within(rows, efficiency).sort("curve", "gpus", "nodes", "series"), NODES)


def _beside_one_node(points: pl.DataFrame) -> pl.DataFrame:
    """Points on several nodes beside the moments of the one-node cell with as many GPUs as each of them."""
    points = points.with_columns(gpus_per_node=pl.col("gpus") // pl.col("nodes"))
    single = pl.col("nodes") == 1
    packed = ~pl.col("rest").str.contains("placement=", literal=True)
    ones = points.filter(single & (pl.col("gpus") > 1)).sort(packed, "cell_id", descending=[True, False])
    ones = ones.unique(ALIKE, keep="first", maintain_order=True)
    renamed = {name: f"node_{name}" for name in ("cell_id", *MOMENTS)}
    return points.filter(~single).join(ones.select(*ALIKE, *renamed).rename(renamed), on=ALIKE, maintain_order="left")


def _with_within(rows: pl.DataFrame, efficiency: pl.DataFrame) -> pl.DataFrame:
    """The efficiency of the one node, and of all GPUs, where the efficiency table has them."""
    names = {"efficiency": "within", "efficiency_low": "within_low", "efficiency_high": "within_high"}
    key = ["curve", "cell_id"]
    known = efficiency.unique(key, keep="first", maintain_order=True)
    one = known.select("curve", pl.col("cell_id").alias("node_cell_id"), *names).rename(names)
    rows = rows.join(one, on=["curve", "node_cell_id"], how="left", maintain_order="left")
    rows = rows.join(known.select(*key, "efficiency"), on=key, how="left", maintain_order="left")
    rows = rows.with_columns(visits=pl.min_horizontal("visits", "node_visits"))
    note = pl.when(pl.col("across_low").is_null()).then(pl.lit(NEEDS_VISITS))
    return rows.with_columns(note=note)
