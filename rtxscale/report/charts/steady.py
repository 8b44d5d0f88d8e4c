"""How trials became steady: step times of the default cell from its first warm step to the end of the measured window.

One line per visit, each relative to the median of its own window, so that a drift shows as a slope: strong inside that
window, faint before it, since every visit warms up for as long as it needs. The first step, in which kernels are built,
is left out and named. Called by `charts.figures`.
"""

from __future__ import annotations

from typing import Any

import altair as alt
import polars as pl

from rtxscale.analysis.counted import counted_trials, of_stage, settled_trials
from rtxscale.analysis.leading import with_model
from rtxscale.report.charts.figure import Figure, chart_of, series_color, tooltips
from rtxscale.report.numbers import how_many, number

LINES = 4
"""Most trials drawn."""
POINTS = 300
"""Most points of one trial; each is the mean of the steps around it."""
PHASES = ("soak", "warmup", "window")
_X = alt.Scale(nice=False, zero=True)
_MEASURED = "datum.phase == 'window'"
FEW = 60
"""Trials with fewer points show each of them."""
REACH = 0.3
"""The axis never reaches further than this from 1: single slow steps are cut."""


def steady_figure(trials: pl.DataFrame, cells: pl.DataFrame, steps: pl.LazyFrame, workers: str) -> Figure | None:
    """Step times of the default cell at the largest GPU count (of the fastest cell without one); None without steps."""
    chosen = _chosen(trials, cells)
    if chosen.is_empty():
        return None
    read = _steps_of(chosen, steps)
    rows = [row for trial in chosen.iter_rows(named=True) for row in _rows(trial, read)]
    if not rows:
        return None
    labels = list(dict.fromkeys(row["series"] for row in rows))
    cell = cells.row(by_predicate=pl.col("cell_id") == chosen["cell_id"][0], named=True)
    return Figure(
        key="steady",
        section="steady",
        title=f"Step time until the window ends, {how_many(cell['gpus'], workers)}",
        caption=_caption(cell, chosen, cut=_domain(rows)[1]),
        chart=_layers(rows, labels),
        datasets={"steps": rows},
        labels=tuple(labels),
        shaped=False,
        wide=True,
    )


def _chosen(trials: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """The first trial of each of up to `LINES` visits of one cell."""
    known = cells.filter(pl.col("throughput_per_s").is_not_null())
    order = ["gpus", "is_default", "model", "throughput_per_s"]
    falling = [name != "model" for name in order]
    ranked = with_model(known, cells).sort(order, descending=falling, nulls_last=True)["cell_id"].head(1)
    counted = counted_trials(of_stage(settled_trials(trials), "sweep"))
    own = counted.filter(pl.col("cell_id").is_in(ranked.implode())).sort("visit", "repeat")
    return own.unique("visit", keep="first", maintain_order=True).head(LINES)


def _steps_of(chosen: pl.DataFrame, steps: pl.LazyFrame) -> pl.DataFrame:
    """Steps of rank 0 in these trials; the table is read once."""
    wanted = (pl.col("rank") == 0) & pl.col("phase").is_in(PHASES) & pl.col("step_time_s").is_finite()
    own = chosen.lazy().select("trial_id", "attempt")
    kept = steps.filter(wanted).join(own, on=["trial_id", "attempt"], how="semi")
    return kept.select("trial_id", "phase", "step", "step_time_s").collect()


def _rows(trial: dict[str, Any], steps: pl.DataFrame) -> list[dict[str, Any]]:
    """Points of one trial: seconds since its second step, step time over the window's median."""
    own = (
        steps.filter(pl.col("trial_id") == trial["trial_id"])
        .sort("step")
        .select("phase", "step_time_s", seconds=pl.col("step_time_s").cum_sum())
    )
    middle = own.filter(pl.col("phase") == "window")["step_time_s"].median()
    if not isinstance(middle, float) or middle <= 0:
        return []
    width = max(float(own["seconds"][-1]) / POINTS, 1e-9)
    binned = own.group_by("phase", (pl.col("seconds") // width).alias("bin"), maintain_order=True).agg(
        pl.col("seconds").mean().round_sig_figs(5),
        (pl.col("step_time_s").mean() / middle).round_sig_figs(5).alias("share"),
        (1000 * pl.col("step_time_s").mean()).alias("ms"),
    )
    label = f"visit {trial['visit']}"
    return [
        {
            "series": label,
            "phase": row["phase"],
            "seconds": row["seconds"],
            "share": row["share"],
            "text": f"{number(row['ms'])} ms",
            "trial": trial["trial_id"],
        }
        for row in binned.iter_rows(named=True)
    ]


def _caption(cell: dict[str, Any], chosen: pl.DataFrame, *, cut: bool) -> str:
    first = [value for value in chosen["first_step_s"] if value is not None]
    left_out = f" The first step, {number(max(first), 2)} s at most, is left out." if first else ""
    return (
        f"Rank 0 of {cell['label']}, one line per visit, over the median of its own window. Strong: inside that "
        "window; thin and dashed: before it, which does not count. A slope of the strong part would be hardware that "
        f"is still heating up.{left_out}{' Steps beyond the axis are cut.' * cut}"
    )


def _domain(rows: list[dict[str, Any]]) -> tuple[list[float], bool]:
    """Ends of the axis, at most `REACH` from 1, and whether any step lies beyond."""
    shares = [row["share"] for row in rows]
    low, high = max(min(shares), 1 - REACH), min(max(shares), 1 + REACH)
    return [min(low, 0.98), max(high, 1.02)], low > min(shares) or high < max(shares)


def _layers(rows: list[dict[str, Any]], labels: list[str]) -> alt.TopLevelMixin:
    scale = alt.Scale(domain=_domain(rows)[0], nice=True)
    shown = len(rows) < FEW * len(labels)
    axis = alt.Axis(title="step time / median of the window", tickCount=5, format=".2f")
    x = alt.X("seconds:Q", title="seconds of stepping", axis=alt.Axis(tickCount=10), scale=_X)
    y = alt.Y("share:Q", axis=axis, scale=scale)
    color = series_color(labels)
    strong, faint = alt.value(float(shown)), alt.value(0.4 * shown)
    opacity = alt.condition(_MEASURED, strong, faint)
    hints = [
        *tooltips(series="trial of", trial="trial", phase="phase", text="step time"),
        alt.Tooltip("seconds:Q", title="second", format=".1f"),
    ]
    base = chart_of("steps")
    return alt.layer(
        base.mark_line(strokeWidth=1, strokeDash=[3, 3], opacity=0.6, clip=True).encode(x=x, y=y, color=color),
        base.transform_filter(_MEASURED).mark_line(strokeWidth=2, clip=True).encode(x=x, y=y, color=color),
        base.mark_point(size=30, filled=True, clip=True, cursor="pointer").encode(
            x=x, y=y, color=color, tooltip=hints, opacity=opacity
        ),
    ).properties(width="container", height=220)
