"""Differences that add up, such as seconds: their mean with an interval from Student's t.

For what a delay adds to a step; ratios belong to `stats.compare`. The replicate is the session here as well. Called by
`analysis` for the instrument's checks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from rtxscale.stats.intervals import CONFIDENCE, Interval, t_quantile


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
