"""The loss budget of each GPU count's default cell as a waterfall: ideal step, what is lost, measured step.

Each part begins where the one before it ends, so that the whole way from the ideal to the measured step can be seen.
Called by `charts.figures`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import altair as alt
import polars as pl

from rtxscale.analysis.budget import IDEAL, MEASURED, PARTS
from rtxscale.report.charts.figure import Figure, any_known, chart_of, tooltips
from rtxscale.report.numbers import number, percent
from rtxscale.report.tables.budget import MILLISECONDS, milliseconds

FIGURES = 6
"""Most waterfalls in a report: the largest counts of each curve are drawn."""
WHOLE, LOST, WON = "whole step", "lost", "won back"
KINDS = (WHOLE, LOST, WON)
ROW = 34
ROOM = 0.4
"""Share of the chart that a text needs, on a phone too."""
SIDES: dict[str, tuple[str, Literal["left", "right"], int]] = {
    "on": ("bar-label", "left", 8),
    "left": ("part-label", "right", -8),
    "right": ("part-label", "left", 8),
}
"""Where a text stands -> its style, alignment and distance in pixels."""


def budget_figures(budget: pl.DataFrame, workers: str) -> Iterator[Figure]:
    """A waterfall per curve and count of the default cells whose parts are known; `budget` is the conclusions'."""
    shown = budget.filter(pl.col("is_default"))
    groups = shown.group_by("curve", "gpus", "cell_id", maintain_order=True)
    for (curve, gpus, _), rows in list(groups)[-FIGURES:]:
        steps = waterfall(list(rows.iter_rows(named=True)))
        if len(steps) > 2:
            yield _figure(str(curve), int(str(gpus)), workers, steps)


def waterfall(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Bars in ms from `start` to `end`, in the order of the parts; parts that are not known have none.

    >>> row = {"low": None, "high": None, "share": None}
    >>> parts = (("ideal step", 0.010), ("compute", 0.002), ("input", None), ("measured step", 0.012))
    >>> found = waterfall([{**row, "part": part, "seconds_per_step": value} for part, value in parts])
    >>> [(bar["part"], bar["start"], bar["end"]) for bar in found]
    [('ideal step', 0.0, 10.0), ('compute', 10.0, 12.0), ('measured step', 0.0, 12.0)]
    """
    bars, level = [], 0.0
    for row in sorted(rows, key=lambda row: PARTS.index(row["part"])):
        if row["seconds_per_step"] is None:
            continue
        whole = row["part"] in (IDEAL, MEASURED)
        size, start = MILLISECONDS * row["seconds_per_step"], 0.0 if whole else level
        level = start + size
        low, high = (None if row[name] is None else start + MILLISECONDS * row[name] for name in ("low", "high"))
        bars.append(
            {
                "part": row["part"],
                "start": start,
                "end": level,
                "low": low,
                "high": high,
                "kind": WHOLE if whole else (LOST if size >= 0 else WON),
                "time_text": f"{milliseconds(row)} ms",
                "label": f"{number(size, 3)} ms" if whole else f"{number(size, 2)} ms ({percent(row['share'])})",
                "share_text": percent(row["share"]),
                "cell": row.get("cell_id"),
            }
        )
    return bars


def _figure(curve: str, gpus: int, workers: str, bars: list[dict[str, Any]]) -> Figure:
    caption = (
        "Default settings. What is lost between one worker's own step (strong: its share of the whole batch) and the "
        "step of all, in brackets as a share of it; thin lines are 95 % intervals of each part over sessions"
    )
    reach = domain(bars)
    bars = [{**bar, **_label(bar, reach)} for bar in bars]
    if any(not reach[0] <= bar[name] <= reach[1] for bar in bars for name in ("low", "high") if bar[name] is not None):
        caption += "; those that leave the chart are cut"
    caption += "."
    if not any_known(bars, "low"):
        caption = f"{caption.partition(';')[0]}. Without intervals: more visits are needed."
    return Figure(
        key=f"budget-{curve}-{gpus}",
        section="budget",
        title=f"Where a step's time goes, {gpus} {workers}, {curve} scaling",
        caption=caption,
        chart=_layers(bars, reach),
        datasets={"parts": bars},
        labels=KINDS,
        shaped=False,
    )


def domain(bars: list[dict[str, Any]]) -> list[float]:
    """All bars in ms, and of their intervals as much as half of the longest bar beyond them."""
    edges = [bar[name] for bar in bars for name in ("start", "end")]
    bounds = [bar[name] for bar in bars for name in ("low", "high") if bar[name] is not None]
    low, high = min(edges), max(edges)
    room = 0.5 * (high - low)
    return [max(min([low, *bounds]), low - room), min(max([high, *bounds]), high + room)]


def _label(bar: dict[str, Any], reach: list[float]) -> dict[str, Any]:
    """The text of a bar, and where there is room for it: on a long bar, else on the side where the chart is wider."""
    edges = [bar[name] for name in ("start", "end", "low", "high") if bar[name] is not None]
    low, high = max(min(edges), reach[0]), min(max(edges), reach[1])
    span = reach[1] - reach[0]
    if bar["kind"] == WHOLE and bar["end"] - bar["start"] > ROOM * span:
        return {"label": bar["label"], "side": "on", "at": bar["start"]}
    left = low - reach[0] > reach[1] - high
    return {"label": bar["label"], "side": "left" if left else "right", "at": low if left else high}


def _layers(bars: list[dict[str, Any]], reach: list[float]) -> alt.TopLevelMixin:
    y = alt.Y("part:N", sort=[bar["part"] for bar in bars], title=None, axis=alt.Axis(ticks=False))
    axis = alt.Axis(title="ms per step", tickCount=6, grid=True)
    scale = alt.Scale(nice=False, padding=12, domain=reach)
    x = alt.X("start:Q", axis=axis, scale=scale)
    color = alt.Color("kind:N", scale=alt.Scale(domain=list(KINDS)))
    hints = tooltips(part="part", time_text="time", share_text="of the measured step", trials="trials")
    base = chart_of("parts")
    spans = base.transform_filter("isValid(datum.low)").mark_rule(style="interval", clip=True)
    texts = [
        base.transform_filter(alt.FieldEqualPredicate(field="side", equal=side))
        .mark_text(style=style, align=align, dx=dx)
        .encode(x=alt.X("at:Q", axis=axis, scale=scale), y=y, text="label:N")
        for side, (style, align, dx) in SIDES.items()
        if any(bar["side"] == side for bar in bars)
    ]
    return alt.layer(
        base.mark_bar(cornerRadius=2, height=ROW // 2, cursor="pointer").encode(
            x=x, x2="end:Q", y=y, color=color, tooltip=hints
        ),
        *([spans.encode(x=alt.X("low:Q", axis=axis, scale=scale), x2="high:Q", y=y)] if any_known(bars, "low") else []),
        *texts,
    ).properties(width="container", height=ROW * len(bars))
