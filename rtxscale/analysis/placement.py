"""What it costs where the GPUs sit: placements of equal GPU counts against the one whose GPUs are closest together.

Cells that are equal but for nodes, workers on each and placement are compared, as the ratio of throughputs paired
within visits; each placement has sessions of its own, as it has GPUs of its own. How close GPUs are is what the run
recorded (`trials.link_class`), not what a placement is called; what is not known counts as farthest. The family of a
GPU count is corrected by Holm. Called by `analysis.interpret`.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from rtxscale.analysis.cells import CellTable, Replicates
from rtxscale.analysis.effects import holm_by, verdict
from rtxscale.analysis.frames import empty, moments, series, shaped
from rtxscale.analysis.pairs import paired_moments
from rtxscale.analysis.settings import LAYOUT_AXES
from rtxscale.analysis.tables import PLACEMENTS
from rtxscale.spec.cell import LINK_CLASSES
from rtxscale.stats.compare import ratio_test

QUESTION = ["gpus", "placement", "link_class", "nodes", "reference", "reference_class"]
PLACE = ["gpus", "other", "distance", "nodes", "named", "placement", "cell_id"]
"""Order of closeness among equal cells; of equally close ones the placement that a sweep does not have to name."""
PACKED = "packed"


def placement_table(cells: CellTable, measured: Replicates, counted: pl.DataFrame) -> pl.DataFrame:
    """One row per GPU count and placement that has a closer one beside it; `counted` says which links were used."""
    places = _places(cells, counted)
    closest = places.sort(PLACE).unique(["gpus", "other"], keep="first", maintain_order=True)
    closest = closest.select(
        *("gpus", "other"),
        pl.col("cell_id").alias("reference_id"),
        pl.col("placement").alias("reference"),
        pl.col("link_class").alias("reference_class"),
    )
    pairs = places.join(closest, on=["gpus", "other"]).filter(pl.col("cell_id") != pl.col("reference_id"))
    if not pairs.height:
        return empty(PLACEMENTS)
    known = pairs.with_columns(pl.col("link_class", "reference_class").fill_null(""))  # a key must not be null
    found = paired_moments(known.select(*QUESTION, "cell_id", "reference_id"), QUESTION, measured)
    if not found.height:
        return empty(PLACEMENTS)
    test = ratio_test(moments(found))
    found = found.with_columns(
        series("ratio", test.ratio),
        series("ratio_low", test.low),
        series("ratio_high", test.high),
        series("penalty", 1 - test.ratio),
        series("p_holm", holm_by(found["gpus"].to_numpy(), test.p_value)),
        pl.col("link_class", "reference_class").replace("", None),
        sessions="visits",
    ).with_columns(verdict=verdict(), distance=_distance())
    return shaped(found.sort("gpus", "distance", "nodes", "placement"), PLACEMENTS)


def _places(cells: CellTable, counted: pl.DataFrame) -> pl.DataFrame:
    """Every cell of several GPUs with where its workers were, and the key of all else that it is."""
    rows: list[dict[str, Any]] = []
    for cell_id, gpus in cells.frame.filter(pl.col("gpus") > 1).select("cell_id", "gpus").iter_rows():
        settings = cells.settings[cell_id]
        words = settings.layout or PACKED
        rows.append({"cell_id": cell_id, "gpus": gpus, "other": settings.other_than(*LAYOUT_AXES), "placement": words})
    text = ("cell_id", "other", "placement")
    frame = pl.DataFrame(rows, schema={"gpus": pl.Int64(), **dict.fromkeys(text, pl.String())})
    used = counted.group_by("cell_id").agg(pl.col("link_class", "nodes").drop_nulls().first())
    frame = frame.join(used, on="cell_id", how="left", maintain_order="left")
    return frame.with_columns(distance=_distance(), named=pl.col("placement") != PACKED)


def _distance() -> pl.Expr:
    """Place of `link_class` in the order of closeness; what is not known is farthest."""
    order = {name: place for place, name in enumerate(LINK_CLASSES)}
    return pl.col("link_class").replace_strict(order, default=len(order), return_dtype=pl.Int64)
