"""Sentinels of each session over time, against the session's mean: what the machine did while nothing else changed.

Sessions with the largest spread are told apart, the others are grey; a session with fewer than two sentinels has no
line. Called by `charts.figures`.
"""

from __future__ import annotations

from typing import Any

import altair as alt
import polars as pl

from rtxscale.analysis.drift_remarks import drift_words
from rtxscale.report.charts.figure import Figure, chart_of, series_color, series_shape, tooltips
from rtxscale.report.numbers import gain, how_many, number, throughput_unit

TOLD_APART = 8
SHORT_MIN = 2.0
"""Sessions shorter than this are told in seconds."""
BANDWIDTH_UNIT = "GB/s"
PLACES = {1: "start", 2: "middle", 3: "end"}


def drift_figure(drift: pl.DataFrame, sentinels: pl.DataFrame) -> Figure | None:
    """The figure, or None where no session has two sentinels; both frames are those of the conclusions."""
    known = drift.filter(pl.col("spread").is_not_null()).sort("spread", descending=True, maintain_order=True)
    if known.is_empty():
        return None
    labels = known["session_id"].head(TOLD_APART).to_list()
    drawn = sentinels.filter(pl.col("session_id").is_in(known["session_id"].implode()))
    unit, per_minute = _unit(drawn["minutes"].max())
    rows = [_row(row, per_minute) for row in drawn.iter_rows(named=True)]
    told = [row for row in rows if row["series"] in labels]
    grey = [{name: row[name] for name in ("series", "time", "change")} for row in rows if row["series"] not in labels]
    return Figure(
        key="drift",
        section="drift",
        title="Sentinels over time, session by session",
        caption=_caption(known, others=known.height - len(labels)),
        chart=_layers(labels, unit, grey=bool(grey)),
        datasets={"told": told, "grey": grey, "zero": [{"change": 0.0}]},
        labels=tuple(labels),
    )


def _caption(known: pl.DataFrame, others: int) -> str:
    words = "Trials of one and the same cell at start, middle and end of a session, against their mean. "
    words += f"{drift_words(known)}."
    return words + (f" Grey: {how_many(others, 'more sessions')}, with smaller spreads." if others else "")


def _unit(longest: Any) -> tuple[str, float]:
    """The unit of time in which sessions so many minutes long can be read, and how many of it a minute has."""
    return ("minutes", 1.0) if longest is not None and longest >= SHORT_MIN else ("seconds", 60.0)


def _row(row: dict[str, Any], per_minute: float) -> dict[str, Any]:
    unit = row["unit"] if row["unit"] == BANDWIDTH_UNIT else throughput_unit(row["unit"])
    return {
        "series": row["session_id"],
        "time": None if row["minutes"] is None else per_minute * row["minutes"],
        "change": 100 * row["change"],
        "change_text": gain(row["change"]),
        "value_text": f"{number(row['value'])} {unit}",
        "quantity": row["quantity"],
        "place": PLACES.get(row["place"], str(row["place"])),
        "trial": row["trial_id"],
    }


def _layers(labels: list[str], unit: str, *, grey: bool) -> alt.TopLevelMixin:
    axis = alt.Axis(title=f"{unit} since the session's first sentinel", tickCount=8)
    x = alt.X("time:Q", axis=axis, scale=alt.Scale(nice=False, padding=12))
    y = alt.Y("change:Q", title="change from the session's mean (%)", axis=alt.Axis(tickCount=5))
    color = series_color(labels)
    hints = [
        *tooltips(series="session", place="sentinel", value_text="measured", quantity="quantity"),
        *tooltips(change_text="from the mean", trial="trial"),
        alt.Tooltip("time:Q", title=unit, format=".1f"),
    ]
    base = chart_of("told")
    context = [chart_of("grey").mark_line(style="context").encode(x=x, y=y, detail="series:N")] if grey else []
    return alt.layer(
        chart_of("zero").mark_rule(style="reference").encode(y=y),
        *context,
        base.mark_line().encode(x=x, y=y, color=color),
        base.mark_point(filled=True, cursor="pointer").encode(
            x=x, y=y, color=color, shape=series_shape(labels), tooltip=hints
        ),
    ).properties(width="container", height=240)
