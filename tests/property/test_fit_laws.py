"""Planted laws come back, whatever their parameters and unit."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rtxscale.stats.fits import Fit, Line, fit_amdahl, fit_line, fit_usl, gustafson, karp_flatt

sizes = st.lists(st.integers(1, 64), min_size=3, max_size=9, unique=True)
many_sizes = st.lists(st.integers(1, 64), min_size=5, max_size=9, unique=True)
first = st.floats(1e-2, 1e7)
share = st.floats(0.0, 0.95)


@given(sizes, first, share)
@settings(deadline=None)
def test_amdahls_share_is_recovered(scale, speed, serial):
    workers = np.asarray(scale, dtype=float)
    fit = fit_amdahl(workers, speed * workers / (1 + serial * (workers - 1)))
    assert isinstance(fit, Fit)
    np.testing.assert_allclose(fit.parameters.estimate, [speed, serial], rtol=1e-6, atol=1e-7)


@given(many_sizes, first, share, st.floats(0.0, 0.1))
@settings(deadline=None)
def test_contention_and_coherency_are_recovered(scale, speed, contention, coherency):
    workers = np.asarray(scale, dtype=float)
    speeds = speed * workers / (1 + contention * (workers - 1) + coherency * workers * (workers - 1))
    fit = fit_usl(workers, speeds)
    assert isinstance(fit, Fit)
    np.testing.assert_allclose(fit.parameters.estimate[1:], [contention, coherency], rtol=1e-4, atol=1e-4)


@given(st.lists(st.integers(10, 30), min_size=3, max_size=12, unique=True), st.floats(1e-7, 1e-2), st.floats(1e8, 1e12))
@settings(deadline=None)
def test_latency_and_bandwidth_are_recovered(powers, latency, bandwidth):
    size = np.power(2.0, powers)
    line = fit_line(size, latency + size / bandwidth)
    assert isinstance(line, Line)
    np.testing.assert_allclose(line.latency_s + size / line.bytes_per_s, latency + size / bandwidth, rtol=1e-6)


@given(st.integers(2, 512), st.floats(0.0, 1.0))
def test_a_planted_serial_share_comes_back_at_every_size(workers, serial):
    np.testing.assert_allclose(karp_flatt(1 / (serial + (1 - serial) / workers), workers), serial, atol=1e-9)
    np.testing.assert_allclose(gustafson(workers - serial * (workers - 1), workers), serial, atol=1e-9)
