"""Flags are derived from what was measured, and leave every trial in."""

import polars as pl
import pytest

from rtxscale.analysis.flags import flagged
from rtxscale.results.read import polars_schema


def frame(name, rows):
    return pl.DataFrame(rows, schema=polars_schema(name))


def flags_of(row, attested=()):
    trials = frame("trials", [{"trial_id": "t", "attempt": 1, "outcome": "ok", **row}])
    proofs = [
        {"trial_id": "t", "attempt": 1, "subject": "nccl.algorithm", "requested": asked, "verdict": verdict}
        for asked, verdict in attested
    ]
    return flagged(trials, frame("attestation", proofs))["flags"].to_list()[0]


@pytest.mark.parametrize(
    ("row", "flags"),
    [
        ({}, []),
        ({"host_bound_share": 0.05}, []),
        ({"host_bound_share": 0.46}, ["host_bound"]),
        ({"throttle_share": 0.02, "power_cap_share": 0.9}, ["power_limited", "throttled"]),
        ({"host_bound_share": 0.46, "flags": ["drifting", "host_bound"]}, ["drifting", "host_bound"]),
    ],
)
def test_shares_become_flags(row, flags):
    assert flags_of(row) == flags


def test_only_a_request_can_lack_its_proof():
    assert flags_of({}, [("ring", "not attested")]) == ["not_attested"]
    assert flags_of({}, [("auto", "not attested"), ("ring", "honoured")]) == []


def test_another_attempts_proof_does_not_count():
    trials = frame("trials", [{"trial_id": "t", "attempt": 2}])
    proofs = [{"trial_id": "t", "attempt": 1, "requested": "ring", "verdict": "not attested"}]
    assert flagged(trials, frame("attestation", proofs))["flags"].to_list() == [[]]
