"""Is the end of a warm-up steady? Judged from step times alone, and slopes of temperature and clock.

Pure and cheap: a few milliseconds for 100,000 steps. `rank` asks several times a second while it warms up. Step times
alone cannot see a slow drift that hides in noise (a 4 % boost decay over minutes): published runs also soak and bound
`slope_per_minute` of temperature and clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rtxscale.stats.intervals import Floats

MIN_STEPS = 6
"""Fewest steps in the judged window: two blocks of three."""

TRIM = 0.1
"""Share of a block's steps left out at each end of its mean: one stall in ten steps does not decide."""

BINS = 32
"""Medians that the slope is taken over; Theil-Sen on all steps would cost their square."""


@dataclass(frozen=True, kw_only=True)
class SteadyVerdict:
    """Whether a warm-up has become steady, and the figures behind it.

    `change` is the relative difference of the two blocks' means, `drift` the relative change along the fitted slope
    from one end of the window to the other; both None while the window is too short.
    """

    steady: bool
    criterion: str
    steps: int
    window_s: float
    change: float | None = None
    drift: float | None = None


def judge_steady(step_times_s: ArrayLike, *, min_s: float, tolerance: float) -> SteadyVerdict:
    """Judge the recent end of a warm-up, given the duration of each step so far in seconds.

    The first step (allocation, autotuning, compilation) is never in it. The window is the second half of the steps, or
    the last `min_s` seconds where that is longer, at least `MIN_STEPS`; it grows with the warm-up, so noise averages
    out. It is steady when (1) the `TRIM`-trimmed means of its two halves differ by at most `tolerance`, relatively, and
    (2) the Theil-Sen slope over medians of `BINS` bins amounts to at most `tolerance` over the whole window: on a
    ramp the halves differ by only half of what the ramp amounts to.

    Source: comparing recent batches, A. Georges, D. Buytaert, L. Eeckhout, "Statistically rigorous Java performance
    evaluation", OOPSLA 2007; slope, P. K. Sen, "Estimates of the regression coefficient based on Kendall's tau", J.
    American Statistical Association 63 (1968).

    >>> judge_steady([9.0] + [0.1] * 40, min_s=1.0, tolerance=0.02).steady
    True
    """
    times = np.asarray(step_times_s, dtype=np.float64)[1:]
    if not np.all(np.isfinite(times) & (times >= 0)):
        return SteadyVerdict(steady=False, criterion="a step time is not a number", steps=0, window_s=0.0)
    window = _recent(times, min_s)
    window_s = float(window.sum())
    if window_s < min_s or window.size < MIN_STEPS:
        return SteadyVerdict(
            steady=False,
            criterion=f"{window.size} steps in {window_s:.3g} s; needs {MIN_STEPS} in {min_s:g} s",
            steps=window.size,
            window_s=window_s,
        )
    change, drift = _change(window), _drift(window)
    return SteadyVerdict(
        steady=abs(change) <= tolerance and abs(drift) <= tolerance,
        criterion=f"halves differ by {change:+.2%}, drift {drift:+.2%}; at most {tolerance:.2%} over {window_s:.3g} s",
        steps=window.size,
        window_s=window_s,
        change=change,
        drift=drift,
    )


def slope_per_minute(t_s: ArrayLike, values: ArrayLike) -> float:
    """Theil-Sen slope of a telemetry series, in its unit per minute, times in seconds; NaN below 2 distinct times.

    Missing samples (NaN) are left out. Half of the pairwise slopes are below it, so outliers do not move it.

    Source: P. K. Sen, J. American Statistical Association 63 (1968).

    >>> slope_per_minute([0.0, 30.0, 60.0], [60.0, 61.0, 62.0])
    2.0
    """
    times, series = np.asarray(t_s, dtype=np.float64), np.asarray(values, dtype=np.float64)
    kept = np.isfinite(times) & np.isfinite(series)
    order = np.argsort(times[kept], kind="stable")
    return 60 * _theil_sen(_bin_medians(times[kept][order]), _bin_medians(series[kept][order]))


def _recent(times: Floats, min_s: float) -> Floats:
    """The second half of the steps, or the fewest last steps that add up to `min_s`, whichever are more."""
    elapsed = np.cumsum(times[::-1])
    enough = int(np.searchsorted(elapsed, min_s)) + 1
    count = min(max(enough, MIN_STEPS, (times.size + 1) // 2), times.size)
    return times[times.size - count :]


def _change(window: Floats) -> float:
    half = window.size // 2
    before, after = _trimmed_mean(window[:half]), _trimmed_mean(window[half:])
    return (after - before) / before if before > 0 else 0.0


def _drift(window: Floats) -> float:
    """Relative change along the fitted slope over the window."""
    level = float(np.median(window))
    ends = np.cumsum(window)
    slope = _theil_sen(_bin_medians(ends), _bin_medians(window))
    if level <= 0:
        return 0.0
    return slope * float(ends[-1]) / level if np.isfinite(slope) else float("inf")


def _trimmed_mean(block: Floats) -> float:
    cut = int(TRIM * block.size)
    ordered = np.sort(block)
    return float(ordered[cut : block.size - cut].mean())


def _bin_medians(series: Floats) -> Floats:
    """Medians of at most `BINS` runs of equal length; a remainder at the front is left out."""
    length = max(1, -(-series.size // BINS))
    used = series.size // length * length
    medians: Floats = np.median(series[series.size - used :].reshape(-1, length), axis=1)
    return medians


def _theil_sen(x: Floats, y: Floats) -> float:
    """Median of the slopes between all pairs of points with different x; NaN without such a pair."""
    first, second = np.triu_indices(x.size, k=1)
    run = x[second] - x[first]
    distinct = run != 0
    if not np.any(distinct):
        return float("nan")
    with np.errstate(over="ignore"):  # two times closer than a float can divide by: an infinite slope is right
        return float(np.median((y[second] - y[first])[distinct] / run[distinct]))
