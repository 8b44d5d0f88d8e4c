"""Spans of a run in which heat or a power brake held a clock back, to be drawn behind what was measured.

Only real slowdowns: the power cap at the stock limit is a loaded card's normal state. Called by `charts.telemetry`.
"""

from __future__ import annotations

import polars as pl

from rtxscale.report.numbers import duration
from rtxscale.telemetry.window import SLOWDOWNS

JOINED_NS = 2_000_000_000
"""Samples of slowdowns that are no further apart belong to one span."""
LEAST_NS = 500_000_000
"""A single sample stands for as much."""
REASONS = {
    "hw_slowdown": "hardware slowdown",
    "hw_thermal_slowdown": "heat (hardware)",
    "sw_thermal_slowdown": "heat (driver)",
    "hw_power_brake_slowdown": "power brake",
}


def throttled_spans(telemetry: pl.LazyFrame) -> pl.DataFrame:
    """Spans with columns `start_ns`, `end_ns` (Unix time) and `reasons` (words), over all GPUs, in order."""
    slow = pl.col("throttle_reasons").list.set_intersection(sorted(SLOWDOWNS))
    samples = (
        telemetry.filter(pl.col("t_ns").is_not_null())
        .with_columns(slow=slow)
        .filter(pl.col("slow").list.len() > 0)
        .select("t_ns", "slow")
        .sort("t_ns")
        .collect()
    )
    span = (pl.col("t_ns").diff().fill_null(0) > JOINED_NS).cum_sum().alias("span")
    return (
        samples.with_columns(span)
        .group_by("span", maintain_order=True)
        .agg(
            pl.col("t_ns").min().alias("start_ns"),
            (pl.col("t_ns").max() + LEAST_NS).alias("end_ns"),
            pl.col("slow").explode().unique().sort().replace(REASONS).alias("reasons"),
        )
        .select("start_ns", "end_ns", pl.col("reasons").list.join(", "))
    )


def throttled_words(spans: pl.DataFrame) -> str:
    """How often and how long, for a caption; empty where nothing was held back."""
    if spans.is_empty():
        return ""
    seconds = float((spans["end_ns"] - spans["start_ns"]).sum()) / 1e9
    reasons = dict.fromkeys(word for words in spans["reasons"] for word in words.split(", "))
    many = "once" if spans.height == 1 else f"{spans.height} times"
    return f"Red: a clock was held back, {many}, {duration(seconds)} in all: {', '.join(reasons)}."
