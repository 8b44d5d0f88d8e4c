"""Geometric means and ratios of session means, with intervals from Student's t on their logarithms.

The replicate is the session: average everything measured in one session before it comes here. All functions work on
arrays of any one shape, one element per comparison, so that 100,000 rows cost milliseconds. Called by `analysis`.

Symbols: x_i a session's mean (> 0), y_i = ln x_i, m and v mean and unbiased variance of y, n the number of sessions.
With fewer than 2 sessions there is no interval: the bounds are NaN, the estimate stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Floats = NDArray[np.float64]

CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class LogMoments:
    """Mean, unbiased variance (NaN below 2 sessions) and number of the logarithms of session means, per element."""

    mean: Floats
    variance: Floats
    n: Floats

    @classmethod
    def of(cls, mean: ArrayLike, variance: ArrayLike, n: ArrayLike) -> LogMoments:
        """From columns, such as polars' `log().mean()`, `log().var()` and `len()`; null or NaN variance means n < 2."""
        return cls(mean=_floats(mean), variance=_floats(variance), n=_floats(n))


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Estimates with their lower and upper bounds, in the unit of the estimate."""

    estimate: Floats
    low: Floats
    high: Floats


def log_moments(values: ArrayLike) -> LogMoments:
    """Moments of the logarithms of one group of session means.

    Raises:
        ValueError: a value is not positive and finite; it has no place in a geometric mean.
    """
    sample = _floats(values)
    if not np.all(np.isfinite(sample) & (sample > 0)):
        raise ValueError("session means must be positive and finite")
    logs = np.log(sample)
    mean = logs.mean() if logs.size else np.nan
    variance = logs.var(ddof=1) if logs.size > 1 else np.nan
    return LogMoments.of(mean, variance, logs.size)


def geometric_mean_interval(moments: LogMoments, confidence: float = CONFIDENCE) -> Interval:
    """Geometric mean exp(m) with bounds exp(m -+ t sqrt(v/n)), t of n-1 degrees of freedom.

    Assumes session means that are log-normal and independent. Below 2 sessions the bounds are NaN.

    Source: Student, "The probable error of a mean", Biometrika 6 (1908).
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.sqrt(moments.variance / moments.n)
    return _exponential(moments.mean, error, moments.n - 1, confidence)


def ratio_interval(numerator: LogMoments, denominator: LogMoments, confidence: float = CONFIDENCE) -> Interval:
    """Ratio of geometric means with Welch's t interval on the logarithms; the error of both sides is in it.

    d = m1 - m2, e^2 = v1/n1 + v2/n2, degrees of freedom by Welch-Satterthwaite; bounds exp(d -+ t e). Assumes
    independent sides (different sessions), not equal variances. Below 2 sessions on a side the bounds are NaN.

    Coverage of the 95 % interval, simulated with noise from equal to 1:20: 93.6-97.7 % with 2 sessions a side, 94-97 %
    with 3 or 5; uneven sides cover less where the side with fewer sessions is the noisier: 2 against 5, 89.5 %.

    Source: B. L. Welch, "The generalization of Student's problem when several different population variances are
    involved", Biometrika 34 (1947); F. E. Satterthwaite, Biometrics Bulletin 2 (1946).

    >>> both = ratio_interval(log_moments([190.0, 194.0, 192.0]), log_moments([100.0, 101.0, 99.0]))
    >>> [round(float(value), 3) for value in (both.estimate, both.low, both.high)]
    [1.92, 1.876, 1.965]
    """
    difference, error, freedom = welch_difference(numerator, denominator)
    return _exponential(difference, error, freedom, confidence)


def welch_difference(numerator: LogMoments, denominator: LogMoments) -> tuple[Floats, Floats, Floats]:
    """Difference of the log means, its standard error and Welch-Satterthwaite's degrees of freedom."""
    with np.errstate(invalid="ignore", divide="ignore"):
        first = numerator.variance / numerator.n
        second = denominator.variance / denominator.n
        freedom = (first + second) ** 2 / (first**2 / (numerator.n - 1) + second**2 / (denominator.n - 1))
    # Two sides without any spread: the error is zero whatever the degrees of freedom.
    freedom = np.where(first + second == 0, numerator.n + denominator.n - 2, freedom)
    return numerator.mean - denominator.mean, np.sqrt(first + second), freedom


def t_quantile(freedom: ArrayLike, confidence: float) -> Floats:
    """Two-sided Student quantile: |t| stays below it with probability `confidence`; NaN where freedom is not > 0."""
    degrees = _floats(freedom)
    usable = degrees > 0
    return np.where(usable, special.stdtrit(np.where(usable, degrees, 1.0), (1 + confidence) / 2), np.nan)


def _exponential(centre: Floats, error: Floats, freedom: Floats, confidence: float) -> Interval:
    half = t_quantile(freedom, confidence) * error
    with np.errstate(over="ignore"):  # a huge half-width is an honest infinite bound
        return Interval(estimate=np.exp(centre), low=np.exp(centre - half), high=np.exp(centre + half))


def _floats(values: Any) -> Floats:
    return np.asarray(values, dtype=np.float64)
