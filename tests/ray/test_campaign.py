"""At least 24 real kills at random moments, each target several times: opt-in, since they take five minutes."""

import os
import random

import pytest
from campaign import TARGETS, Campaign

VARIABLE = "RTXSCALE_FAULTS"
KILLS = 25
pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{KILLS} real kills take minutes: set {VARIABLE}=1"),
]


def test_real_kills_at_random_moments_lose_double_and_leave_nothing(head, tmp_path):
    seed = int(os.environ[VARIABLE])
    campaign = Campaign(head, tmp_path, random.Random(seed), KILLS, buckets=16).run("shot-at")  # noqa: S311 - not for secrets
    assert campaign.wrong == []
    assert sum(campaign.kills.values()) >= 24, campaign.kills
    assert all(campaign.kills[target] >= 3 for target in TARGETS), campaign.kills
    assert len(campaign.given_up) <= 2, "cells are to be struck once: the state that is read must be very old"
