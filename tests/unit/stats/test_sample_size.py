import numpy as np
import pytest
from scipy import stats

from rtxscale.stats.sample_size import sessions_needed


@pytest.mark.parametrize(("difference", "spread"), [(0.01, 0.01), (0.02, 0.01), (0.005, 0.012)])
def test_that_many_sessions_see_the_difference_in_about_four_of_five_cases(difference, spread):
    needed = sessions_needed(difference, spread**2)
    logs = np.random.default_rng(3).normal(difference, spread, (20_000, needed))
    seen = stats.ttest_1samp(logs, 0.0, axis=1).pvalue < 0.05
    assert 0.78 <= np.mean(seen) <= 0.93
    fewer = stats.ttest_1samp(logs[:, : needed - 1], 0.0, axis=1).pvalue < 0.05
    assert np.mean(fewer) < 0.83


def test_more_spread_needs_more_and_nothing_needs_no_end():
    assert sessions_needed(0.01, 0.02**2) > sessions_needed(0.01, 0.01**2)
    assert sessions_needed(-0.01, 0.01**2) == sessions_needed(0.01, 0.01**2)
    assert sessions_needed(0.001, 0.1**2) is None
    assert sessions_needed(0.01, 0.0) == 2
