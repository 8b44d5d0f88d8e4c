"""NCCL's own latency-bandwidth model, read from logs that NCCL wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtxscale.nccl.lines import condense
from rtxscale.nccl.model import Predicted, expected_bus_gb_s, read_model

GOLDEN = Path(__file__).parents[2] / "golden" / "nccl"
NVLINK = (GOLDEN / "h200x2_nvlink_tree_ctas2_nccl2.28.9.log").read_text()
SHM = (GOLDEN / "h200x2_shm_ring_ctas8_nccl2.28.9.log").read_text()


def choices(text, operation="all_reduce"):
    return {
        (one.algorithm, one.protocol): (one.latency_us, one.bandwidth_gb_s)
        for one in read_model(text.splitlines())
        if one.operation == operation
    }


def test_the_table_is_read_as_nccl_printed_it():
    # AllReduce | 8.0/ 61.1 | 16.5/ 180.6 | 16.4/ 232.2 | 7.8/ 141.0 | 17.8/ 331.2 | 15.2/ 360.0 | ...
    assert choices(NVLINK) == {
        ("tree", "ll"): (8.0, 61.1),
        ("tree", "ll128"): (16.5, 180.6),
        ("tree", "simple"): (16.4, 232.2),
        ("ring", "ll"): (7.8, 141.0),
        ("ring", "ll128"): (17.8, 331.2),
        ("ring", "simple"): (15.2, 360.0),
    }
    assert choices(NVLINK, "broadcast") == {
        ("ring", "ll"): (7.2, 141.0),
        ("ring", "ll128"): (15.9, 331.2),
        ("ring", "simple"): (11.8, 360.0),
    }


def test_choices_that_nccl_does_not_have_are_left_out():
    assert ("ring", "ll128") not in choices(SHM)
    assert choices(SHM)["ring", "simple"] == (19.8, 40.0)


def test_lines_as_results_keep_them_say_the_same():
    kept = [line for line, _ in condense(NVLINK)]
    assert read_model(kept) == read_model(NVLINK.splitlines())


def test_the_first_table_counts_as_later_ones_are_narrowed():
    other = NVLINK.replace("15.2/ 360.0", "15.2/  30.0")
    assert choices(NVLINK + other)["ring", "simple"] == (15.2, 360.0)
    assert choices(other + NVLINK)["ring", "simple"] == (15.2, 30.0)


@pytest.mark.parametrize("text", ["", "NCCL", "a:1:2 [0] NCCL INFO     AllReduce |     8.0/  61.1 |", "\x00|/|\n" * 50])
def test_text_that_holds_no_table_has_no_model(text):
    assert read_model(text.splitlines()) == ()


def test_bus_bandwidth_follows_nccl_tests():
    """All-gather of n ranks moves (n - 1)/n of its output over each link, all-reduce twice that of its size."""
    one = {"algorithm": "ring", "protocol": "simple", "latency_us": 0.0, "bandwidth_gb_s": 100.0}
    model = [Predicted(operation=name, **one) for name in ("all_reduce", "all_gather", "broadcast")]
    assert expected_bus_gb_s(model, "all_reduce", 2**30, 4) == pytest.approx(150)
    assert expected_bus_gb_s(model, "all_gather", 2**30, 4) == pytest.approx(75)
    assert expected_bus_gb_s(model, "broadcast", 2**30, 4) == pytest.approx(100)
    assert expected_bus_gb_s(model, "all_to_all", 2**30, 4) is None
    assert expected_bus_gb_s(model, "all_reduce", 2**30, 1) is None


def test_the_fastest_choice_is_expected():
    slow = Predicted(operation="all_reduce", algorithm="tree", protocol="simple", latency_us=50, bandwidth_gb_s=100)
    quick = Predicted(operation="all_reduce", algorithm="ring", protocol="ll", latency_us=5, bandwidth_gb_s=10)
    assert expected_bus_gb_s([slow, quick], "all_reduce", 8, 2) == pytest.approx(8 / 5.0008e-6 / 1e9, rel=1e-6)
    assert expected_bus_gb_s([slow, quick], "all_reduce", 10**9, 2) == pytest.approx(1 / (50e-6 + 0.01), rel=1e-6)
