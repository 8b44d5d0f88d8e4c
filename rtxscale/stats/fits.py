"""Scaling laws fitted to measured throughputs, and the latency-bandwidth line of a collective; pure, with sources.

Numbers of one size (Karp-Flatt, Gustafson) work element by element on arrays, like `stats.intervals`. Fits work on the
points of one curve and refuse, in words, what has too few sizes. Called by `analysis.fits`.

Symbols: p = N / N0 the relative number of workers, X(p) throughput, S(p) = X(p) / X(1) speed-up. Errors are taken as
relative and equal at all sizes, so every fit is linear least squares on p / X or on time, weighted by the fit itself.
Intervals are Student's t with (points - parameters) degrees of freedom; they assume that the law holds, and `scatter`,
the relative deviation of the points from it, shows whether it does. Nothing is clipped: a negative share is what the
points say.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rtxscale.stats.intervals import CONFIDENCE, Floats, Interval, t_quantile

KARP_FLATT_SOURCE = "A. H. Karp, H. P. Flatt, Communications of the ACM 33 (1990)"
AMDAHL_SOURCE = "G. M. Amdahl, AFIPS Spring Joint Computer Conference (1967)"
GUSTAFSON_SOURCE = "J. L. Gustafson, Communications of the ACM 31 (1988)"
USL_SOURCE = "N. J. Gunther, Guerrilla Capacity Planning (2007), universal scalability law"
HOCKNEY_SOURCE = "R. W. Hockney, Parallel Computing 20 (1994), latency and bandwidth"

AMDAHL_SIZES = 3
USL_SIZES = 5
MESSAGE_SIZES = 3
"""Fewest distinct sizes of each fit: one more than parameters, and two more for the law with three."""
ROUNDS = 8
"""Rounds of reweighting; errors of ten per cent need four."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Fitted parameters with their intervals, in the order of the law's definition.

    `sizes` and `points` count what they rest on; `scatter` is the relative standard deviation of the points from it.
    """

    parameters: Interval
    sizes: int
    points: int
    scatter: float


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why there is no fit, in words."""

    words: str


@dataclass(frozen=True, kw_only=True)
class Line:
    """Time of a collective against its size: `latency_s` + size / `bytes_per_s`."""

    latency_s: float
    bytes_per_s: float
    sizes: int
    scatter: float


def karp_flatt(speedup: ArrayLike, scale: ArrayLike) -> Floats:
    """Experimentally determined serial share e = (1/S - 1/p) / (1 - 1/p) at constant total work; NaN at p = 1.

    It falls as the speed-up rises, so an interval of S gives one of e with its ends swapped. A share that grows with p
    is overhead that grows; a constant one is serial work.

    Source: A. H. Karp, H. P. Flatt, "Measuring parallel processor performance", Communications of the ACM 33 (1990).

    >>> karp_flatt([1.0, 3.0], [1, 4]).round(4).tolist()
    [nan, 0.1111]
    """
    reached, workers = np.asarray(speedup, dtype=np.float64), np.asarray(scale, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(workers > 1, (1 / reached - 1 / workers) / (1 - 1 / workers), np.nan)


def gustafson(speedup: ArrayLike, scale: ArrayLike) -> Floats:
    """Serial share s of a scaled speed-up S = p - s (p - 1), at constant work per worker; NaN at p = 1.

    The same as 1 minus the extra-GPU efficiency.

    Source: J. L. Gustafson, "Reevaluating Amdahl's law", Communications of the ACM 31 (1988).

    >>> gustafson([1.0, 3.7], [1, 4]).round(4).tolist()
    [nan, 0.1]
    """
    reached, workers = np.asarray(speedup, dtype=np.float64), np.asarray(scale, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(workers > 1, (workers - reached) / (workers - 1), np.nan)


def fit_amdahl(scale: ArrayLike, throughputs: ArrayLike, confidence: float = CONFIDENCE) -> Fit | Refusal:
    """Throughput of one worker and serial share s of X(p) = X1 p / (1 + s (p - 1)), at constant total work.

    Source: G. M. Amdahl, "Validity of the single processor approach to achieving large scale computing capabilities",
    AFIPS Spring Joint Computer Conference (1967).
    """
    return _fit_law(scale, throughputs, 2, AMDAHL_SIZES, confidence)


def fit_usl(scale: ArrayLike, throughputs: ArrayLike, confidence: float = CONFIDENCE) -> Fit | Refusal:
    """X1, contention and coherency of X(p) = X1 p / (1 + contention (p - 1) + coherency p (p - 1)).

    Source: N. J. Gunther, "Guerrilla Capacity Planning" (2007), chapter 4: the universal scalability law.
    """
    return _fit_law(scale, throughputs, 3, USL_SIZES, confidence)


def usl_peak(contention: float, coherency: float) -> float | None:
    """Relative number of workers beyond which throughput falls: sqrt((1 - contention) / coherency); None if nowhere.

    >>> usl_peak(0.04, 0.0024), usl_peak(0.04, 0.0)
    (20.0, None)
    """
    if coherency <= 0 or contention >= 1:
        return None
    return float(np.sqrt((1 - contention) / coherency))


def fit_line(sizes_bytes: ArrayLike, times_s: ArrayLike) -> Line | Refusal:
    """Latency and bandwidth of one session's collective over message sizes: t = latency + size / bandwidth.

    Source: R. W. Hockney, "The communication challenge for MPP", Parallel Computing 20 (1994).
    """
    sizes, times = _points(sizes_bytes, times_s)
    distinct = np.unique(sizes).size
    if distinct < MESSAGE_SIZES:
        return Refusal(words=_too_few(MESSAGE_SIZES, distinct, "message sizes"))
    estimate, _, scatter = _relative_least_squares(np.column_stack([np.ones_like(sizes), sizes]), times)
    if not estimate[1] > 0:
        return Refusal(words="the time does not grow with the message size")
    return Line(latency_s=float(estimate[0]), bytes_per_s=float(1 / estimate[1]), sizes=distinct, scatter=scatter)


def _fit_law(scale: ArrayLike, throughputs: ArrayLike, parameters: int, least: int, confidence: float) -> Fit | Refusal:
    """Fit p / X = (1/X1) (1 + contention (p - 1) + coherency p (p - 1)); Amdahl's law leaves the last term out."""
    workers, speeds = _points(scale, throughputs)
    sizes = np.unique(workers).size
    if sizes < least:
        return Refusal(words=_too_few(least, sizes, "worker counts"))
    terms = [np.ones_like(workers), workers - 1, workers * (workers - 1)][:parameters]
    estimate, covariance, scatter = _relative_least_squares(np.column_stack(terms), workers / speeds)
    if not estimate[0] > 0:
        return Refusal(words="the points follow no such law: its throughput of one worker would not be positive")
    values = np.concatenate([[1 / estimate[0]], estimate[1:] / estimate[0]])
    # Gradient of 1/a and of b/a, for the spread of quotients (delta method).
    gradient = np.zeros((parameters, parameters))
    gradient[:, 0] = -values / estimate[0]
    gradient[1:, 1:] = np.eye(parameters - 1) / estimate[0]
    gradient[0, 0] = -1 / estimate[0] ** 2
    error = np.sqrt(np.maximum(np.diag(gradient @ covariance @ gradient.T), 0.0))
    half = t_quantile(speeds.size - parameters, confidence) * error
    interval = Interval(estimate=values, low=values - half, high=values + half)
    return Fit(parameters=interval, sizes=sizes, points=speeds.size, scatter=scatter)


def _relative_least_squares(design: Floats, target: Floats) -> tuple[Floats, Floats, float]:
    """Estimate, its covariance and the relative scatter, of a linear model with equal relative errors.

    Weights are 1 / fit^2, found by repetition from 1 / target^2; a fit that is not positive somewhere keeps the last.
    """
    weights = target
    for _ in range(ROUNDS):
        scaled = design / weights[:, None]
        estimate, *_ = np.linalg.lstsq(scaled, target / weights, rcond=None)
        fitted = design @ estimate
        if not np.all(fitted > 0) or np.allclose(fitted, weights, rtol=1e-12):
            break
        weights = fitted
    scaled = design / weights[:, None]
    freedom = target.size - design.shape[1]
    residuals = (target - design @ estimate) / weights
    variance = float(residuals @ residuals) / freedom if freedom > 0 else np.nan
    covariance = variance * np.linalg.pinv(scaled.T @ scaled)
    return np.asarray(estimate, dtype=np.float64), np.asarray(covariance, dtype=np.float64), float(np.sqrt(variance))


def _points(places: ArrayLike, values: ArrayLike) -> tuple[Floats, Floats]:
    at, measured = np.asarray(places, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if at.shape != measured.shape or at.ndim != 1:
        raise ValueError(f"points need two columns of one length, found {at.shape} and {measured.shape}")
    if not np.all(np.isfinite(at) & np.isfinite(measured) & (at > 0) & (measured > 0)):
        raise ValueError("points must be positive and finite")
    return at, measured


def _too_few(least: int, found: int, what: str) -> str:
    return f"needs >= {least} {what}, found {found}"
