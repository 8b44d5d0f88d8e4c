import math

import numpy as np
import pytest
from scipy import stats

from rtxscale.stats.compare import independent_ratio
from rtxscale.stats.intervals import log_moments


def test_it_agrees_with_scipys_welch_test_on_logarithms():
    above, below = [103.0, 104.0, 102.5, 99.0], [100.0, 101.0, 98.5]
    right = stats.ttest_ind(np.log(above), np.log(below), equal_var=False)
    bounds = right.confidence_interval(0.95)
    test = independent_ratio(log_moments(above), log_moments(below))
    assert test.p_value == pytest.approx(right.pvalue)
    assert (test.low, test.high) == pytest.approx((math.exp(bounds.low), math.exp(bounds.high)))


def test_one_session_on_a_side_tells_the_ratio_and_no_more():
    test = independent_ratio(log_moments([110.0]), log_moments([100.0, 101.0]))
    assert test.ratio == pytest.approx(110 / math.sqrt(100 * 101))
    assert math.isnan(test.p_value)


def test_equal_sides_without_spread_are_equal():
    assert independent_ratio(log_moments([5.0, 5.0]), log_moments([5.0, 5.0])).p_value == 1.0
