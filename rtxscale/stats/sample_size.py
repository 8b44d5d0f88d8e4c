"""How many sessions a paired comparison needs to see a difference, given the spread seen so far.

An estimate for planning: the difference and the variance it starts from are themselves measured with few sessions.
Called by `analysis.separation`.
"""

from __future__ import annotations

from scipy import special

POWER = 0.8
ERROR_RATE = 0.05
MOST = 100


def sessions_needed(difference: float, variance: float, *, most: int = MOST) -> int | None:
    """Sessions after which a paired t test would see `difference` in four of five cases; None above `most`.

    n >= (t(1 - alpha/2, n - 1) + t(power, n - 1))^2 v / d^2, the smallest such n from 2 on, two-sided alpha of 5 %;
    d and v are mean and variance of the log ratios per session.

    Source: J. Cohen, "Statistical Power Analysis for the Behavioral Sciences" (1988), chapter 2; the quantiles of
    Student's t in the place of the normal's, iterated.

    >>> sessions_needed(0.01, 0.01**2), sessions_needed(0.0, 0.01**2)
    (10, None)
    """
    if difference == 0:
        return None
    ratio = variance / difference**2
    for sessions in range(2, most + 1):
        freedom = sessions - 1
        quantiles = special.stdtrit(freedom, 1 - ERROR_RATE / 2) + special.stdtrit(freedom, POWER)
        if sessions >= quantiles**2 * ratio:
            return sessions
    return None
