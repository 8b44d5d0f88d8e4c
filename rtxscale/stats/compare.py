"""Comparing two settings: paired log ratios, many tests at once, and equality within a margin.

Pairs are session by session: both settings in one warm session, averaged within it. Element by element on arrays, like
`stats.intervals`. Called by `analysis`. Below 2 pairs (or 2 sessions a side) bounds and p-values are NaN: not known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from rtxscale.stats.intervals import (
    CONFIDENCE,
    Floats,
    Interval,
    LogMoments,
    geometric_mean_interval,
    log_moments,
    ratio_interval,
    welch_difference,
)


@dataclass(frozen=True, kw_only=True)
class RatioTest:
    """Ratio of one setting to another, its interval, and the two-sided p-value of "they are equal"."""

    ratio: Floats
    low: Floats
    high: Floats
    p_value: Floats


@dataclass(frozen=True, kw_only=True)
class EquivalenceTest:
    """Whether a ratio lies within the margin around 1; `p_value` is that of "it does not"."""

    p_value: Floats
    equivalent: np.ndarray


def paired_ratio(numerators: ArrayLike, denominators: ArrayLike, confidence: float = CONFIDENCE) -> RatioTest:
    """Ratio of two settings measured in the same sessions, one value of each per session, in the same order.

    Raises:
        ValueError: the sides differ in length, or a value is not positive and finite.

    >>> test = paired_ratio([103.0, 104.0, 102.5], [100.0, 101.0, 100.0])
    >>> [round(float(value), 3) for value in (test.ratio, test.low, test.high, test.p_value)]
    [1.028, 1.021, 1.035, 0.003]
    """
    above, below = np.asarray(numerators, dtype=np.float64), np.asarray(denominators, dtype=np.float64)
    if above.shape != below.shape or above.ndim != 1:
        raise ValueError(f"pairs need two sides of one length, found {above.shape} and {below.shape}")
    if not np.all((above > 0) & (below > 0)):
        raise ValueError("paired values must be positive and finite")
    return ratio_test(log_moments(above / below), confidence)


def ratio_test(moments: LogMoments, confidence: float = CONFIDENCE) -> RatioTest:
    """Student's t on log ratios: `moments` holds mean, variance and number of ln(a_i / b_i), one per session.

    Source: Student, Biometrika 6 (1908), on differences of logarithms.
    """
    interval: Interval = geometric_mean_interval(moments, confidence)
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.sqrt(moments.variance / moments.n)
    return RatioTest(
        ratio=interval.estimate,
        low=interval.low,
        high=interval.high,
        p_value=2 * _upper_tail(np.abs(moments.mean), error, moments.n - 1),
    )


def independent_ratio(numerator: LogMoments, denominator: LogMoments, confidence: float = CONFIDENCE) -> RatioTest:
    """Welch's t on log means of two settings that share no session, such as those of two runs.

    Source: B. L. Welch, Biometrika 34 (1947), on logarithms; the interval is that of `stats.intervals.ratio_interval`.

    >>> test = independent_ratio(log_moments([103.0, 104.0, 102.5]), log_moments([100.0, 101.0, 100.0]))
    >>> [round(float(value), 3) for value in (test.ratio, test.low, test.high, test.p_value)]
    [1.028, 1.013, 1.044, 0.008]
    """
    difference, error, freedom = welch_difference(numerator, denominator)
    interval = ratio_interval(numerator, denominator, confidence)
    return RatioTest(
        ratio=interval.estimate,
        low=interval.low,
        high=interval.high,
        p_value=2 * _upper_tail(np.abs(difference), error, freedom),
    )


def holm(p_values: ArrayLike) -> Floats:
    """P-values adjusted for the number of tests in the family, so that rejecting at 0.05 errs at most 5 % overall.

    NaN (no test was possible) stays NaN and does not count.

    Source: S. Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Statistics 6 (1979).

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    raw = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(raw.shape, np.nan)
    order = np.argsort(raw, kind="stable")[: int(np.sum(~np.isnan(raw)))]
    steps = raw[order] * np.arange(order.size, 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def equivalence_paired(moments: LogMoments, margin: float, alpha: float = 0.05) -> EquivalenceTest:
    """TOST on log ratios of pairs: equal within `margin` (0.01 is one per cent) when both one-sided tests reject.

    The bounds are symmetric on the log scale: 1/(1 + margin) and 1 + margin.

    Source: D. J. Schuirmann, "A comparison of the two one-sided tests procedure and the power approach", J.
    Pharmacokinetics and Biopharmaceutics 15 (1987).
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.sqrt(moments.variance / moments.n)
    return _tost(moments.mean, error, moments.n - 1, margin, alpha)


def equivalence(numerator: LogMoments, denominator: LogMoments, margin: float, alpha: float = 0.05) -> EquivalenceTest:
    """TOST like `equivalence_paired` for two settings measured in different sessions (Welch's error and freedom)."""
    difference, error, freedom = welch_difference(numerator, denominator)
    return _tost(difference, error, freedom, margin, alpha)


def _tost(difference: Floats, error: Floats, freedom: Floats, margin: float, alpha: float) -> EquivalenceTest:
    if not margin > 0:
        raise ValueError(f"the margin must be positive, found {margin}")
    bound = np.log1p(margin)
    above_lower = _upper_tail(difference + bound, error, freedom)
    below_upper = _upper_tail(bound - difference, error, freedom)
    p_value = np.maximum(above_lower, below_upper)
    return EquivalenceTest(p_value=p_value, equivalent=p_value < alpha)


def _upper_tail(distance: Floats, error: Floats, freedom: Floats) -> Floats:
    """Probability that Student's t exceeds distance / error; without any spread it is 0, 1/2 or 1."""
    usable = (freedom > 0) & ~np.isnan(error)
    with np.errstate(invalid="ignore", divide="ignore"):
        score = np.where(distance == 0, 0.0, distance / error)
    tail = special.stdtr(np.where(usable, freedom, 1.0), np.where(usable, -score, 0.0))
    return np.where(usable, tail, np.nan)
