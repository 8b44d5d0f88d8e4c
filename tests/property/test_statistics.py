import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rtxscale.stats.compare import holm, paired_ratio
from rtxscale.stats.intervals import log_moments, ratio_interval
from rtxscale.stats.steady import judge_steady, slope_per_minute

positive = st.floats(1e-3, 1e6)
means = st.lists(positive, min_size=1, max_size=8)


@given(means, means)
def test_swapping_the_sides_inverts_the_ratio(first, second):
    there = ratio_interval(log_moments(first), log_moments(second))
    back = ratio_interval(log_moments(second), log_moments(first))
    np.testing.assert_allclose(there.estimate, 1 / back.estimate, rtol=1e-9)
    np.testing.assert_allclose(np.log(there.low), -np.log(back.high), rtol=1e-6, atol=1e-9)


@given(means, means, st.floats(1e-2, 1e2))
def test_a_change_of_unit_changes_no_ratio(first, second, unit):
    plain = ratio_interval(log_moments(first), log_moments(second))
    scaled = ratio_interval(log_moments(np.multiply(first, unit)), log_moments(np.multiply(second, unit)))
    np.testing.assert_allclose(plain.estimate, scaled.estimate, rtol=1e-9)


@given(st.lists(positive, min_size=2, max_size=8), st.lists(positive, min_size=2, max_size=8))
def test_the_estimate_lies_in_its_interval(first, second):
    interval = ratio_interval(log_moments(first), log_moments(second))
    assert interval.low <= interval.estimate <= interval.high


@given(st.lists(st.tuples(positive, positive), min_size=2, max_size=8))
def test_a_p_value_is_a_probability(pairs):
    above, below = zip(*pairs, strict=True)
    assert 0 <= paired_ratio(above, below).p_value <= 1


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_never_lowers_and_keeps_the_order(p_values):
    adjusted = holm(p_values)
    assert np.all(adjusted >= np.asarray(p_values))
    assert np.all(adjusted <= 1)
    order = np.argsort(p_values, kind="stable")
    assert np.all(np.diff(adjusted[order]) >= 0)


any_time = st.floats(-1.0, 1e9) | st.sampled_from([float("nan"), float("inf"), 5e-324, 0.0])


@given(st.lists(any_time, max_size=60), positive, st.floats(1e-4, 1))
def test_any_step_times_are_judged(times, min_s, tolerance):
    verdict = judge_steady(times, min_s=min_s, tolerance=tolerance)
    assert verdict.window_s >= min_s or not verdict.steady


@given(st.lists(st.floats(1e-3, 10), min_size=30, max_size=60), st.sampled_from([2.0**k for k in range(-8, 9)]))
def test_a_change_of_unit_changes_no_verdict(times, unit):
    plain = judge_steady(times, min_s=0.01, tolerance=0.05)
    scaled = judge_steady(np.multiply(times, unit), min_s=0.01 * unit, tolerance=0.05)
    assert plain.steady == scaled.steady


@given(st.floats(-100, 100), st.floats(-1000, 1000), st.integers(2, 200))
def test_the_slope_of_a_line_is_its_slope(slope, start, count):
    minutes = np.linspace(0.0, 2.0, count)
    assert np.isclose(slope_per_minute(60 * minutes, start + slope * minutes), slope, rtol=1e-6, atol=1e-6)
