"""Shares of a whole with exact intervals: how often something happened in so many independent trials.

Called by `analysis` for the instrument's checks.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from rtxscale.stats.intervals import CONFIDENCE, Interval


def share_interval(count: int, of: int, confidence: float = CONFIDENCE) -> Interval:
    """Share `count / of` with the exact binomial interval of Clopper and Pearson.

    The bounds are the shares at which `count` or more, and `count` or fewer, would be seen with probability
    (1 - confidence) / 2. They cover with at least `confidence`, whatever the true share. Of nothing, all three are NaN.

    Raises:
        ValueError: `count` is negative or more than `of`.

    Source: C. J. Clopper, E. S. Pearson, "The use of confidence or fiducial limits illustrated in the case of the
    binomial", Biometrika 26 (1934).

    >>> share = share_interval(3, 60)
    >>> [round(float(bound), 4) for bound in (share.estimate, share.low, share.high)]
    [0.05, 0.0104, 0.1392]
    """
    if not 0 <= count <= of:
        raise ValueError(f"found a count of {count} out of {of}; expected 0 to {of}")
    tail = (1 - confidence) / 2
    if of == 0:
        nothing = np.asarray(float("nan"))
        return Interval(estimate=nothing, low=nothing, high=nothing)
    low = special.betaincinv(count, of - count + 1, tail) if count else 0.0
    high = special.betaincinv(count + 1, of - count, 1 - tail) if count < of else 1.0
    return Interval(estimate=np.asarray(count / of), low=np.asarray(low), high=np.asarray(high))
