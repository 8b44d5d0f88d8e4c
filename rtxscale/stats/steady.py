"""Is the end of a warm-up steady? Judged from step times and, on GPUs, from slopes of temperature and clock.

Pure and cheap: a few milliseconds for 100,000 steps. `rank` asks several times a second while it warms up. Step times
alone cannot see a slow drift that hides in noise (a 4 % boost decay over minutes): published runs also soak, and bound
how fast every GPU's temperature and clock still move (`judge_vitals`).
"""

from __future__ import annotations

from collections.abc import Sequence
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

SAMPLED = 0.5
"""Least share of a slope's time base that has samples; a measured window, in which nobody looks, leaves a gap."""


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


@dataclass(frozen=True, kw_only=True)
class Trend:
    """How one reading of one GPU moves at the end of its load.

    `per_minute` is its slope, the steeper one of two estimates, None below two samples; `span_s` how far back the
    samples reach, at most the time base asked for; `whole` whether they fill it. Not `readable`: the GPU does not tell.
    """

    per_minute: float | None = None
    span_s: float = 0.0
    whole: bool = False
    readable: bool = True


@dataclass(frozen=True, kw_only=True)
class GpuTrends:
    """One GPU's `temperature` in degC/min and SM `clock` in 1/min, relative to its median."""

    temperature: Trend
    clock: Trend


@dataclass(frozen=True, kw_only=True)
class VitalsVerdict:
    """Whether every GPU has stopped moving, and the figures behind it in words; no words without a GPU."""

    steady: bool
    criterion: str


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


def trend(t_s: ArrayLike, values: ArrayLike, *, base_s: float, relative: bool = False) -> Trend:
    """How a series moves over its last `base_s` seconds; `relative` to its median there.

    The slope is the steeper one of two: Theil-Sen's, and that between the `TRIM`-trimmed means of the two halves. The
    first is blind to a step (a fan that stops, another power), as long as most pairs of samples are on one side of it;
    the second averages out that readings are rounded.

    Args:
        t_s: times of the samples in seconds, ascending, all under load.
        values: the readings, NaN where one failed.
        base_s: the time base. It is whole when the samples reach back that far and cover `SAMPLED` of it.
        relative: give the slope as a share of the median reading.

    >>> trend([0.0, 30.0, 60.0, 90.0], [60.0, 60.0, 61.0, 62.0], base_s=60.0)
    Trend(per_minute=2.0, span_s=60.0, whole=True, readable=True)
    """
    times, series = np.asarray(t_s, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if times.size == 0:
        return Trend()
    known = np.isfinite(series) & (times >= times[-1] - base_s)
    span_s = min(base_s, float(times[-1] - times[0]))
    if not known.any():
        return Trend(span_s=span_s, readable=False)
    times, series = times[known], series[known]
    if times[-1] == times[0]:
        return Trend(span_s=span_s)
    slope = max(slope_per_minute(times, series), _halves_per_minute(times, series), key=abs)
    if relative:
        level = float(np.median(series))
        slope = slope / level if level > 0 else float("inf")
    covered_s = times.size * float(np.median(np.diff(times)))
    return Trend(per_minute=slope, span_s=span_s, whole=span_s >= base_s and covered_s >= SAMPLED * base_s)


def judge_vitals(
    gpus: Sequence[GpuTrends], *, base_s: float, temperature: float | None, clock: float | None
) -> VitalsVerdict:
    """Whether the temperature and SM clock of every GPU have stopped moving; without GPUs, nothing to wait for.

    Steady is: over the last `base_s` seconds under load, all of them known, no GPU's temperature moves by more than
    `temperature` degC/min nor its clock by more than `clock` 1/min, either way; None: not gated. What a GPU does not
    tell cannot be waited for, and is said in the criterion.

    Assumption: temperature and boost clock approach their end exponentially, with one time constant tau; of a part r
    that is left, the slope is r/tau. Simulated: a boost that decays by 4 % while the card heats up by 25 to 45 degC,
    readings in steps of 1 degC and 15 MHz, with noise and without, looked at every second. With bounds of 0.5 degC/min
    and 0.2 %/min over 180 s, and no soak, no run passed that was more than 1 % from its end: at most 0.1 % was left at
    tau 60 and 120 s, 0.3 % at 300 s, 0.7 % at 600 s, where two thirds ended unsteady after 20 minutes (after a soak of
    ten minutes all passed). Steady runs pass at the first look, nearly all of them also with a fan that swings by 1.5
    degC, in a room that warms by 0.3 degC/min and with 20 MHz of clock noise; with 40 MHz a third take up to a minute
    and a half longer. Where a GPU does not tell its temperature the clock alone is no guard against slow decays: runs
    passed with 1.3 % left at tau 300 s and 2.8 % at 600 s.

    Source: slope, P. K. Sen, J. American Statistical Association 63 (1968); exponential approach, lumped heat capacity,
    F. P. Incropera et al., "Fundamentals of Heat and Mass Transfer", ch. 5. `tests/unit/stats/test_steady_vitals.py`
    simulates it again.
    """
    if not gpus:
        return VitalsVerdict(steady=True, criterion="")
    parts = (
        _judge_trends([gpu.temperature for gpu in gpus], "temperature", "{:+.2f} degC/min (at most {:g})", temperature),
        _judge_trends([gpu.clock for gpu in gpus], "SM clock", "{:+.2%}/min (at most {:.2%})", clock),
    )
    gated = temperature is not None or clock is not None
    words = ", ".join(verdict.criterion for verdict in parts)
    return VitalsVerdict(
        steady=all(verdict.steady for verdict in parts), criterion=f"{words}; over {base_s:g} s" if gated else words
    )


def steepest(trends: Sequence[Trend]) -> float | None:
    """The slope that is furthest from level, with its sign; None when none is known.

    >>> steepest([Trend(per_minute=0.1), Trend(per_minute=-0.3), Trend()])
    -0.3
    """
    return max((trend.per_minute for trend in trends if trend.per_minute is not None), key=abs, default=None)


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


def _judge_trends(trends: Sequence[Trend], name: str, form: str, most: float | None) -> VitalsVerdict:
    """One reading of all GPUs against its bound."""
    told = [trend for trend in trends if trend.readable]
    silent = len(trends) - len(told)
    if not told:
        return VitalsVerdict(steady=True, criterion=f"{name} not readable")
    note = f" (not readable on {silent} of {len(trends)} GPUs)" if silent else ""
    if most is None:
        return VitalsVerdict(steady=True, criterion=f"{name} not gated{note}")
    slope = steepest(told)
    if slope is None or not all(trend.whole for trend in told):
        known_s = min(trend.span_s for trend in told)
        return VitalsVerdict(steady=False, criterion=f"{name} known for {known_s:.0f} s only{note}")
    return VitalsVerdict(steady=abs(slope) <= most, criterion=f"{name} {form.format(slope, most)}{note}")


def _halves_per_minute(times: Floats, series: Floats) -> float:
    """Slope between the trimmed means of the two halves, per minute."""
    half = times.size // 2
    rise = _trimmed_mean(series[-half:]) - _trimmed_mean(series[:half])
    return 60 * rise / float(times[-half:].mean() - times[:half].mean())


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
