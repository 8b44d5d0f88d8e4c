"""Energy per unit of work against GPU count: of default cells, of the thriftiest settings, and at the wall if metered.

Energy is that of the used GPUs alone unless a series says otherwise; other cells are grey points. Called by
`charts.figures`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import polars as pl

from rtxscale.analysis.settings import beside_size
from rtxscale.report.charts.figure import Figure, any_known, chart_of, series_color, series_shape, tooltips
from rtxscale.report.chosen import GREY, evenly
from rtxscale.report.numbers import TOO_WIDE, interval, no_bar, number, telling

DEFAULTS, THRIFTIEST, WALL = "defaults", "least energy", "defaults, at the wall"
FAMILIES = 6
"""Most settings beside communication that are told apart; the cells of others are grey."""
CONTEXT = ("gpus", "energy", "label", "energy_text")
"""What is kept of a grey point."""
GPU_ENERGY, WALL_ENERGY = "energy_per_work", "wall_energy_per_work"
POWER = {GPU_ENERGY: "power_w", WALL_ENERGY: "wall_power_w"}
"""The power that belongs to an energy."""


def energy_figure(cost: pl.DataFrame, workers: str) -> Figure | None:
    """The figure, or None where no energy was read; `cost` is the conclusions'."""
    known = cost.filter(pl.col(f"{GPU_ENERGY}_j").is_not_null()).sort("gpus", f"{GPU_ENERGY}_j")
    if known.is_empty():
        return None
    rows = list(_told(known))
    drawn = {row["cell"] for row in rows}
    others = [row for row in known.iter_rows(named=True) if row["cell_id"] not in drawn]
    grey = [{name: _row("", row, GPU_ENERGY)[name] for name in CONTEXT} for row in evenly(others, GREY)]
    labels = list(
        dict.fromkeys(row["series"] for row in sorted(rows, key=lambda row: row["series"] in (THRIFTIEST, WALL)))
    )
    unit = known["unit"][0] or "unit of work"
    return Figure(
        key="energy",
        section="energy",
        title=f"Energy per {unit}",
        caption=_caption(rows, len(others)),
        chart=_layers(rows, grey, labels, f"energy (J/{unit})", workers),
        datasets={"told": rows, **({"grey": grey} if grey else {})},
        labels=tuple(labels),
    )


def _told(known: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Of each GPU count the default cells, the thriftiest cell where that is another, and what a meter read."""
    named = _families(known)
    for _, cells in known.group_by("gpus", maintain_order=True):
        for row in cells.filter("is_default").iter_rows(named=True):
            if (family := named.get(beside_size(row["label"]))) is None:
                continue
            yield _row(family, row, GPU_ENERGY)
            if row[f"{WALL_ENERGY}_j"] is not None and len(named) == 1:
                yield _row(WALL, row, WALL_ENERGY)
        least = cells.row(0, named=True)
        if not least["is_default"] and cells.height > 1:
            yield _row(THRIFTIEST, least, GPU_ENERGY)


def _families(known: pl.DataFrame) -> dict[str, str]:
    """Settings beside size and communication -> what their series is called; `DEFAULTS` where there is one alone."""
    found = list(dict.fromkeys(beside_size(label) for label in known.filter("is_default")["label"]))
    return {found[0]: DEFAULTS} if len(found) == 1 else {family: family or DEFAULTS for family in found[:FAMILIES]}


def _row(series: str, row: dict[str, Any], quantity: str) -> dict[str, Any]:
    value, bounds = row[f"{quantity}_j"], (row[f"{quantity}_low"], row[f"{quantity}_high"])
    low, high = telling(*bounds)
    return {
        "series": series,
        "gpus": row["gpus"],
        "energy": value,
        "low": low,
        "high": high,
        "label": row["label"],
        "energy_text": f"{interval(value, *bounds)} J",
        "power_text": f"{number(row[POWER[quantity]], 3)} W",
        "cell": row["cell_id"],
    }


def _caption(rows: list[dict[str, Any]], others: int) -> str:
    words = ["Of the used GPUs alone, over the measured windows; lower is thriftier."]
    if any_known(rows, "low"):
        words.append("Bars: 95 % intervals over sessions.")
    if silent := no_bar(row["energy_text"] for row in rows if TOO_WIDE in row["energy_text"]):
        words.append(silent.lstrip())
    if any(row["series"] == WALL for row in rows):
        words.append("At the wall: all that hangs behind the meter.")
    if others:
        words.append(f"Grey: {others:,} more cells{f', {GREY} of them drawn' if others > GREY else ''}.")
    return " ".join(words)


def _layers(
    rows: list[dict[str, Any]], grey: list[dict[str, Any]], labels: list[str], title: str, workers: str
) -> alt.TopLevelMixin:
    counts = sorted({row["gpus"] for row in [*rows, *grey]})
    together = alt.Scale(paddingInner=0.8, paddingOuter=0.4)
    x = alt.X("gpus:O", sort=counts, axis=alt.Axis(title=workers, labelAngle=0), scale=together)
    aside = alt.XOffset("series:N", sort=labels, scale=alt.Scale(domain=labels))
    axis, scale = alt.Axis(title=title, tickCount=5, format="~r"), alt.Scale(zero=True, nice=True)
    y = alt.Y("energy:Q", axis=axis, scale=scale)
    color, base = series_color(labels), chart_of("told")
    hints = tooltips(
        series="which", label="setting", gpus=workers, energy_text="energy", power_text="power", trials="trials"
    )
    bars = base.transform_filter("isValid(datum.low)").mark_rule()
    context = chart_of("grey").mark_point(style="context", filled=True, size=16)
    return alt.layer(
        *([context.encode(x=x, y=y, tooltip=tooltips(label="setting", energy_text="energy"))] if grey else []),
        *(
            [bars.encode(x=x, xOffset=aside, y=alt.Y("low:Q", axis=axis, scale=scale), y2="high:Q", color=color)]
            if any_known(rows, "low")
            else []
        ),
        base.mark_point(filled=True, cursor="pointer").encode(
            x=x, xOffset=aside, y=y, color=color, shape=series_shape(labels), tooltip=hints
        ),
    ).properties(width="container", height=220)
