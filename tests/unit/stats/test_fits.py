"""Scaling laws: known answers, refusals, and intervals that cover."""

import math

import numpy as np
import pytest
from scipy import optimize

from rtxscale.stats.fits import (
    Fit,
    Line,
    Refusal,
    fit_amdahl,
    fit_line,
    fit_usl,
    gustafson,
    karp_flatt,
    usl_peak,
)

SIZES = np.array([1, 2, 4, 8], dtype=float)


def usl(scale, first, contention, coherency=0.0):
    return first * scale / (1 + contention * (scale - 1) + coherency * scale * (scale - 1))


def test_karp_flatt_is_amdahls_share_where_the_law_holds():
    speedup = 1 / (0.07 + 0.93 / SIZES)
    assert karp_flatt(speedup[1:], SIZES[1:]) == pytest.approx([0.07] * 3)
    assert math.isnan(karp_flatt(1.0, 1.0))


def test_gustafson_is_one_minus_the_extra_gpu_efficiency():
    speedup, scale = np.array([1.8, 3.5]), np.array([2.0, 4.0])
    assert gustafson(speedup, scale) == pytest.approx(1 - (speedup - 1) / (scale - 1))


def test_exact_points_give_the_planted_law_and_no_scatter():
    fit = fit_amdahl(SIZES, usl(SIZES, 250.0, 0.08))
    assert isinstance(fit, Fit)
    assert fit.parameters.estimate == pytest.approx([250.0, 0.08])
    assert fit.parameters.high - fit.parameters.low == pytest.approx([0, 0], abs=1e-9)
    assert (fit.sizes, fit.points, fit.scatter) == (4, 4, pytest.approx(0, abs=1e-12))
    sizes = np.array([1, 2, 4, 8, 16, 32], dtype=float)
    fit = fit_usl(sizes, usl(sizes, 100.0, 0.03, 0.001))
    assert isinstance(fit, Fit)
    assert fit.parameters.estimate == pytest.approx([100.0, 0.03, 0.001])


def test_amdahl_agrees_with_a_general_fit_of_logarithms():
    rng = np.random.default_rng(1)
    scale = np.repeat(SIZES, 3)
    speeds = usl(scale, 100.0, 0.05) * np.exp(rng.normal(0, 0.01, scale.size))
    fit = fit_amdahl(scale, speeds)
    found, covariance = optimize.curve_fit(
        lambda p, first, share: np.log(usl(p, first, share)), scale, np.log(speeds), p0=[90.0, 0.1]
    )
    assert isinstance(fit, Fit)
    assert fit.parameters.estimate == pytest.approx(found, rel=2e-3)
    # Student's t of 10 degrees of freedom at 97.5 %, from a table.
    half = 2.228 * np.sqrt(np.diag(covariance))
    assert fit.parameters.high - fit.parameters.estimate == pytest.approx(half, rel=0.03)


def test_more_than_linear_is_not_clipped():
    fit = fit_amdahl(SIZES, SIZES * np.array([1.0, 1.02, 1.05, 1.08]))
    assert isinstance(fit, Fit)
    assert fit.parameters.estimate[1] < 0


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (fit_amdahl([1, 2], [100, 190]), "needs >= 3 worker counts, found 2"),
        (fit_amdahl([1, 1, 2, 2], [100, 101, 190, 191]), "needs >= 3 worker counts, found 2"),
        (fit_usl([1, 2, 4, 8], [100, 190, 360, 600]), "needs >= 5 worker counts, found 4"),
        (fit_line([1024, 2048], [1e-5, 2e-5]), "needs >= 3 message sizes, found 2"),
        (fit_line([1024, 2048, 4096], [3e-5, 2e-5, 1e-5]), "does not grow"),
        (fit_amdahl([], []), "needs >= 3 worker counts, found 0"),
    ],
)
def test_too_little_is_refused_in_words(refused, words):
    assert isinstance(refused, Refusal)
    assert words in refused.words


@pytest.mark.parametrize(("scale", "speeds"), [([1, 2], [1]), ([1, 2, 4], [1, 2, math.nan]), ([1, 2, 0], [1] * 3)])
def test_what_is_no_point_is_an_error(scale, speeds):
    with pytest.raises(ValueError, match="points"):
        fit_amdahl(scale, speeds)


@pytest.mark.parametrize(("visits", "noise"), [(1, 0.01), (2, 0.002), (2, 0.02), (3, 0.05), (5, 0.01)])
def test_the_intervals_of_amdahls_share_cover(visits, noise):
    rng = np.random.default_rng(7)
    scale = np.repeat(SIZES, visits)
    hits = 0
    runs = 3000
    for _ in range(runs):
        fit = fit_amdahl(scale, usl(scale, 100.0, 0.06) * np.exp(rng.normal(0, noise, scale.size)))
        assert isinstance(fit, Fit)
        hits += fit.parameters.low[1] <= 0.06 <= fit.parameters.high[1]
    assert hits / runs == pytest.approx(0.95, abs=0.02)


def test_the_intervals_of_the_universal_law_cover():
    rng = np.random.default_rng(8)
    scale = np.repeat([1.0, 2, 3, 4, 6, 8], 2)
    hits = np.zeros(3)
    runs = 3000
    right = np.array([100.0, 0.05, 0.002])
    for _ in range(runs):
        fit = fit_usl(scale, usl(scale, *right) * np.exp(rng.normal(0, 0.01, scale.size)))
        assert isinstance(fit, Fit)
        hits += (fit.parameters.low <= right) & (right <= fit.parameters.high)
    assert hits / runs == pytest.approx([0.95] * 3, abs=0.02)


def test_a_collectives_line():
    sizes = np.array([4096, 2**20, 2**26, 2**29], dtype=float)
    line = fit_line(sizes, 20e-6 + sizes / 25e9)
    assert isinstance(line, Line)
    assert (line.latency_s, line.bytes_per_s, line.sizes) == (pytest.approx(20e-6), pytest.approx(25e9), 4)


def test_small_messages_count_as_much_as_large_ones():
    sizes = np.array([4096, 65536, 2**20, 2**24, 2**28], dtype=float)
    noisy = (20e-6 + sizes / 25e9) * np.array([1.01, 0.99, 1.01, 0.99, 1.01])
    line = fit_line(sizes, noisy)
    assert isinstance(line, Line)
    assert line.latency_s == pytest.approx(20e-6, rel=0.02)
    assert line.scatter == pytest.approx(0.01, rel=0.5)


def test_the_peak_is_where_throughput_is_largest():
    peak = usl_peak(0.05, 0.002)
    scale = np.linspace(1, 60, 6000)
    assert peak == pytest.approx(scale[np.argmax(usl(scale, 1.0, 0.05, 0.002))], abs=0.02)
    assert usl_peak(0.05, -0.1) is None
