"""Clocks of other nodes: the offset is within its error of the truth, and samples are put on one clock."""

import numpy as np
import pytest

from rtxscale.results.schema import arrow_schema, table
from rtxscale.telemetry.clock_offset import (
    SAME_CLOCK,
    ClockOffset,
    Exchange,
    clock_offset,
    on_our_clock,
    running_kernel,
)


@pytest.mark.parametrize("true_s", [0.0, 12.5, -3600.0])
def test_the_truth_lies_within_the_error_whatever_the_delays(true_s):
    rng = np.random.default_rng(7)
    for _ in range(200):
        exchanges = []
        for _ in range(5):
            sent = int(rng.integers(10**18, 2 * 10**18))
            there, back = (round(way) for way in rng.exponential(3e6, 2))  # unequal ways, 3 ms each on average
            exchanges.append(
                Exchange(sent_ns=sent, there_ns=sent + there + round(true_s * 1e9), received_ns=sent + there + back)
            )
        found = clock_offset(exchanges)
        assert abs(found.offset_s - true_s) <= found.error_s + 1e-9
        assert found.error_s == min(one.received_ns - one.sent_ns for one in exchanges) / 2e9


def test_no_exchange_is_no_offset_and_one_kernel_is_one_clock():
    assert clock_offset([]) is None
    assert SAME_CLOCK.certain_s == 0
    assert running_kernel() == running_kernel()


def test_an_exchange_in_which_our_clock_was_set_back_is_not_the_quickest():
    back = Exchange(sent_ns=9_000_000_000, there_ns=9_000_000_000, received_ns=5_000_000_000)
    right = Exchange(sent_ns=5_000_000_000, there_ns=7_001_000_000, received_ns=5_002_000_000)
    assert clock_offset([back, right]) == ClockOffset(offset_s=2.0, error_s=0.001)
    assert clock_offset([back]) is None


def test_what_is_certain():
    assert ClockOffset(offset_s=-0.5, error_s=0.2).certain_s == pytest.approx(0.3)
    assert ClockOffset(offset_s=0.1, error_s=0.2).certain_s == 0


def test_samples_of_several_nodes_come_onto_one_clock():
    rows = [{"node": node, "device": "host", "t_ns": 10_000_000_000} for node in ("node0", "node1", "node2")]
    offsets = {"node0": SAME_CLOCK, "node1": ClockOffset(offset_s=2.5, error_s=0.001)}
    found = on_our_clock(table("telemetry", rows), offsets)
    assert found["t_ns"].to_pylist() == [10_000_000_000, 7_500_000_000, 10_000_000_000]
    assert found["clock_offset_s"].to_pylist() == [0.0, 2.5, None]
    assert found["clock_error_s"].to_pylist() == [0.0, 0.001, None]
    assert found.schema.equals(arrow_schema("telemetry"), check_metadata=True)
    assert on_our_clock(table("telemetry", []), offsets).num_rows == 0
