"""What the analysis hands to whoever shows it: a few small frames and sentences, never a chart.

Made by `analysis.conclude`; shown by `report` and `cli`. Every frame exists even when empty; a number that cannot be
concluded is null, never NaN, and `remarks` says why and what to run next.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

NEEDS_VISITS = "needs >= 2 visits"
"""In a note or verdict: one visit gives no interval."""

CELLS: dict[str, pl.DataType] = {
    "cell_id": pl.String(),
    "label": pl.String(),  # the cell's axis values in words, such as "gpus 2, ring, 8 channels"
    "workload": pl.String(),
    "gpus": pl.Int64(),
    "batch_per_gpu": pl.Int64(),
    "global_batch": pl.Int64(),
    "is_default": pl.Boolean(),  # every communication setting is auto
    "work_unit": pl.String(),
    "sessions": pl.Int64(),  # replicates
    "trials": pl.Int64(),  # counted trials
    "throughput_per_s": pl.Float64(),
    "throughput_low": pl.Float64(),  # 95 % interval over sessions; null with one session
    "throughput_high": pl.Float64(),
    "step_time_p50_s": pl.Float64(),
    "power_w": pl.Float64(),
    "temperature_max_c": pl.Float64(),
    "memory_peak_mib": pl.Float64(),
    "flags": pl.String(),  # distinct flags of its trials, joined with ", "
}
"""Cells with at least one counted trial, plus one column per axis, named `axis:<dotted path>` (String)."""

EFFICIENCY: dict[str, pl.DataType] = {
    "curve": pl.String(),  # weak or strong
    "series": pl.String(),  # what is held constant along the curve, in words, such as "ring, 8 channels"
    "is_default": pl.Boolean(),
    "cell_id": pl.String(),
    "gpus": pl.Int64(),
    "base_gpus": pl.Int64(),
    "base_cell_id": pl.String(),
    "throughput_per_s": pl.Float64(),
    "throughput_low": pl.Float64(),
    "throughput_high": pl.Float64(),
    "speedup": pl.Float64(),  # T(N)/T(N0)
    "efficiency": pl.Float64(),
    "efficiency_low": pl.Float64(),
    "efficiency_high": pl.Float64(),
    "extra_gpu": pl.Float64(),  # (S-1)/(N/N0-1); null at N0
    "note": pl.String(),  # "relative to 2 GPUs", "superlinear: ...", "needs >= 2 visits"
}

BEST: dict[str, pl.DataType] = {
    "gpus": pl.Int64(),
    "curve": pl.String(),
    "cell_id": pl.String(),
    "label": pl.String(),
    "throughput_per_s": pl.Float64(),
    "default_throughput_per_s": pl.Float64(),
    "gain": pl.Float64(),  # selected, not confirmed: best / default - 1, over the visits that have both
    "gain_low": pl.Float64(),
    "gain_high": pl.Float64(),
    "verdict": pl.String(),  # "faster than the default (unconfirmed)", "not separable from the default", ...
}

EFFECTS: dict[str, pl.DataType] = {
    "axis": pl.String(),
    "gpus": pl.Int64(),
    "value": pl.String(),
    "reference": pl.String(),
    "pairs": pl.Int64(),  # otherwise equal cells compared, within sessions where they share one; in every visit
    "pairs_left_out": pl.Int64(),  # pairs that some visit lacks
    "sessions": pl.Int64(),
    "ratio": pl.Float64(),  # throughput of value / reference, geometric mean of pairs
    "ratio_low": pl.Float64(),
    "ratio_high": pl.Float64(),
    "p_holm": pl.Float64(),
    "verdict": pl.String(),  # faster, slower, not separable, needs >= 2 visits
}

BANDWIDTH: dict[str, pl.DataType] = {
    "cell_id": pl.String(),
    "label": pl.String(),
    "gpus": pl.Int64(),
    "operation": pl.String(),
    "size_bytes": pl.Int64(),
    "trials": pl.Int64(),
    "time_p50_s": pl.Float64(),
    "algbw_gb_s": pl.Float64(),
    "busbw_gb_s": pl.Float64(),
    "busbw_low": pl.Float64(),
    "busbw_high": pl.Float64(),
}

OUTCOMES: dict[str, pl.DataType] = {
    "outcome": pl.String(),
    "trials": pl.Int64(),
    "example": pl.String(),  # a trial id
    "message": pl.String(),  # its message
}


@dataclass(frozen=True, kw_only=True)
class Conclusions:
    """What a run says."""

    headline: str
    """The answer in one sentence, with its interval, or what is missing for one."""
    device: str = "cuda"
    """`cpu` where every counted trial ran on CPU workers: what counts of workers are called."""
    remarks: tuple[str, ...] = field(default=())
    """What cannot be concluded and why; baselines used; suspicious results."""
    cells: pl.DataFrame
    efficiency: pl.DataFrame
    best: pl.DataFrame
    effects: pl.DataFrame
    bandwidth: pl.DataFrame
    outcomes: pl.DataFrame
