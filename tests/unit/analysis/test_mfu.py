"""MFU against the documented dense peak; none, and why, where something is not known."""

import math

import pytest
from made_trials import assert_sound, collectives_frame, made_cell, trials_frame, visits

from rtxscale.analysis.conclude import conclude_tables
from rtxscale.models.flops import training_flops_per_token
from rtxscale.models.shapes import SIZES


def mfu(**columns):
    rows = visits(made_cell(2, 64), 1000.0, 1010.0, **columns)
    conclusions = conclude_tables(trials_frame(rows), collectives_frame(), axes={"gpus": [2]})
    assert_sound(conclusions)
    (row,) = conclusions.mfu.to_dicts()
    return row


def test_throughput_times_flops_over_the_peak_of_all_cards():
    row = mfu(flops_per_work=1e12)
    # 1,005 units of 1 TFLOP a second on two cards of 989.4 TFLOPS
    assert row["mfu"] == pytest.approx(1004.988 / (2 * 989.4), rel=1e-5)
    assert row["mfu_low"] < row["mfu"] < row["mfu_high"]
    assert (row["note"], "H200" in row["source"]) == (None, True)


@pytest.mark.parametrize(
    ("columns", "note"),
    [
        ({}, "FLOPs per unit of work are not recorded"),
        ({"flops_per_work": 0.0}, "FLOPs per unit of work are not recorded"),
        ({"flops_per_work": math.inf}, "FLOPs per unit of work are not recorded"),
        (
            {"flops_per_work": 1e12, "device_names": ["NVIDIA RTX 6000 Ada Generation"]},
            "no documented peak of NVIDIA RTX",
        ),
        ({"flops_per_work": 1e12, "device_names": ["Other GPU"]}, "no documented peak of Other GPU"),
        ({"flops_per_work": 1e12, "device_names": None}, "no documented peak of the card, which is not named"),
        ({"flops_per_work": 1e12, "precision": None}, "no documented peak of NVIDIA H200 in an unknown precision"),
        (
            {"flops_per_work": 1e12, "precision": "fp8", "device_names": ["NVIDIA A100-SXM4-80GB"]},
            "no documented peak of NVIDIA A100-SXM4-80GB in fp8",
        ),
    ],
)
def test_what_is_not_known_gives_none_and_says_why(columns, note):
    row = mfu(**columns)
    assert row["mfu"] is None
    assert note in row["note"]


@pytest.mark.parametrize(("precision", "peak"), [("fp32", 66.9), ("tf32", 494.7), ("fp16", 989.4), ("fp8", 1978.9)])
def test_every_precision_is_held_against_its_own_peak(precision, peak):
    row = mfu(flops_per_work=1e11, precision=precision)
    assert row["peak_tflops"] == peak
    assert row["mfu"] == pytest.approx(100.4988 / (2 * peak), rel=1e-5)


def test_roof_utilisation_is_held_against_what_the_session_measured():
    row = mfu(flops_per_work=1e12, roof_tflops=700.0)
    assert row["roof_utilisation"] == pytest.approx(1004.988 / (2 * 700), rel=1e-5)
    assert row["roof_utilisation_low"] < row["roof_utilisation"] < row["roof_utilisation_high"]
    assert row["mfu"] == pytest.approx(1004.988 / (2 * 989.4), rel=1e-5)
    unknown = mfu(flops_per_work=1e12, roof_tflops=700.0, precision="fp16", device_names=["Other GPU"])
    assert (unknown["mfu"], unknown["roof_utilisation"]) == (None, row["roof_utilisation"])
    assert mfu(flops_per_work=1e12)["roof_utilisation"] is None
    assert mfu(roof_tflops=700.0)["roof_utilisation"] is None


def test_a_roof_that_is_no_number_takes_none_of_the_others():
    rows = visits(made_cell(2, 64), 1000.0, 1010.0, flops_per_work=1e12)
    rows[0]["roof_tflops"], rows[1]["roof_tflops"] = 700.0, math.nan
    (row,) = conclude_tables(trials_frame(rows), collectives_frame(), axes={"gpus": [2]}).mfu.to_dicts()
    assert row["roof_utilisation"] == pytest.approx(1004.988 / (2 * 700), rel=1e-5)


def test_cpu_workers_have_none():
    rows = visits(made_cell(2, 64), 1000.0, flops_per_work=1.0, device="cpu")
    assert conclude_tables(trials_frame(rows), collectives_frame(), axes={"gpus": [2]}).mfu.height == 0


def test_flops_of_llama_2_7b_by_hand():
    # 6 x (32 x (4 x 4096^2 + 3 x 4096 x 11008) + 32000 x 4096) + 12 x 32 x 4096 x 2048
    assert training_flops_per_token(SIZES["7b"], 2048) == 6 * (32 * 202_375_168 + 131_072_000) + 3_221_225_472


def test_a_longer_context_costs_only_attention():
    shape = SIZES["1b"]
    grown = training_flops_per_token(shape, 4096) - training_flops_per_token(shape, 2048)
    assert grown == 12 * 22 * 2048 * 2048
