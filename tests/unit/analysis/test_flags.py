"""Flags are derived from what was measured, and leave every trial in."""

import polars as pl
import pytest

from rtxscale.analysis.flags import flagged, lowered_gpus
from rtxscale.results.read import polars_schema


def frame(name, rows):
    return pl.DataFrame(rows, schema=polars_schema(name))


def limits(uuid, limit, default, gpu="gpu0", node="node0"):
    named = {"uuid": uuid, "power limit": limit, "default power limit": default, "largest power limit": "600.0 W"}
    return [{"node": node, "subject": "gpu", "name": f"{gpu} {name}", "value": value} for name, value in named.items()]


STOCK = limits("GPU-a", "575.0 W", "575.0 W")


def flags_of(row, attested=(), environment=STOCK):
    trials = frame("trials", [{"trial_id": "t", "attempt": 1, "outcome": "ok", **row}])
    proofs = [
        {"trial_id": "t", "attempt": 1, "subject": "nccl.algorithm", "requested": asked, "verdict": verdict}
        for asked, verdict in attested
    ]
    return flagged(trials, frame("attestation", proofs), frame("environment", environment))["flags"].to_list()[0]


@pytest.mark.parametrize(
    ("row", "flags"),
    [
        ({}, []),
        ({"host_bound_share": 0.05}, []),
        ({"host_bound_share": 0.46}, ["host_bound"]),
        ({"host_bound_share": 0.0, "gpu_busy_share": 0.976}, []),
        ({"host_bound_share": 0.0, "gpu_busy_share": 0.61}, ["host_bound"]),
        ({"gpu_busy_share": 0.61, "input_share": 0.38}, ["input_bound"]),
        ({"gpu_busy_share": 0.61, "input_share": 0.2}, ["host_bound", "input_bound"]),
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
    assert flagged(trials, frame("attestation", proofs), frame("environment", []))["flags"].to_list() == [[]]


AT_THE_CAP = {"power_cap_share": 0.9, "gpu_uuids": ["GPU-a"]}


@pytest.mark.parametrize(
    ("limit", "default", "flag"),
    [
        ("575.0 W", "575.0 W", "power_limited"),
        ("400.0 W", "575.0 W", "throttled"),
        ("600.0 W", "575.0 W", "power_limited"),
        ("unknown", "575.0 W", "power_limited"),
        ("400.0 W", "unknown", "power_limited"),
    ],
)
def test_only_at_a_lowered_limit_the_power_cap_is_throttling(limit, default, flag):
    environment = limits("GPU-a", limit, default)
    assert flags_of(AT_THE_CAP, environment=environment) == [flag]
    assert flags_of(AT_THE_CAP | {"power_cap_share": 0.05}, environment=environment) == []


def test_a_lowered_limit_of_another_gpu_says_nothing():
    environment = [
        *STOCK,
        *limits("GPU-b", "400.0 W", "575.0 W", gpu="gpu1"),
        *limits("GPU-c", "400.0 W", "575.0 W", node="node1"),
    ]
    assert lowered_gpus(frame("environment", environment)) == ["GPU-b", "GPU-c"]
    assert flags_of(AT_THE_CAP, environment=environment) == ["power_limited"]
    assert flags_of(AT_THE_CAP | {"gpu_uuids": ["GPU-a", "GPU-b"]}, environment=environment) == ["throttled"]


def test_throttling_is_said_once_whatever_its_causes():
    environment = limits("GPU-a", "400.0 W", "575.0 W")
    assert flags_of(AT_THE_CAP | {"throttle_share": 0.5}, environment=environment) == ["throttled"]


@pytest.mark.parametrize(
    ("source", "updates", "flags"),
    [
        ("counter", 99.9, ["coarse_energy"]),
        ("counter", 100.0, []),
        ("counter", None, []),
        ("integral", 20.0, []),
        (None, 20.0, []),
    ],
)
def test_a_counter_that_stepped_too_rarely_makes_a_coarse_energy(source, updates, flags):
    assert flags_of({"energy_source": source, "energy_updates": updates}) == flags
