"""Time and work to a target against GPU count: every run as a point, those that did not get there marked as such.

A run that was stopped before is drawn where it was stopped: it would have needed more. Medians are the analysis' own,
which count such runs as longer than all others. Called by `charts.figures`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

from rtxscale.analysis.counted import counted_trials, of_stage, settled_trials
from rtxscale.analysis.settings import DEFAULTS, UNTOLD
from rtxscale.analysis.targets import target_runs
from rtxscale.report.charts.figure import Figure, chart_of, series_color, series_shape, tooltips
from rtxscale.report.chosen import GREY, evenly
from rtxscale.report.numbers import how_many, number
from rtxscale.spec.method import target_of, target_words

TOLD_APART = 6
"""Most settings that are told apart; runs of others are grey."""
MOST = {"reached": (500, "runs that got there"), "stopped": (500, "arrows"), "grey": (GREY, "grey points")}
"""Rows that may be many -> how many of them are drawn, and what they are called; more make a page too large."""
HEADROOM = 1.08
"""How far the axis goes beyond the largest value, so that its mark does not stand on the frame."""
SHORT = "datum.value < 1000 ? format(datum.value, '~r') : format(datum.value, '~s')"
"""What the axis shows: 0.5, 250, 4k, 1.5M."""
Rows = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """What a chart counts to the target: its column in `trials` and in the analysis' table, and its unit."""

    key: str
    title: str
    column: str
    median: str
    unit: str
    axis: str


def target_figures(trials: pl.DataFrame, targets: pl.DataFrame, workers: str) -> Iterator[Figure]:
    """Seconds and work to the target; nothing where no trial went for one. `targets` is the conclusions'."""
    series = _series(targets)
    counted = counted_trials(of_stage(settled_trials(trials), "sweep"))
    runs = target_runs(counted).sort("gpus", "cell_id", "target_s")  # so that an even choice is one of each cell
    for quantity in _quantities(targets):
        rows = [_row(run, series, quantity) for run in runs.iter_rows(named=True) if run[quantity.column] is not None]
        medians = [_median(cell, series, quantity) for cell in targets.iter_rows(named=True)]
        if rows:
            known = [row for row in medians if row["value"] is not None]
            present = {row["series"] for row in rows}
            labels = [label for label in dict.fromkeys(series.values()) if label in present][:TOLD_APART]
            yield _figure(quantity, rows, known, labels, _aim(runs), workers)


def _quantities(targets: pl.DataFrame) -> Iterator[Quantity]:
    unit = next(iter(targets["work_unit"].drop_nulls()), "")
    units = f"{unit}s" if unit else "units of work"
    axis, time = "time to target (s)", "Time to target"
    yield Quantity(key="target-time", title=time, column="target_s", median="median_s", unit="s", axis=axis)
    yield Quantity(
        key="target-work",
        title="Work to target",
        column="target_work",
        median="median_work",
        unit=units,
        axis=f"{units} to target",
    )


def _series(targets: pl.DataFrame) -> dict[str, str]:
    """Cell -> its settings beside the GPU count, the series told apart first: the default, then the soonest there."""
    names = {row["cell_id"]: _beside_count(row["label"]) for row in targets.iter_rows(named=True)}
    soonest = targets.sort("median_s", nulls_last=True)["cell_id"]
    return {cell: names[cell] for cell in sorted(soonest, key=lambda cell: names[cell] != DEFAULTS)}


def _beside_count(label: str) -> str:
    """A cell's label without the number of GPUs; of a default cell that alone.

    >>> _beside_count("gpus 2, batch 64 per GPU, bf16"), _beside_count("gpus 1")
    ('batch 64 per GPU, bf16', 'defaults')
    """
    parts = [part for part in label.split(", ") if not part.startswith(("gpus ", DEFAULTS, UNTOLD))]
    return ", ".join(parts) or DEFAULTS


def _row(run: dict[str, Any], series: dict[str, str], quantity: Quantity) -> dict[str, Any]:
    value = run[quantity.column]
    return {
        "series": series.get(run["cell_id"], DEFAULTS),
        "gpus": run["gpus"],
        "value": value,
        "reached": run["target_reached"],
        "text": f"{'' if run['target_reached'] else 'stopped after '}{number(value)} {quantity.unit}",
        "visit_text": f"{run['visit']}" + (f", repeat {run['repeat']}" if (run["repeat"] or 1) > 1 else ""),
        "trial": run["trial_id"],
    }


def _median(cell: dict[str, Any], series: dict[str, str], quantity: Quantity) -> dict[str, Any]:
    value = cell[quantity.median]
    return {
        "series": series[cell["cell_id"]],
        "gpus": cell["gpus"],
        "value": value,
        "text": f"{number(value)} {quantity.unit}, median of {how_many(cell['runs'], 'runs')}",
        "cell": cell["cell_id"],
    }


def _aim(runs: pl.DataFrame) -> str:
    """What the runs trained to, in words; they may have had several targets."""
    found = dict.fromkeys(target_of(text) for text in runs["cell_json"].drop_nulls().unique(maintain_order=True))
    words = [f"{target_words(target)}, for {target.max_time_s:g} s at most" for target in found if target is not None]
    if len(words) > 1:
        return f"its own cell's target ({len(words)} different ones)"
    return words[0] if words else "its target"


def _figure(
    quantity: Quantity,
    rows: list[dict[str, Any]],
    medians: list[dict[str, Any]],
    labels: list[str],
    aim: str,
    workers: str,
) -> Figure:
    told = [row for row in rows if row["series"] in labels]
    others = [row for row in rows if row["series"] not in labels]
    known = {
        "reached": [row for row in told if row["reached"]],
        "stopped": [row for row in told if not row["reached"]],
        "medians": [row for row in medians if row["series"] in labels],
        "grey": [row for row in others if row["reached"]],
    }
    most = {name: count for name, (count, _) in MOST.items()}
    datasets = {name: evenly(some, most.get(name, len(some))) for name, some in known.items() if some}
    return Figure(
        key=quantity.key,
        section="targets",
        title=quantity.title,
        caption=_caption(known, datasets, aim, len({row["series"] for row in others})),
        chart=_layers(datasets, labels, quantity, workers),
        datasets=datasets,
        labels=tuple(labels),
    )


def _caption(known: Rows, drawn: Rows, aim: str, others: int) -> str:
    """Words of the chart; `known` are all rows, `drawn` those chosen of them, `others` the settings not told apart."""
    words = [f"Each point is a run with a seed of its own, from first weights to {aim}; lower is better."]
    if "medians" in drawn:
        words.append("Short lines: medians over all runs of a cell.")
    if stopped := len(known["stopped"]):
        words.append(
            f"Arrows: {how_many(stopped, 'runs')} stopped before the target, drawn where stopped: they needed more, "
            "and count as longer than all others; a cell of which they are half or more has no median."
        )
    if grey := len({row["series"] for row in known["grey"]}):
        words.append(f"Grey: {how_many(grey, 'more settings')}, their runs that got there.")
    if others > grey:
        words.append(f"Not drawn: {how_many(others - grey, 'more settings')} without a run that got there.")
    chosen = [
        f"{len(drawn[name]):,} of {len(known[name]):,} {what}"
        for name, (_, what) in MOST.items()
        if len(known[name]) > len(drawn.get(name, ()))
    ]
    return " ".join([*words, f"Drawn, spread evenly: {' and '.join(chosen)}."] if chosen else words)


def _layers(datasets: Rows, labels: list[str], quantity: Quantity, workers: str) -> alt.TopLevelMixin:
    counts = sorted({row["gpus"] for rows in datasets.values() for row in rows})
    together = alt.Scale(paddingInner=0.3, paddingOuter=0.2)
    x = alt.X("gpus:O", sort=counts, axis=alt.Axis(title=workers, labelAngle=0), scale=together)
    aside = alt.XOffset("series:N", sort=labels, scale=alt.Scale(domain=labels))
    axis = alt.Axis(title=quantity.axis, tickCount=5, labelExpr=SHORT)
    largest = max([0.0, *(row["value"] for rows in datasets.values() for row in rows)])
    y = alt.Y("value:Q", axis=axis, scale=alt.Scale(domain=[0, HEADROOM * largest or 1.0], nice=True))
    color, shape = series_color(labels), series_shape(labels)
    hints = tooltips(series="setting", gpus=workers, text="run", visit_text="visit", trial="trial")
    marks = {
        "grey": chart_of("grey").mark_point(style="context", filled=True, size=16).encode(x=x, y=y, tooltip=hints),
        "medians": chart_of("medians")
        .mark_point(shape="stroke", size=300, strokeWidth=2)
        .encode(
            x=x,
            xOffset=aside,
            y=y,
            color=color,
            tooltip=tooltips(series="setting", gpus=workers, text="median", trials="trials"),
        ),
        "reached": chart_of("reached")
        .mark_point(filled=True, cursor="pointer")
        .encode(x=x, xOffset=aside, y=y, color=color, shape=shape, tooltip=hints),
        "stopped": chart_of("stopped")
        .mark_point(shape="arrow", filled=True, size=260, cursor="pointer")
        .encode(x=x, xOffset=aside, y=y, color=color, tooltip=hints),
    }
    return alt.layer(*(mark for name, mark in marks.items() if name in datasets)).properties(
        width="container", height=260
    )
