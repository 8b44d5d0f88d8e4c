"""What the settings under test change: a heat map of two knobs per GPU count, and each knob's effect with interval.

The heat map shows cells as found, relative to the default at the same GPU count and batch; it proves nothing by itself.
The effect plot shows the analysis' paired ratios. Called by `charts.figures`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import altair as alt
import polars as pl

from rtxscale.analysis.settings import BATCH_AXES, is_communication, is_compared
from rtxscale.report.charts.figure import LINE, WRAPPED, Figure, any_known, chart_of, tooltips
from rtxscale.report.charts.theme import DIVERGING
from rtxscale.report.chosen import AXIS, evenly
from rtxscale.report.numbers import gain, how_many, interval, no_bar, number, telling
from rtxscale.spec.sweep import SUBJECT_AXES

NOT_KNOBS = ("gpus", *BATCH_AXES, *SUBJECT_AXES)
"""Axes that say what is trained and how much of it: between their values throughput says nothing of a setting."""
MAPS = 4
EFFECTS = 24
"""Most settings in the effect plot: those with the largest effects."""
ACROSS, DOWN = 8, 12
"""Most values of a knob in a heat map, so that its numbers can be read on a phone; more are spread evenly."""
SIGNED = "datum.value == 0 ? '0' : format(datum.value, '+.3~r')"


def knob_axes(cells: pl.DataFrame) -> list[str]:
    """Dotted paths of the axes under test, most values first; what is trained, its size and its target are no knobs."""
    counts = {}
    for column in cells.columns:
        path = column.removeprefix(AXIS)
        if column.startswith(AXIS) and path not in NOT_KNOBS and is_compared(path):
            counts[path] = cells[column].drop_nulls().n_unique()
    return sorted((path for path, count in counts.items() if count > 1), key=lambda path: (-counts[path], path))


def value_order(values: set[str]) -> list[str]:
    """`auto` and other words first, then numbers by size.

    >>> value_order({"8", "auto", "16", "1"})
    ['auto', '1', '8', '16']
    """
    return sorted(values, key=lambda text: (_as_number(text) is not None, _as_number(text) or 0.0, text))


def heat_figures(cells: pl.DataFrame, effects: pl.DataFrame, workers: str) -> Iterator[Figure]:
    """One heat map per GPU count (the largest `MAPS`) over the two knobs with most values."""
    axes = knob_axes(cells)
    if len(axes) < 2:
        return
    knobs = (axes[0], axes[1])
    relative = relative_to_default(cells, axes, references(effects))
    counts = sorted(relative["gpus"].unique().to_list())[-MAPS:]
    spread = _spread(relative.filter(pl.col("gpus").is_in(counts)), knobs)
    for count in counts:
        rows = _thinned(_tiles(relative.filter(pl.col("gpus") == count), knobs))
        if len(rows) > 1:
            subject = how_many(count, workers)
            yield _heat_figure(rows, knobs, subject, f"heat-{count}", spread, _heat_words(cells, rows, axes))


def references(effects: pl.DataFrame) -> dict[str, str]:
    """The value that each axis is compared with, as the analysis chose it."""
    return {row["axis"]: row["reference"] for row in effects.iter_rows(named=True) if row["reference"] is not None}


def relative_to_default(cells: pl.DataFrame, axes: list[str], reference: dict[str, str]) -> pl.DataFrame:
    """Cells with `ratio`: throughput over that of the cell of the same size with every knob at its default."""
    others = [path for path in axes if not is_communication(path)]
    at_default = pl.all_horizontal(
        "is_default", *(pl.col(AXIS + path) == _reference(cells, path, reference) for path in others)
    )
    same = ["workload", "gpus", "batch_per_gpu", "global_batch"]
    base = cells.filter(at_default).group_by(same).agg(pl.col("throughput_per_s").mean().alias("base"))
    joined = cells.join(base, on=same, how="inner", nulls_equal=True)
    ratio = pl.col("throughput_per_s") / pl.col("base")
    return joined.with_columns(ratio.alias("ratio")).filter(pl.col("ratio").is_finite() & (pl.col("ratio") > 0))


def _reference(cells: pl.DataFrame, path: str, reference: dict[str, str]) -> str:
    """The value that the analysis compares with, else the first in order."""
    return reference.get(path) or value_order(set(cells[AXIS + path].drop_nulls()))[0]


def _tiles(relative: pl.DataFrame, knobs: tuple[str, str]) -> list[dict[str, Any]]:
    """Geometric mean of the ratio for every pair of values; the best and how many cells beside it."""
    x, y = (AXIS + knob for knob in knobs)
    tiles = (
        _balanced(relative.drop_nulls([x, y]), x, y)
        .group_by(pl.col(x).alias("x"), pl.col(y).alias("y"), maintain_order=True)
        .agg(
            pl.col("ratio").log().mean().exp(),
            pl.col("ratio").max().alias("best"),
            pl.len().alias("cells"),
            pl.col("is_default").all().alias("default"),
            pl.col("cell_id").sort_by("ratio").last().alias("cell"),
        )
    )
    return [
        {**row, "text": number(row["ratio"], 3), "best_text": number(row["best"], 3)}
        for row in tiles.iter_rows(named=True)
    ]


def _balanced(relative: pl.DataFrame, x: str, y: str) -> pl.DataFrame:
    """The cells whose other settings were measured in every tile, so that all tiles are means over the same ones.

    All cells where no other settings were. The default cell, which belongs to no grid, needs no like.
    """
    others = [column for column in relative.columns if column.startswith(AXIS) and column not in (x, y)]
    if not others:
        return relative
    asked = relative if relative["is_default"].all() else relative.filter(~pl.col("is_default"))
    tiles = asked.select(x, y).unique()
    in_tiles = relative.join(tiles, on=[x, y], how="semi")
    common = (
        in_tiles.group_by(others).agg(pl.struct(x, y).n_unique().alias("tiles")).filter(pl.col("tiles") == tiles.height)
    )
    return relative.join(common, on=others, how="semi", nulls_equal=True) if common.height else relative


def _thinned(tiles: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tiles of at most `ACROSS` times `DOWN` values, first and last included."""
    kept = {
        name: set(evenly(value_order({tile[name] for tile in tiles}), most))
        for name, most in (("x", ACROSS), ("y", DOWN))
    }
    return [tile for tile in tiles if all(tile[name] in values for name, values in kept.items())]


def _spread(relative: pl.DataFrame, knobs: tuple[str, str]) -> float:
    """Half-width of the colour scale around 1, the same for all GPU counts; at least 2 %, so noise stays pale."""
    ratios = [
        tile["ratio"]
        for count in relative["gpus"].unique()
        for tile in _tiles(relative.filter(pl.col("gpus") == count), knobs)
    ]
    return max([0.02, *(abs(float(ratio) - 1) for ratio in ratios)])


def _heat_words(cells: pl.DataFrame, rows: list[dict[str, Any]], axes: list[str]) -> str:
    words = "Throughput over the default of the same size: above 1 (blue) is faster. As found, without intervals."
    if len(axes) > 2 or any(row["cells"] > 1 for row in rows):
        words += " Geometric mean over what else was varied"
        words += ", of which not every tile has the same." if _uneven(rows) else "."
    for name, axis in (("x", axes[0]), ("y", axes[1])):
        shown, every = len({row[name] for row in rows}), cells[AXIS + axis].drop_nulls().n_unique()
        if shown < every and shown in (ACROSS, DOWN):
            words += f" Shown: {shown} of {every} values of {axis}."
    return words


def _uneven(rows: list[dict[str, Any]]) -> bool:
    """Whether tiles are means over different numbers of cells; that of the default cell alone aside."""
    return len({row["cells"] for row in rows if not row["default"] or row["cells"] > 1}) > 1


def _heat_figure(
    rows: list[dict[str, Any]], knobs: tuple[str, str], subject: str, key: str, spread: float, caption: str
) -> Figure:
    gap = alt.Scale(paddingInner=0.04)
    x, y = (
        alt.X(
            "x:N", title=knobs[0], sort=value_order({row["x"] for row in rows}), axis=alt.Axis(labelAngle=0), scale=gap
        ),
        alt.Y("y:N", title=knobs[1], sort=value_order({row["y"] for row in rows}), scale=gap),
    )
    scale = alt.Scale(domain=[1 - spread, 1, 1 + spread], range=list(DIVERGING), clamp=True)
    hints = tooltips(
        x=knobs[0],
        y=knobs[1],
        text="mean over default",
        best_text="best over default",
        cells="cells",
        trials="trials of the best",
    )
    base = chart_of("tiles").encode(x=x, y=y, tooltip=hints)
    tiles = base.mark_rect(cornerRadius=3, cursor="pointer").encode(
        color=alt.Color("ratio:Q", scale=scale, legend=None)
    )
    dark = f"abs(datum.ratio - 1) > {0.75 * spread:.6f}"
    words = base.mark_text(fontSize=12).encode(
        text="text:N", color=alt.condition(dark, alt.value("#ffffff"), alt.value("#1b1f24"))
    )
    height = 40 * len({row["y"] for row in rows})
    return Figure(
        key=key,
        section="knobs",
        title=f"{knobs[0]} against {knobs[1]}, {subject}",
        caption=caption,
        chart=alt.layer(tiles, words).properties(width="container", height=height),
        datasets={"tiles": rows},
    )


def effects_figure(effects: pl.DataFrame, workers: str) -> Figure | None:
    """Ratio of each value to its axis' reference with 95 % intervals; None without effects."""
    known = effects.filter(pl.col("ratio").is_finite() & (pl.col("ratio") > 0))
    if known.is_empty():
        return None
    rows = [_effect_row(row, workers) for row in known.iter_rows(named=True)]
    largest = list(dict.fromkeys(row["label"] for row in sorted(rows, key=lambda row: -abs(row["change"]))))
    kept = [row for row in rows if row["label"] in largest[:EFFECTS]]
    labels = list(dict.fromkeys(row["label"] for row in sorted(kept, key=_effect_order)))
    counts = list(dict.fromkeys(row["count"] for row in sorted(kept, key=lambda row: row["gpus"])))
    caption = (
        "Throughput over that of the reference (auto unless named), otherwise equal cells paired within sessions, the "
        "same pairs in every visit. "
    )
    caption += "Hollow: not separable from no change after correction for the number of comparisons (Holm)."
    if len(largest) > EFFECTS:
        caption += f" Shown: the {EFFECTS} settings with the largest effects of {len(largest)}; all are in the table."
    low, high = _change_domain(kept)
    if any(not low <= row[name] <= high for row in kept for name in ("low", "high") if row[name] is not None):
        caption += " Bars that leave the chart are cut."
    caption += no_bar(row["ratio_text"] for row in kept if row["low"] is None)
    return Figure(
        key="effects",
        section="knobs",
        title="Effect of each setting",
        caption=caption,
        chart=_effect_layers(kept, labels, counts),
        datasets={"effects": kept, "none": [{"change": 0.0}]},
        labels=tuple(counts),
        shaped=False,
        wide=True,
    )


def _effect_row(row: dict[str, Any], workers: str) -> dict[str, Any]:
    plain = row["reference"] in (None, "auto")
    low, high = telling(row["ratio_low"], row["ratio_high"])
    return {
        "label": f"{row['axis']} {row['value']}" + ("" if plain else f" / {row['reference']}"),
        "axis": row["axis"],
        "value": row["value"],
        "gpus": row["gpus"],
        "count": how_many(row["gpus"], workers),
        "change": _percent(row["ratio"]),
        "low": _percent(low),
        "high": _percent(high),
        "clear": row["verdict"] in ("faster", "slower"),
        "ratio_text": interval(row["ratio"], row["ratio_low"], row["ratio_high"]),
        "gain_text": gain(row["ratio"] - 1),
        "p_text": number(row["p_holm"], 2),
        "pairs": row["pairs"],
        "verdict": row["verdict"],
    }


def _effect_order(row: dict[str, Any]) -> tuple[str, bool, float, str]:
    value = _as_number(row["value"])
    return (row["axis"], value is not None, value or 0.0, row["value"])


def _effect_layers(rows: list[dict[str, Any]], labels: list[str], counts: list[str]) -> alt.TopLevelMixin:
    axis = alt.Axis(title="change of throughput (%)", labelExpr=SIGNED, tickCount=8, grid=True)
    scale = alt.Scale(nice=False, padding=12, domain=_change_domain(rows))
    x = alt.X("change:Q", axis=axis, scale=scale)
    at = {
        "y": alt.Y("label:N", sort=labels, title=None, axis=alt.Axis(ticks=False, labelExpr=WRAPPED)),
        "yOffset": alt.YOffset("count:N", sort=counts),
        "color": alt.Color("count:N", scale=alt.Scale(domain=counts)),
    }
    base = chart_of("effects")
    spans = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2, clip=True)
    hints = tooltips(
        label="setting",
        count="at",
        ratio_text="ratio",
        gain_text="change",
        verdict="verdict",
        p_text="p (Holm)",
        pairs="pairs",
    )
    long = max(map(len, labels)) > LINE
    height = len(labels) * max(30 if long else 22, 9 + 11 * len(counts))
    return alt.layer(
        chart_of("none").mark_rule(style="reference").encode(x=x),
        *(
            [spans.encode(x=alt.X("low:Q", axis=axis, scale=scale), x2="high:Q", **at)]
            if any_known(rows, "low")
            else []
        ),
        base.transform_filter("!datum.clear").mark_point(strokeWidth=2, size=50).encode(x=x, tooltip=hints, **at),
        base.transform_filter("datum.clear").mark_point(filled=True, size=70).encode(x=x, tooltip=hints, **at),
    ).properties(width="container", height=height)


def _change_domain(rows: list[dict[str, Any]]) -> list[float]:
    """All changes in percent, 1 % to each side of 0, and of the bars as much as half as far again (5 % at least)."""
    changes = [row["change"] for row in rows]
    bounds = [row[name] for row in rows for name in ("low", "high") if row[name] is not None]
    low, high = min([-1.0, *changes]), max([1.0, *changes])
    room = max(5.0, 1.5 * max(-low, high))
    return [max(min([low, *bounds]), low - room), min(max([high, *bounds]), high + room)]


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None or not math.isfinite(ratio) else 100 * (ratio - 1)


def _as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
