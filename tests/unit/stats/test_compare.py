import math

import numpy as np
import pytest
from scipy import stats

from rtxscale.stats.compare import equivalence, equivalence_paired, holm, paired_ratio, ratio_test
from rtxscale.stats.intervals import LogMoments, log_moments

RUNS = 40_000


def simulated_ratios(rng, ratio, spread, pairs):
    logs = rng.normal(math.log(ratio), spread, (RUNS, pairs))
    return LogMoments.of(logs.mean(axis=1), logs.var(axis=1, ddof=1), np.full(RUNS, pairs))


def test_paired_ratio_agrees_with_scipy():
    above, below = [103.0, 104.0, 102.5, 99.0], [100.0, 101.0, 100.0, 98.0]
    expected = stats.ttest_rel(np.log(above), np.log(below))
    bounds = expected.confidence_interval(0.95)
    test = paired_ratio(above, below)
    assert test.p_value == pytest.approx(expected.pvalue)
    assert (test.low, test.high) == pytest.approx((math.exp(bounds.low), math.exp(bounds.high)))


def test_pairing_removes_what_sessions_share():
    sessions = np.array([80.0, 100.0, 130.0, 90.0])
    test = paired_ratio(sessions * [1.021, 1.019, 1.02, 1.02], sessions)
    assert test.low > 1.01
    assert test.p_value < 1e-4


@pytest.mark.parametrize("pairs", [2, 3, 5])
def test_coverage_and_error_rate_of_pairs(pairs):
    test = ratio_test(simulated_ratios(np.random.default_rng(pairs), 1.0, 0.01, pairs))
    assert np.mean((test.low <= 1) & (test.high >= 1)) == pytest.approx(0.95, abs=0.02)
    assert np.mean(test.p_value < 0.05) == pytest.approx(0.05, abs=0.02)


def test_one_pair_tells_the_ratio_and_no_more():
    test = paired_ratio([110.0], [100.0])
    assert test.ratio == pytest.approx(1.1)
    assert math.isnan(test.low)
    assert math.isnan(test.p_value)


def test_pairs_without_any_spread():
    assert paired_ratio([101.0, 202.0], [101.0, 202.0]).p_value == 1.0
    assert paired_ratio([2.0, 4.0], [1.0, 2.0]).p_value == 0.0


@pytest.mark.parametrize(
    ("above", "below"), [([1.0], [1.0, 2.0]), ([1.0, 0.0], [1.0, 1.0]), ([1.0, math.nan], [1.0, 1.0])]
)
def test_what_is_no_pair_is_refused(above, below):
    with pytest.raises(ValueError, match="pair"):
        paired_ratio(above, below)


def test_holm_by_hand():
    # 0.01 x 4, then max(0.04, 0.02 x 3), then 0.03 x 2, then max(0.06, 0.5)
    assert holm([0.5, 0.01, 0.03, 0.02]) == pytest.approx([0.5, 0.04, 0.06, 0.06])


def test_holm_never_exceeds_one_and_leaves_out_what_was_not_tested():
    adjusted = holm([0.9, math.nan, 0.8])
    assert adjusted[0] == adjusted[2] == 1.0
    assert math.isnan(adjusted[1])
    assert holm([math.nan, 0.02])[1] == pytest.approx(0.02)
    assert holm([]).size == 0


def test_holm_bounds_the_error_of_the_family():
    rng = np.random.default_rng(5)
    wrong = sum(bool(np.any(holm(family) < 0.05)) for family in rng.random((4000, 10)))
    assert wrong / 4000 <= 0.06


def test_tost_errs_rarely_at_the_margin_and_finds_equality():
    rng = np.random.default_rng(6)
    at_margin = equivalence_paired(simulated_ratios(rng, 1.01, 0.002, 5), margin=0.01)
    assert np.mean(at_margin.equivalent) <= 0.06
    equal = equivalence_paired(simulated_ratios(rng, 1.0, 0.002, 5), margin=0.01)
    assert np.mean(equal.equivalent) > 0.9


def test_tost_does_not_take_noise_for_equality():
    noisy = equivalence_paired(simulated_ratios(np.random.default_rng(6), 1.0, 0.05, 3), margin=0.01)
    assert np.mean(noisy.equivalent) < 0.05


def test_tost_on_independent_sessions_agrees_with_two_scipy_tests():
    first, second = np.array([100.0, 100.4, 99.8]), np.array([100.1, 99.9, 100.2, 100.0])
    test = equivalence(log_moments(first), log_moments(second), margin=0.01)
    bound = math.log(1.01)
    lower = stats.ttest_ind(np.log(first) + bound, np.log(second), equal_var=False, alternative="greater").pvalue
    upper = stats.ttest_ind(np.log(first) - bound, np.log(second), equal_var=False, alternative="less").pvalue
    assert test.p_value == pytest.approx(max(lower, upper))
    assert bool(test.equivalent)


def test_tost_with_one_session_concludes_nothing():
    test = equivalence(log_moments([100.0]), log_moments([100.0, 100.1]), margin=0.01)
    assert math.isnan(test.p_value)
    assert not test.equivalent


def test_tost_needs_a_margin():
    with pytest.raises(ValueError, match="margin"):
        equivalence_paired(log_moments([1.0, 1.0]), margin=0.0)
