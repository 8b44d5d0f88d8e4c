"""Bus bandwidth of each collective against message size, both axes logarithmic, beside what was to be expected.

Cells that differ only in what a raw collective cannot notice (bucket size, precision of the model) are one series here.
Called by `charts.figures`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import altair as alt
import polars as pl

from rtxscale.report.bandwidth_series import bandwidth_series, told_apart
from rtxscale.report.charts.bandwidth_references import References
from rtxscale.report.charts.figure import Figure, any_known, chart_of, series_color, series_shape, tooltips
from rtxscale.report.chosen import GREY, evenly
from rtxscale.report.numbers import interval, number, telling
from rtxscale.stats.rounding import size

SIZE_LABEL = (
    "datum.value >= 1073741824 ? format(datum.value / 1073741824, '~r') + ' GiB' : "
    "datum.value >= 1048576 ? format(datum.value / 1048576, '~r') + ' MiB' : "
    "datum.value >= 1024 ? format(datum.value / 1024, '~r') + ' KiB' : datum.value + ' B'"
)


def bandwidth_figures(
    bandwidth: pl.DataFrame, cells: pl.DataFrame, workers: str, references: References
) -> Iterator[Figure]:
    """One figure per collective operation."""
    named = bandwidth_series(bandwidth, cells, workers)
    for operation in named["operation"].unique(maintain_order=True):
        yield _figure(str(operation), named.filter(pl.col("operation") == operation), references)


def _figure(operation: str, rows: pl.DataFrame, references: References) -> Figure:
    labels = told_apart(rows)
    drawn = [_row(row) for row in rows.iter_rows(named=True)]
    told = [row for row in drawn if row["series"] in labels]
    others = list(dict.fromkeys(row["series"] for row in drawn if row["series"] not in labels))
    context = set(evenly(others, GREY))
    grey = [{name: row[name] for name in ("series", "size", "busbw")} for row in drawn if row["series"] in context]
    caption = "Bus bandwidth, as nccl-tests defines it. Bars: interval of a cell, or range over cells of one setting."
    if grey:
        caption += f" Grey: {len(others)} more settings{f', {GREY} of them drawn' if len(others) > GREY else ''}."
    model = [row for row in references.model if row["operation"] == operation]
    if model:
        caption += " Dashed: what NCCL's own model expects of its fastest choice, defaults, before its corrections."
    if references.limit is not None:
        caption += f" Dotted: {references.limit.words}."
    if references.silence:
        caption += f" {references.silence}"
    limit = [] if references.limit is None else [{"busbw": references.limit.gb_s, "text": "link"}]
    return Figure(
        key=f"bandwidth-{operation}",
        section="bandwidth",
        title=f"{operation.replace('_', '-')}: bus bandwidth against message size",
        caption=caption,
        chart=_layers(told, grey, labels, model, limit),
        datasets={"told": told, "grey": grey, "model": model, "limit": limit},
        labels=tuple(labels),
        wide=True,
    )


def _row(row: dict[str, Any]) -> dict[str, Any]:
    several = row["cells"] > 1  # a range over cells, which is no interval
    low, high = (row["low"], row["high"]) if several else telling(row["low"], row["high"])
    return {
        "series": row["series"],
        "size": row["size_bytes"],
        "busbw": row["busbw_gb_s"],
        "low": low,
        "high": high,
        "size_text": size(row["size_bytes"]),
        "busbw_text": interval(row["busbw_gb_s"], row["low"], row["high"], additive=several) + " GB/s",
        "time_text": f"{number(row['time_p50_s'] * 1e6, 3)} µs" if row["time_p50_s"] is not None else number(None),
        "cells": row["cells"],
        "cell": row["cell_id"],
    }


def _layers(
    told: list[dict[str, Any]],
    grey: list[dict[str, Any]],
    labels: list[str],
    model: list[dict[str, Any]],
    limit: list[dict[str, Any]],
) -> alt.TopLevelMixin:
    sizes = sorted({row["size"] for row in told})
    shown = alt.Axis(title="message size", labelExpr=SIZE_LABEL, grid=False)
    if len(sizes) <= 12:
        shown.values = sizes
    x = alt.X("size:Q", axis=shown, scale=alt.Scale(type="log", base=2, nice=False, padding=16))
    domain = _domain([*told, *grey], [row["busbw"] for row in (*model, *limit)])
    axis = alt.Axis(title="bus bandwidth (GB/s)", format="~r", values=_ticks(*domain))
    scale = alt.Scale(type="log", domain=list(domain), nice=False)
    y = alt.Y("busbw:Q", axis=axis, scale=scale)
    low = alt.Y("low:Q", axis=axis, scale=scale)
    color = series_color(labels)
    base = chart_of("told")
    bars = base.transform_filter("isValid(datum.low) && datum.low > 0").mark_rule(clip=True)
    hints = tooltips(
        series="setting",
        size_text="size",
        busbw_text="bus bandwidth",
        time_text="median time",
        cells="cells",
        trials="trials of one",
    )
    layers = (
        [chart_of("grey").mark_line(style="context").encode(x=x, y=y, detail="series:N", tooltip="series:N")]
        if grey
        else []
    )
    if model:
        layers.append(chart_of("model").mark_line(style="ideal").encode(x=x, y=y, detail="gpus:N"))
    if limit:
        layers.append(chart_of("limit").mark_rule(style="target").encode(y=y))
    return alt.layer(
        *layers,
        base.mark_line().encode(x=x, y=y, color=color),
        *([bars.encode(x=x, y=low, y2="high:Q", color=color)] if any_known(told, "low") else []),
        base.mark_point(filled=True, cursor="pointer").encode(
            x=x, y=y, color=color, shape=series_shape(labels), tooltip=hints
        ),
    ).properties(width="container", height=340)


def _domain(rows: list[dict[str, Any]], expected: list[float]) -> tuple[float, float]:
    """Lowest to highest bandwidth with a little air, and of bars and expectations as much as doubles or halves that."""
    values = [row["busbw"] for row in rows]
    bounds = [row[name] for row in rows for name in ("low", "high") if row.get(name)] + expected
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
