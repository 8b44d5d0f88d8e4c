"""Throughput and efficiency against GPU count, one pair of charts for each of the weak and the strong curve.

The default, the best and the worst series are told apart; all others are thin grey lines. Nothing is fitted or
smoothed: points are the analysis' numbers with their intervals. Called by `charts.figures`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

from rtxscale.analysis.sanity import TARGET
from rtxscale.report.charts.figure import Figure, any_known, chart_of, series_color, series_shape, tooltips
from rtxscale.report.chosen import GREY
from rtxscale.report.numbers import TOO_WIDE, finite, no_bar, throughput_unit
from rtxscale.report.scaling_curves import Curve, curve_of


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What is known beforehand of the card: whether P21's target applies, and its range of extra-GPU efficiency.

    P21 asks a weak efficiency of some cards, with AMP and compile: of a card that has it, `target` says whether any
    trial is of that kind. `card` is empty where nothing is known.
    """

    card: str = ""
    target: bool | None = None
    extra_gpu: tuple[float, float] | None = None
    silence: str = ""
    """Why no range is known."""


ELSEWHERE = Expectation(silence="no range is documented for strong scaling")
DODGE = 0.01
"""Share of the x axis between neighbouring series, so that bars at one GPU count do not lie on each other."""


def scaling_figures(
    efficiency: pl.DataFrame,
    work_unit: str,
    workers: str,
    expectation: Expectation,
    cells: pl.DataFrame | None = None,
) -> Iterator[Figure]:
    """Throughput and efficiency of each curve with at least one efficiency; `workers` names the x axis."""
    for kind in ("weak", "strong"):
        rows = efficiency.filter((pl.col("curve") == kind) & pl.col("throughput_per_s").is_not_null())
        if rows.is_empty():
            continue
        curve = curve_of(kind, rows, cells)
        yield _throughput_figure(curve, throughput_unit(work_unit), workers)
        if any(row["efficiency"] is not None for row in curve.rows):
            yield _efficiency_figure(curve, workers, expectation if kind == "weak" else ELSEWHERE)


def _throughput_figure(curve: Curve, unit: str, workers: str) -> Figure:
    x, y = _x(curve, workers), alt.Axis(title=f"Throughput ({unit})", format=",.4~r")
    domain, cut = _throughput_domain(curve)
    scale = alt.Scale(domain=domain, nice=True)
    line = chart_of("ideal").mark_line(style="ideal")
    ideal = line.encode(x=x, y=alt.Y("rate:Q", axis=y, scale=scale), detail="series:N")
    chart = alt.layer(ideal, *_series_layers(curve, "rate", x, y, scale, workers))
    return Figure(
        key=f"{curve.kind}-throughput",
        section="scaling",
        title=f"{curve.kind.capitalize()} scaling: throughput",
        caption=_caption(curve, f"Dashed: ideal, the base times the number of {workers}.", "rate", cut=cut),
        chart=chart.properties(width="container", height=300),
        datasets={**_rows(curve, "rate"), "ideal": _ideal_rows(curve)},
        labels=tuple(curve.labels),
    )


def _efficiency_figure(curve: Curve, workers: str, expectation: Expectation) -> Figure:
    x, y = _x(curve, workers), alt.Axis(title=f"{curve.kind.capitalize()} efficiency", format=".2f", tickCount=6)
    domain, cut = _efficiency_domain(curve, expectation)
    scale = alt.Scale(domain=domain, nice=False)
    band, band_words = _expected_band(curve, expectation, x, y, scale)
    lines, label, line_words = _reference_lines(expectation, y, scale)
    series = _series_layers(curve, "efficiency", x, y, scale, workers)
    return Figure(
        key=f"{curve.kind}-efficiency",
        section="scaling",
        title=f"{curve.kind.capitalize()} scaling: efficiency",
        caption=_caption(curve, f"Dashed: ideal, 1.0. {band_words}{line_words}".strip(), "efficiency", cut=cut),
        chart=alt.layer(*band, *lines, *series, *label).properties(width="container", height=300),
        datasets={**_rows(curve, "efficiency"), **_reference_rows(curve, expectation)},
        labels=tuple(curve.labels),
    )


def _caption(curve: Curve, words: str, field: str, *, cut: bool) -> str:
    return " ".join([words, *_bar_words(curve, field, cut=cut), *_series_words(curve)])


def _bar_words(curve: Curve, field: str, *, cut: bool) -> Iterator[str]:
    if any_known(curve.rows, f"{field}_low"):
        yield "Bars: 95 % intervals over sessions" + ("; those that leave the chart are cut." if cut else ".")
    texts = [row[f"{field}_text"] for row in curve.rows]
    if silent := no_bar(text for text in texts if TOO_WIDE in text):
        yield silent.lstrip()


def _series_words(curve: Curve) -> Iterator[str]:
    if len(curve.labels) > 1:
        yield "Settings stand a little apart, so that each is seen."
    if curve.others:
        drawn = f", {GREY} of them drawn" if curve.others > GREY else ""
        yield f"Grey: {curve.others:,} more settings{drawn}; told apart are {_kinds(curve)}the best and the worst."


def _kinds(curve: Curve) -> str:
    return "the default, " if any(row["is_default"] for row in curve.rows) else ""


def _ideal_rows(curve: Curve) -> list[dict[str, Any]]:
    """For every default series (any series without one): its first point, carried on in proportion."""
    firsts: dict[str, dict[str, Any]] = {}
    for row in sorted(curve.rows, key=lambda row: row["gpus"]):
        firsts.setdefault(row["series"], row)
    defaults = [row for label, row in firsts.items() if "default" in label] or list(firsts.values())[:1]
    return [
        {"series": row["series"], "gpus": count, "rate": row["rate"] * count / row["gpus"]}
        for row in defaults
        for count in (row["gpus"], max(curve.counts))
    ]


def _reach(curve: Curve, field: str, more: list[float], room: float) -> tuple[float, float, bool]:
    """Lowest and highest value, widened towards the bounds by at most `room`; and whether a bound lies beyond."""
    rows = [*curve.rows, *curve.context]
    values = [value for row in rows if (value := finite(row[field])) is not None] + more
    bounds = [
        value for row in curve.rows for end in ("low", "high") if (value := finite(row[f"{field}_{end}"])) is not None
    ]
    low, high = min(values), max(values)
    widest = (min([low, *bounds]), max([high, *bounds]))
    cut = widest[0] < low - room or widest[1] > high + room
    return max(widest[0], low - room), min(widest[1], high + room), cut


def _throughput_domain(curve: Curve) -> tuple[list[float], bool]:
    """From 0 to the highest value or ideal and a quarter of it for bars; whether a bar is cut."""
    ideal = [row["rate"] for row in _ideal_rows(curve)]
    top = max(ideal + [row["rate"] for row in curve.rows])
    _, high, cut = _reach(curve, "rate", ideal, 0.25 * top)
    return [0.0, high], cut


def _efficiency_domain(curve: Curve, expectation: Expectation) -> tuple[list[float], bool]:
    """From 0.8 or less to 1.05 or more, so that small losses look small; whether a bar is cut."""
    extra_gpu = expectation.extra_gpu
    expected = [row["low"] for row in _expected_rows(curve.counts, extra_gpu)] if extra_gpu else []
    low, high, cut = _reach(curve, "efficiency", expected, 0.25)
    return [max(0.0, min(0.8, math.floor(low * 10) / 10)), max(1.05, high + 0.02)], cut


def _expected_band(
    curve: Curve, expectation: Expectation, x: alt.X, y: alt.Axis, scale: alt.Scale
) -> tuple[list[alt.Chart], str]:
    """The range expected of the card, where one is known; else why there is none."""
    if expectation.extra_gpu is None:
        return [], f"No band: {expectation.silence}. "
    low, high = expectation.extra_gpu
    area = chart_of("expected").mark_area(style="expected")
    words = (
        f"Band: expected of {expectation.card}, from extra-GPU efficiency {low:g}-{high:g} (indicative; vision with "
        "AMP and compile over PCIe). "
    )
    return [area.encode(x=x, y=alt.Y("low:Q", axis=y, scale=scale), y2="high:Q")], words


def _expected_rows(counts: list[int], extra_gpu: tuple[float, float]) -> list[dict[str, Any]]:
    """Weak efficiency (1 + x (N - 1)) / N that an extra-GPU efficiency x amounts to, N from 1 to the largest count."""
    return [
        {"gpus": n, **{name: (1 + x * (n - 1)) / n for name, x in zip(("low", "high"), extra_gpu, strict=True)}}
        for n in range(min(counts), max(counts) + 1)
    ]


def _reference_lines(
    expectation: Expectation, y: alt.Axis, scale: alt.Scale
) -> tuple[list[alt.Chart], list[alt.Chart], str]:
    """The ideal line; and where the target applies that one, its label, which stands on everything, and words of it."""
    at = alt.Y("efficiency:Q", axis=y, scale=scale)
    ideal, target = chart_of("one").mark_rule(style="ideal").encode(y=at), chart_of("target")
    conditions = f"for {expectation.card} with AMP and compile"
    if not expectation.target:
        asked = expectation.target is not None
        return [ideal], [], f"No target: {TARGET} is set {conditions}, as no point here is. " if asked else ""
    label = [
        target.mark_text(style=style, align="left", dx=4, dy=-8).encode(x=alt.value(0), y=at, text="text:N")
        for style in ("halo", "target-label")
    ]
    return [ideal, target.mark_rule(style="target").encode(y=at)], label, f"Dotted: the target {TARGET} {conditions}. "


def _rows(curve: Curve, field: str) -> dict[str, list[dict[str, Any]]]:
    """Rows told apart, and of the grey ones only what their lines need."""
    return {
        "told": [{**row, "at": row["gpus"] + _shift(curve, row["series"])} for row in curve.rows],
        "grey": [{name: row[name] for name in ("series", "gpus", field)} for row in curve.context],
    }


def _shift(curve: Curve, series: str) -> float:
    """How far a series stands beside its GPU count, in GPUs: evenly around it, in the order of the labels."""
    step = DODGE * (max(curve.counts) - min(curve.counts))
    return step * (curve.labels.index(series) - (len(curve.labels) - 1) / 2)


def _reference_rows(curve: Curve, expectation: Expectation) -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = {"one": [{"efficiency": 1.0}]}
    if expectation.target:
        rows["target"] = [{"efficiency": TARGET, "text": f"target {TARGET}"}]
    if expectation.extra_gpu:
        rows["expected"] = _expected_rows(curve.counts, expectation.extra_gpu)
    return rows


def _x(curve: Curve, workers: str, field: str = "gpus") -> alt.X:
    counts = curve.counts
    axis = alt.Axis(values=counts, format="d", title=workers)
    return alt.X(f"{field}:Q", axis=axis, scale=alt.Scale(domain=[min(counts), max(counts)], nice=False, padding=16))


def _series_layers(
    curve: Curve, field: str, x: alt.X, axis: alt.Axis, scale: alt.Scale, workers: str
) -> list[alt.Chart]:
    """Grey lines, then the series told apart: lines, interval bars, points; of the rows `told` and `grey`."""
    y = alt.Y(f"{field}:Q", axis=axis, scale=scale)
    low = alt.Y(f"{field}_low:Q", axis=axis, scale=scale)
    color = series_color(curve.labels)
    told, beside = chart_of("told"), _x(curve, workers, "at")
    bars = told.transform_filter(f"isValid(datum.{field}_low)").mark_rule(clip=True)
    grey = chart_of("grey").mark_line(style="context").encode(x=x, y=y, detail="series:N", tooltip=_grey_hints())
    layers = [grey] if curve.context else []
    return [
        *layers,
        told.mark_line().encode(x=beside, y=y, color=color),
        *(
            [bars.encode(x=beside, y=low, y2=f"{field}_high:Q", color=color)]
            if any_known(curve.rows, f"{field}_low")
            else []
        ),
        told.mark_point(filled=True, cursor="pointer").encode(
            x=beside, y=y, color=color, shape=series_shape(curve.labels), tooltip=_hints(workers)
        ),
    ]


def _grey_hints() -> list[alt.Tooltip]:
    return tooltips(series="setting")


def _hints(workers: str) -> list[alt.Tooltip]:
    return tooltips(
        series="setting",
        gpus=workers,
        rate_text="throughput",
        efficiency_text="efficiency",
        speedup_text="speed-up",
        extra_text="per extra GPU",
        note="note",
        trials="trials",
    )
