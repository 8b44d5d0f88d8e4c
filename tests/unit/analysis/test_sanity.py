"""Sanity signals: outside only beyond the interval, and only where the rule's conditions hold."""

import polars as pl
import pytest
from made_trials import assert_sound, collectives_frame, made_cell, trials_frame, visits

from rtxscale.analysis.conclude import conclude_tables
from rtxscale.analysis.sanity import PCIE_GB_S, RULES

AXES = {"gpus": [1, 2], "workload.compile": ["off", "default"]}
RTX_5090 = {"device_names": ["NVIDIA GeForce RTX 5090"], "compile": "default"}


def concluded(rows, collectives=(), axes=AXES):
    conclusions = conclude_tables(trials_frame(rows), collectives_frame(collectives), axes=axes)
    assert_sound(conclusions)
    return conclusions


def curve(efficiency, precision="bf16", spread=0.001, **columns):
    rows = visits(made_cell(1, 64, precision=precision), 100.0, 100.1, 99.9, **columns)
    two = [200 * efficiency * (1 + step * spread) for step in (0, 1, -1)]
    return rows + visits(made_cell(2, 64, precision=precision), *two, **columns)


def rule(conclusions, name):
    return conclusions.sanity.filter(pl.col("rule") == name).to_dicts()


@pytest.mark.parametrize(
    ("efficiency", "status"), [(0.97, "as expected"), (0.80, "outside"), (0.999, "outside"), (0.955, "as expected")]
)
def test_the_extra_gpu_of_a_known_card_under_its_conditions(efficiency, status):
    conclusions = concluded(curve(efficiency, **RTX_5090))
    (row,) = rule(conclusions, "extra-GPU efficiency")
    assert row["status"] == status
    assert row["found"] == pytest.approx(2 * efficiency - 1, abs=1e-3)
    assert (row["expected_low"], row["expected_high"]) == (0.91, 0.97)
    assert "AIME" in row["source"] or "playbook" in row["source"]
    flagged = [remark for remark in conclusions.remarks if "extra-GPU efficiency" in remark]
    assert bool(flagged) == (status == "outside")


@pytest.mark.parametrize(
    ("columns", "precision", "unmet"),
    [
        ({"compile": "off"}, "bf16", "compile is off"),
        ({}, "fp32", "precision is fp32"),
        ({"workload": "language/1b"}, "bf16", "the workload is language/1b"),
    ],
)
def test_a_range_whose_conditions_are_not_met_is_context(columns, precision, unmet):
    conclusions = concluded(curve(0.5, precision=precision, **{**RTX_5090, **columns}))
    (row,) = rule(conclusions, "extra-GPU efficiency")
    assert row["status"] == "context"
    assert unmet in row["words"]
    assert not any("Outside what is expected" in remark for remark in conclusions.remarks)


def test_noise_that_reaches_the_range_is_not_outside():
    (row,) = rule(concluded(curve(0.93, spread=0.05, **RTX_5090)), "extra-GPU efficiency")
    assert row["status"] == "as expected"


def test_a_card_without_a_known_range_is_not_judged():
    conclusions = concluded(curve(0.5, device_names=["NVIDIA GeForce RTX 5080"], compile="default"))
    assert rule(conclusions, "extra-GPU efficiency") == rule(conclusions, "target efficiency") == []
    assert rule(concluded(curve(0.5, device_names=["My own GPU"], compile="default")), "target efficiency") == []


def test_the_target_holds_for_its_cards():
    (row,) = rule(concluded(curve(0.85, **RTX_5090)), "target efficiency")
    assert (row["status"], row["expected_low"]) == ("outside", 0.9)
    (row,) = rule(concluded(curve(0.96, **RTX_5090)), "target efficiency")
    assert row["status"] == "as expected"


def test_more_than_linear_is_outside_on_any_card():
    (row,) = rule(concluded(curve(1.1)), "superlinear")
    assert (row["status"], row["expected_high"]) == ("outside", 1.0)
    assert rule(concluded(curve(0.95)), "superlinear") == []


def bandwidths(rows, busbw):
    names = {"attempt": 1, "operation": "all_reduce", "size_bytes": 2**26, "dtype": "fp32"}
    return [{**names, "trial_id": row["trial_id"], "busbw_gb_s": busbw, "algbw_gb_s": busbw} for row in rows]


def test_no_link_carries_more_than_it_can():
    # 16 lanes at 32 GT/s, 128 of 130 bits, 8 bits a byte
    assert PCIE_GB_S["PCIe 5 x16"] == pytest.approx(63.015, abs=1e-3)
    rows = visits(made_cell(2, 64), 100.0, 101.0, device_names=["NVIDIA GeForce RTX 5090"])
    (row,) = rule(concluded(rows, bandwidths(rows, 80.0)), "link limit")
    assert row["status"] == "outside"
    (row,) = rule(concluded(rows, bandwidths(rows, 40.0)), "link limit")
    assert row["status"] == "as expected"
    h200 = visits(made_cell(2, 64), 100.0, 101.0)
    (row,) = rule(concluded(h200, bandwidths(h200, 300.0)), "link limit")
    assert row["status"] == "context"


def test_compile_gains_more_on_several_gpus():
    def rows(many, visited=3, **columns):
        made = []
        for gpus, gain in ((1, 1.2), (2, many)):
            for compiled, factor in (("off", 1.0), ("default", gain)):
                plain = made_cell(gpus, 64).model_dump(mode="json", exclude_defaults=True)
                plain["workload"]["compile"] = compiled
                cell = type(made_cell(1, 64)).model_validate(plain)
                values = [100.0 * gpus * factor * level for level in (1.0, 1.001, 0.999)[:visited]]
                told = {"compile": compiled, "device_names": ["NVIDIA GeForce RTX 5090"], **columns}
                made += visits(cell, *values, **told)
        return made

    (row,) = rule(concluded(rows(1.05)), "compile on several GPUs")
    assert row["status"] == "outside"
    (row,) = rule(concluded(rows(1.3)), "compile on several GPUs")
    assert row["status"] == "as expected"
    (row,) = rule(concluded(rows(1.3, visited=1)), "compile on several GPUs")
    assert (row["status"], "too few visits" in row["words"]) == ("context", True)
    assert not rule(concluded(rows(1.3, device="cpu", device_names=["cpu"])), "compile on several GPUs")


def test_every_rule_says_its_conditions_and_source():
    for one in RULES:
        assert one.conditions
        assert one.source
        assert one.expectation
