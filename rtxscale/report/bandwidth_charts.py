"""Bus bandwidth of each collective against message size, both axes logarithmic.

Cells that differ only in what a raw collective cannot notice (bucket size, precision of the model) are one series here.
Called by `charts`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import altair as alt
import polars as pl

from rtxscale.analysis.settings import in_words
from rtxscale.report.figure import Figure, any_known, chart_of, series_color, series_shape, tooltips
from rtxscale.report.knob_charts import PREFIX
from rtxscale.report.numbers import interval, number, size

TOLD_APART = 8
DEFAULT = "defaults"
SIZE_LABEL = (
    "datum.value >= 1073741824 ? format(datum.value / 1073741824, '~r') + ' GiB' : "
    "datum.value >= 1048576 ? format(datum.value / 1048576, '~r') + ' MiB' : "
    "datum.value >= 1024 ? format(datum.value / 1024, '~r') + ' KiB' : datum.value + ' B'"
)


def bandwidth_figures(bandwidth: pl.DataFrame, cells: pl.DataFrame, workers: str) -> Iterator[Figure]:
    """One figure per collective operation."""
    named = bandwidth_series(bandwidth, cells, workers)
    for operation in named["operation"].unique(maintain_order=True):
        yield _figure(str(operation), named.filter(pl.col("operation") == operation))


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
    )


def _names(cells: pl.DataFrame, workers: str) -> pl.DataFrame:
    """Series name of each cell: GPU count and the NCCL settings that are not auto, in words."""
    paths = [column.removeprefix(PREFIX) for column in cells.columns if column.startswith(f"{PREFIX}nccl.")]
    names = []
    for row in cells.select("cell_id", "gpus", *(PREFIX + path for path in paths)).iter_rows(named=True):
        values = {path: row[PREFIX + path] for path in paths}
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


def _figure(operation: str, rows: pl.DataFrame) -> Figure:
    labels = told_apart(rows)
    drawn = [_row(row) for row in rows.iter_rows(named=True)]
    told = [row for row in drawn if row["series"] in labels]
    grey = [{name: row[name] for name in ("series", "size", "busbw")} for row in drawn if row["series"] not in labels]
    caption = "Bus bandwidth, as nccl-tests defines it. Bars: interval of a cell, or range over cells of one setting."
    if grey:
        caption += f" Grey: {len({row['series'] for row in grey})} more settings."
    return Figure(
        key=f"bandwidth-{operation}",
        section="bandwidth",
        title=f"{operation.replace('_', '-')}: bus bandwidth against message size",
        caption=caption,
        chart=_layers(told, grey, labels),
        datasets={"told": told, "grey": grey},
        labels=tuple(labels),
        wide=True,
    )


def _row(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "series": row["series"],
        "size": row["size_bytes"],
        "busbw": row["busbw_gb_s"],
        "low": row["low"],
        "high": row["high"],
        "size_text": size(row["size_bytes"]),
        "busbw_text": interval(row["busbw_gb_s"], row["low"], row["high"]) + " GB/s",
        "time_text": f"{number(row['time_p50_s'] * 1e6, 3)} µs" if row["time_p50_s"] is not None else number(None),
        "cells": row["cells"],
    }


def _layers(told: list[dict[str, Any]], grey: list[dict[str, Any]], labels: list[str]) -> alt.TopLevelMixin:
    sizes = sorted({row["size"] for row in told})
    shown = alt.Axis(title="message size", labelExpr=SIZE_LABEL, grid=False)
    if len(sizes) <= 12:
        shown.values = sizes
    x = alt.X("size:Q", axis=shown, scale=alt.Scale(type="log", base=2, nice=False, padding=16))
    domain = _domain([*told, *grey])
    axis = alt.Axis(title="bus bandwidth (GB/s)", format="~r", values=_ticks(*domain))
    scale = alt.Scale(type="log", domain=list(domain), nice=False)
    y = alt.Y("busbw:Q", axis=axis, scale=scale)
    low = alt.Y("low:Q", axis=axis, scale=scale)
    color = series_color(labels)
    base = chart_of("told")
    bars = base.transform_filter("isValid(datum.low) && datum.low > 0").mark_rule(clip=True)
    hints = tooltips(
        series="setting", size_text="size", busbw_text="bus bandwidth", time_text="median time", cells="cells"
    )
    layers = [chart_of("grey").mark_line(style="context").encode(x=x, y=y, detail="series:N")] if grey else []
    return alt.layer(
        *layers,
        base.mark_line().encode(x=x, y=y, color=color),
        *([bars.encode(x=x, y=low, y2="high:Q", color=color)] if any_known(told, "low") else []),
        base.mark_point(filled=True).encode(x=x, y=y, color=color, shape=series_shape(labels), tooltip=hints),
    ).properties(width="container", height=340)


def _domain(rows: list[dict[str, Any]]) -> tuple[float, float]:
    """Lowest to highest bandwidth with a little air, and of the bars as much as doubles or halves that."""
    values = [row["busbw"] for row in rows]
    bounds = [row[name] for row in rows for name in ("low", "high") if row.get(name)]
    low = max(min(values + bounds), min(values) / 2)
    high = min(max(values + bounds), 2 * max(values))
    return 0.85 * low, 1.18 * high


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten inside the domain.

    >>> _ticks(18.0, 330.0)
    [20.0, 50.0, 100.0, 200.0]
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = (step * 10.0**power for power in powers for step in (1, 2, 5))
    return [tick for tick in ticks if low <= tick <= high]
