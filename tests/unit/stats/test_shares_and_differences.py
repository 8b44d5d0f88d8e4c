"""Exact shares and means of differences, against values from elsewhere and by simulation."""

import math

import numpy as np
import pytest
from scipy import stats

from rtxscale.stats.differences import difference_interval, interval_of_mean, mean_interval
from rtxscale.stats.intervals import LogMoments
from rtxscale.stats.shares import share_interval


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [
        # A table of exact binomial limits (95 %), as printed in textbooks.
        (0, 10, 0.0, 0.3085),
        (1, 10, 0.0025, 0.4450),
        (5, 10, 0.1871, 0.8129),
        (10, 10, 0.6915, 1.0),
        (5, 100, 0.0164, 0.1128),
        (0, 60, 0.0, 0.0596),
    ],
)
def test_shares_are_those_of_the_tables(count, of, low, high):
    share = share_interval(count, of)
    assert float(share.estimate) == count / of
    assert (float(share.low), float(share.high)) == pytest.approx((low, high), abs=6e-5)


def test_the_bounds_are_where_the_binomial_tails_are_small():
    share = share_interval(7, 40, confidence=0.9)
    assert stats.binom.sf(6, 40, float(share.low)) == pytest.approx(0.05)
    assert stats.binom.cdf(7, 40, float(share.high)) == pytest.approx(0.05)


def test_of_nothing_nothing_is_known_and_impossible_counts_are_refused():
    assert math.isnan(float(share_interval(0, 0).high))
    with pytest.raises(ValueError, match="found a count of 3 out of 2"):
        share_interval(3, 2)


def test_the_mean_of_differences_has_students_interval():
    sample = [0.0102, 0.0099, 0.0101, 0.0104]
    found = mean_interval(sample)
    expected = stats.t.interval(0.95, 3, loc=np.mean(sample), scale=stats.sem(sample))
    assert (float(found.low), float(found.high)) == pytest.approx(expected)


@pytest.mark.parametrize("sample", [[], [0.01]])
def test_one_difference_has_no_interval(sample):
    found = mean_interval(sample)
    assert math.isnan(float(found.low))
    assert math.isnan(float(found.estimate)) is not bool(sample)


def test_a_difference_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="finite"):
        mean_interval([0.1, math.nan])


@pytest.mark.parametrize("sessions", [2, 3, 6])
def test_the_interval_of_the_mean_covers_as_often_as_it_says(sessions):
    draws = np.random.default_rng(sessions).normal(0.005, 0.001, size=(4000, sessions))
    intervals = [mean_interval(row, 0.9) for row in draws]
    covered = np.mean([float(found.low) <= 0.005 <= float(found.high) for found in intervals])
    assert covered == pytest.approx(0.9, abs=0.02)


def test_means_and_differences_from_moments_are_students_and_welchs():
    chance = np.random.default_rng(3)
    first, second = chance.normal(0.057, 0.001, size=(7, 3)), chance.normal(0.055, 0.003, size=(7, 5))
    sides = [
        LogMoments.of(side.mean(axis=1), side.var(axis=1, ddof=1), [side.shape[1]] * 7) for side in (first, second)
    ]
    mean, lost = interval_of_mean(sides[0]), difference_interval(*sides)
    for place in range(7):
        student = stats.t.interval(0.95, 2, loc=first[place].mean(), scale=stats.sem(first[place]))
        welch = stats.ttest_ind(first[place], second[place], equal_var=False).confidence_interval()
        assert (mean.low[place], mean.high[place]) == pytest.approx(student)
        assert (lost.low[place], lost.high[place]) == pytest.approx((welch.low, welch.high))
        assert lost.estimate[place] == pytest.approx(first[place].mean() - second[place].mean())


def test_one_session_on_a_side_leaves_the_difference_and_no_interval():
    one, three = LogMoments.of([2.0], [math.nan], [1]), LogMoments.of([1.0], [0.1], [3])
    found = difference_interval(one, three)
    assert found.estimate[0] == 1.0
    assert math.isnan(found.low[0])
    assert math.isnan(found.high[0])
    assert math.isnan(interval_of_mean(one).low[0])
