import math

import numpy as np
import pytest
from scipy import stats

from rtxscale.stats.intervals import LogMoments, geometric_mean_interval, log_moments, ratio_interval, t_quantile

RUNS = 40_000


def simulated(rng, mean, spread, n):
    """Moments of `RUNS` groups of n session means, log-normal around `mean`."""
    logs = rng.normal(math.log(mean), spread, (RUNS, n))
    return LogMoments.of(logs.mean(axis=1), logs.var(axis=1, ddof=1), np.full(RUNS, n))


def coverage(interval, truth):
    return float(np.mean((interval.low <= truth) & (truth <= interval.high)))


def test_agrees_with_scipys_welch_test():
    first, second = [190.0, 194.0, 192.0, 180.0], [100.0, 101.0, 99.0]
    expected = stats.ttest_ind(np.log(first), np.log(second), equal_var=False).confidence_interval(0.95)
    interval = ratio_interval(log_moments(first), log_moments(second))
    assert interval.low == pytest.approx(math.exp(expected.low))
    assert interval.high == pytest.approx(math.exp(expected.high))
    assert interval.estimate == pytest.approx(stats.gmean(first) / stats.gmean(second))


def test_agrees_with_scipys_t_interval_of_one_mean():
    values = [100.0, 104.0, 97.0]
    logs = np.log(values)
    low, high = stats.t.interval(0.9, 2, loc=logs.mean(), scale=stats.sem(logs))
    interval = geometric_mean_interval(log_moments(values), confidence=0.9)
    assert (interval.low, interval.high) == pytest.approx((math.exp(low), math.exp(high)))


@pytest.mark.parametrize("n", [2, 3, 5])
def test_coverage_of_a_mean(n):
    interval = geometric_mean_interval(simulated(np.random.default_rng(n), 100.0, 0.01, n))
    assert coverage(interval, 100.0) == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize("spreads", [(0.01, 0.01), (0.01, 0.002), (0.002, 0.01), (0.02, 0.001), (0.001, 0.02)])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_coverage_of_a_ratio_with_equally_many_visits(n, spreads):
    rng = np.random.default_rng(7)
    interval = ratio_interval(simulated(rng, 190.0, spreads[0], n), simulated(rng, 100.0, spreads[1], n))
    over = 0.03 if n == 2 else 0.02  # Welch at 2 visits and equal noise errs on the wide side: 97.7 %
    assert 0.93 <= coverage(interval, 1.9) <= 0.95 + over


@pytest.mark.parametrize(("n", "lowest"), [((2, 3), 0.91), ((2, 5), 0.885), ((3, 5), 0.93)])
@pytest.mark.parametrize("spreads", [(0.01, 0.01), (0.01, 0.002), (0.002, 0.01), (0.02, 0.001), (0.001, 0.02)])
def test_coverage_of_a_ratio_with_unequal_visits_as_documented(n, lowest, spreads):
    rng = np.random.default_rng(8)
    interval = ratio_interval(simulated(rng, 190.0, spreads[0], n[0]), simulated(rng, 100.0, spreads[1], n[1]))
    assert lowest <= coverage(interval, 1.9) <= 0.97


@pytest.mark.parametrize("sides", [(1, 3), (3, 1), (1, 1)])
def test_one_session_on_a_side_has_no_interval(sides):
    values = [100.0, 101.0, 102.0]
    interval = ratio_interval(log_moments(values[: sides[0]]), log_moments(values[: sides[1]]))
    assert math.isfinite(interval.estimate)
    assert math.isnan(interval.low)
    assert math.isnan(interval.high)


def test_no_session_has_no_mean_either():
    interval = geometric_mean_interval(log_moments([]))
    assert math.isnan(interval.estimate)
    assert math.isnan(interval.low)


def test_rows_with_and_without_enough_sessions_side_by_side():
    numerator = LogMoments.of([0.1, 0.1], [0.01, np.nan], [3, 1])
    denominator = LogMoments.of([0.0, 0.0], [0.01, 0.01], [3, 3])
    interval = ratio_interval(numerator, denominator)
    assert np.isnan(interval.low).tolist() == [False, True]
    assert interval.estimate == pytest.approx(math.exp(0.1))


def test_sessions_that_all_agree_have_an_interval_of_one_point():
    same = log_moments([100.0, 100.0])
    interval = ratio_interval(same, same)
    assert (interval.low, interval.estimate, interval.high) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_what_has_no_logarithm_is_refused(value):
    with pytest.raises(ValueError, match="positive and finite"):
        log_moments([100.0, value])


def test_quantiles_are_students():
    assert t_quantile([1.0, 2.5, 30.0], 0.95) == pytest.approx(stats.t.ppf(0.975, [1.0, 2.5, 30.0]))
    assert np.isnan(t_quantile([0.0, -1.0, np.nan], 0.95)).all()


def test_many_rows_at_once_are_the_same_as_one_by_one():
    rng = np.random.default_rng(3)
    groups = [rng.lognormal(0, 0.1, n) for n in rng.integers(1, 6, 50)]
    each = [log_moments(group) for group in groups]
    columns = LogMoments.of([one.mean for one in each], [one.variance for one in each], [one.n for one in each])
    together = ratio_interval(columns, each[0])
    singly = [ratio_interval(one, each[0]) for one in each]
    np.testing.assert_array_equal(together.low, [one.low for one in singly])
    np.testing.assert_array_equal(together.high, [one.high for one in singly])
    assert np.isfinite(together.low).any()
