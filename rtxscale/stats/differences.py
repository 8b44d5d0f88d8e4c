"""Differences that add up, such as seconds: their mean with an interval from Student's t.

For what a delay or a loss adds to a step; ratios belong to `stats.compare`. The replicate is the session here as well.
Called by `analysis` for the instrument's checks and for loss budgets.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from rtxscale.stats.intervals import CONFIDENCE, Interval, LogMoments, t_quantile, welch_difference


def mean_interval(differences: ArrayLike, confidence: float = CONFIDENCE) -> Interval:
    """Mean of independent differences, one per session, with bounds m -+ t sqrt(v/n), in their own unit.

    m and v are mean and unbiased variance, t Student's quantile of n-1 degrees of freedom. Assumes differences that are
    normal. Below 2 sessions the bounds are NaN, of none the mean as well.

    Raises:
        ValueError: a difference is not finite.

    Source: Student, "The probable error of a mean", Biometrika 6 (1908).

    >>> mean = mean_interval([1.9, 2.0, 2.1])
    >>> [round(float(bound), 3) for bound in (mean.estimate, mean.low, mean.high)]
    [2.0, 1.752, 2.248]
    """
    sample = np.asarray(differences, dtype=np.float64)
    if not np.all(np.isfinite(sample)):
        raise ValueError("differences must be finite")
    mean = np.asarray(sample.mean() if sample.size else np.nan)
    variance = sample.var(ddof=1) if sample.size > 1 else np.nan
    half = t_quantile(sample.size - 1, confidence) * np.sqrt(variance / max(sample.size, 1))
    return Interval(estimate=mean, low=mean - half, high=mean + half)


def interval_of_mean(moments: LogMoments, confidence: float = CONFIDENCE) -> Interval:
    """Mean of session values with bounds m -+ t sqrt(v/n), element by element, from their moments.

    `moments` are those of the values themselves, in their own unit, not of logarithms. Assumes values that are normal.
    Below 2 sessions the bounds are NaN.

    Source: Student, "The probable error of a mean", Biometrika 6 (1908).

    >>> mean = interval_of_mean(LogMoments.of([2.0], [0.01], [3]))
    >>> [round(float(bound[0]), 3) for bound in (mean.estimate, mean.low, mean.high)]
    [2.0, 1.752, 2.248]
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        half = t_quantile(moments.n - 1, confidence) * np.sqrt(moments.variance / moments.n)
    return Interval(estimate=moments.mean, low=moments.mean - half, high=moments.mean + half)


def difference_interval(first: LogMoments, second: LogMoments, confidence: float = CONFIDENCE) -> Interval:
    """Mean of one group of sessions minus that of another, with Welch's t interval, element by element.

    The moments are those of the values themselves, in their own unit, not of logarithms. Assumes independent sides
    (different sessions), not equal variances. Below 2 sessions on a side the bounds are NaN.

    Source: B. L. Welch, "The generalization of Student's problem when several different population variances are
    involved", Biometrika 34 (1947).

    >>> lost = difference_interval(LogMoments.of([2.0], [0.01], [3]), LogMoments.of([1.5], [0.01], [3]))
    >>> [round(float(bound[0]), 3) for bound in (lost.estimate, lost.low, lost.high)]
    [0.5, 0.273, 0.727]
    """
    difference, error, freedom = welch_difference(first, second)
    half = t_quantile(freedom, confidence) * error
    return Interval(estimate=difference, low=difference - half, high=difference + half)
