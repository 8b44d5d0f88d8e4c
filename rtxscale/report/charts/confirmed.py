"""Gains over the default as selected and as confirmed, one line per confirmed cell.

Only the confirmed gain has an interval: the selected one is the best of many and too high on average. Called by
`charts.figures`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import polars as pl

from rtxscale.report.charts.figure import WRAPPED, Figure, any_known, chart_of, series_color, series_shape, tooltips
from rtxscale.report.numbers import gain, no_bar, telling

SERIES = ("selected", "confirmed")
SIGNED = "datum.value == 0 ? '0' : format(datum.value, '+.3~r')"


def confirmed_figure(confirmed: pl.DataFrame, workers: str) -> Figure | None:
    """Both gains of every confirmed cell; None where no gain is known."""
    rows = [row for cell in confirmed.iter_rows(named=True) for row in _rows(cell, workers)]
    if not any_known(rows, "change"):
        return None
    caption = "Throughput over that of the default. Selected: in the sweep that chose the cell, too high on average. "
    caption += "Confirmed: in sessions of their own, with its 95 % interval"
    low, high = domain(rows)
    cut = any(not low <= row[name] <= high for row in rows for name in ("low", "high") if row[name] is not None)
    caption += "; bars that leave the chart are cut." if cut else "."
    caption += no_bar(row["gain_text"] for row in rows if row["series"] == SERIES[1] and row["low"] is None)
    labels = list(dict.fromkeys(row["label"] for row in rows))
    return Figure(
        key="confirmed",
        section="best",
        title="Selected and confirmed gains",
        caption=caption,
        chart=_layers(rows, labels, [low, high]),
        datasets={"gains": rows, "none": [{"change": 0.0}]},
        labels=SERIES,
        wide=True,
    )


def _rows(cell: dict[str, Any], workers: str) -> Iterator[dict[str, Any]]:
    """The selected and the confirmed gain of one cell, in percent."""
    gpus, curve = cell["gpus"], f", {cell['curve']}" if cell["curve"] else ""
    label = f"{cell['label'].removeprefix(f'gpus {gpus}, ')} ({gpus} {workers}{curve})"
    gains = ((cell["selected_gain"], None, None), (cell["gain"], cell["gain_low"], cell["gain_high"]))
    for series, (value, low, high) in zip(SERIES, gains, strict=True):
        ends = (None if low is None else 1 + low, None if high is None else 1 + high)
        low_ratio, high_ratio = telling(*ends)
        if value is not None:
            yield {
                "label": label,
                "series": series,
                "change": 100 * value,
                "low": None if low_ratio is None else 100 * (low_ratio - 1),
                "high": None if high_ratio is None else 100 * (high_ratio - 1),
                "gain_text": gain(value, low, high),
                "verdict": cell["verdict"],
                "visits": cell["visits"],
            }


def domain(rows: list[dict[str, Any]]) -> list[float]:
    """All gains in percent, 1 % to each side of 0, and of the bars as much as the largest gain again (2 % at least)."""
    changes = [row["change"] for row in rows]
    bounds = [row[name] for row in rows for name in ("low", "high") if row[name] is not None]
    low, high = min([-1.0, *changes]), max([1.0, *changes])
    room = max(2.0, -low, high)
    return [max(min([low, *bounds]), low - room), min(max([high, *bounds]), high + room)]


def _layers(rows: list[dict[str, Any]], labels: list[str], reach: list[float]) -> alt.TopLevelMixin:
    axis = alt.Axis(title="gain over the default (%)", labelExpr=SIGNED, tickCount=8, grid=True)
    scale = alt.Scale(nice=False, padding=12, domain=reach)
    x = alt.X("change:Q", axis=axis, scale=scale)
    at = {
        "y": alt.Y("label:N", sort=labels, title=None, axis=alt.Axis(ticks=False, labelExpr=WRAPPED)),
        "yOffset": alt.YOffset("series:N", sort=list(SERIES)),
        "color": series_color(list(SERIES)),
    }
    base = chart_of("gains")
    spans = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2, clip=True)
    hints = tooltips(label="setting", series="gain", gain_text="over the default", verdict="verdict", visits="visits")
    return alt.layer(
        chart_of("none").mark_rule(style="reference").encode(x=x),
        *(
            [spans.encode(x=alt.X("low:Q", axis=axis, scale=scale), x2="high:Q", **at)]
            if any_known(rows, "low")
            else []
        ),
        base.mark_point(filled=True, size=70).encode(x=x, shape=series_shape(list(SERIES)), tooltip=hints, **at),
    ).properties(width="container", height=max(60, 40 * len(labels)))
