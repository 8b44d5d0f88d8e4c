"""Checks against other instruments: nccl-tests for bus bandwidth, the GPU's energy counter for integrated power.

Called by `cli.selftest`, which has run nccl-tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from rtxscale.analysis.bandwidth import right_rows
from rtxscale.analysis.flags import LEAST_UPDATES, is_coarse
from rtxscale.analysis.selftest.verdicts import (
    FAILED,
    INCONCLUSIVE,
    NOT_RUN,
    PASSED,
    REPORTED,
    Check,
    Evidence,
    bounds,
    known,
)
from rtxscale.stats.intervals import geometric_mean_interval, log_moments, ratio_interval

BAR = 0.98
"""Least bus bandwidth as a share of what nccl-tests finds."""

LEAST_BYTES = 64 * 2**20
"""Below, what a PyTorch process pays per call decides, and not the link."""


def check_bandwidth(evidence: Evidence, collectives: pl.DataFrame, outputs: Sequence[Mapping[int, float]]) -> Check:
    """All-reduce bus bandwidth against nccl-tests, size by size from `LEAST_BYTES` on.

    `outputs` holds, for each run of nccl-tests, in-place bus bandwidth in GB/s by size in bytes. A ratio of geometric
    means with Welch's interval over visits and runs. A size passes at `BAR` or above; below, it fails where the
    interval excludes the bar, or where there is none.
    """
    ours = _by_size(evidence, collectives)
    theirs: dict[int, list[float]] = {}
    for output in outputs:
        for size_bytes, busbw in output.items():
            theirs.setdefault(size_bytes, []).append(busbw)
    shared = sorted(size for size in ours.keys() & theirs.keys() if size >= LEAST_BYTES)
    if not shared:
        said = f"no size of {LEAST_BYTES // 2**20} MiB or more was measured by both"
        return Check(name="bandwidth", verdict=INCONCLUSIVE, said=said)
    rows = tuple(_size_row(size, ours[size], theirs[size]) for size in shared)
    said = ", ".join(f"{row['size_bytes'] // 2**20} MiB {row['ratio']:.3f}" for row in rows)
    verdicts = [row["verdict"] for row in rows]
    worst = next((verdict for verdict in (FAILED, INCONCLUSIVE) if verdict in verdicts), PASSED)
    return Check(name="bandwidth", verdict=worst, said=f"bus bandwidth / nccl-tests: {said}; at least {BAR}", rows=rows)


def _by_size(evidence: Evidence, collectives: pl.DataFrame) -> dict[int, list[float]]:
    """All-reduce bus bandwidths by size, one mean a visit."""
    rows = right_rows(collectives, evidence.counted)
    rows = rows.filter((pl.col("operation") == "all_reduce") & (pl.col("busbw_gb_s") > 0))
    visits = rows.group_by("size_bytes", "visit").agg(pl.col("busbw_gb_s").mean()).sort("size_bytes", "visit")
    found: dict[int, list[float]] = {}
    for size_bytes, _, busbw in visits.iter_rows():
        found.setdefault(size_bytes, []).append(busbw)
    return found


def _size_row(size_bytes: int, ours: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    numerator, denominator = log_moments(ours), log_moments(theirs)
    interval = ratio_interval(numerator, denominator)
    ratio, high = float(interval.estimate), known(interval.high)
    below = FAILED if high is None or high < BAR else INCONCLUSIVE
    low, high = bounds(interval.low, interval.high)
    return {
        "size_bytes": size_bytes,
        "busbw_gb_s": float(geometric_mean_interval(numerator).estimate),
        "nccl_tests_gb_s": float(geometric_mean_interval(denominator).estimate),
        "visits": len(ours),
        "runs": len(theirs),
        "ratio": ratio,
        "low": low,
        "high": high,
        "verdict": PASSED if ratio >= BAR else below,
    }


def check_energy(evidence: Evidence) -> Check:
    """Energy by integrated power samples over energy by the GPU's counter, window by window; reported, no bar.

    Both come from one sensor, so agreement shows that the sampling is right, not that the sensor is.
    """
    integral, counter = pl.col("energy_integral_j"), pl.col("energy_counter_j")
    windows = evidence.counted.filter((integral > 0) & (counter > 0)).with_columns(log=(integral / counter).log())
    if not windows.height:
        said = "not applicable: no window has both an energy counter and enough power samples"
        return Check(name="energy", verdict=NOT_RUN, said=said)
    sessions = windows.group_by("session_id", maintain_order=True).agg(pl.col("log").mean().exp())
    interval = geometric_mean_interval(log_moments(sessions["log"].to_numpy()))
    low, high = bounds(interval.low, interval.high)
    coarse = windows.filter(is_coarse()).height
    largest = float(windows["log"].abs().max() or 0.0)  # type: ignore[arg-type]  # a float column
    row = {
        "windows": windows.height,
        "sessions": sessions.height,
        "difference": float(interval.estimate) - 1,
        "low": None if low is None else low - 1,
        "high": None if high is None else high - 1,
        "largest": largest,
        "coarse": coarse,
        "window_s": known(windows["window_s"].mean() or 0.0),
    }
    within = "" if row["low"] is None else f" ({row['low']:+.2%} to {row['high']:+.2%})"
    said = (
        f"integrated power is {row['difference']:+.2%}{within} off the energy counter over {windows.height} windows of "
        f"{row['window_s']:.2g} s; the largest single difference is {largest:.2%}"
    )
    if coarse:
        few = f"in {coarse} of them the counter made fewer than {LEAST_UPDATES:.0f} steps"
        said += f"; {few}: `rtxscale record FILE --seconds 60` compares a minute"
    return Check(name="energy", verdict=REPORTED, said=said, rows=(row,))
