"""Runs that a limit stopped: a visit lacks cells, pairs or GPUs, and no number may come from that alone."""

import math

import polars as pl
import pytest
from made_trials import assert_sound, collectives_frame, made_cell, made_row, trials_frame, visits

from rtxscale.analysis.conclude import conclude_tables
from rtxscale.stats.compare import paired_ratio

AXES = {"gpus": [1, 2], "nccl.algorithm": ["auto", "ring"], "nccl.channels": ["auto", 8], "ddp.bucket_mib": ["auto", 1]}


def concluded(rows, axes=AXES):
    conclusions = conclude_tables(trials_frame(rows), collectives_frame(), axes=axes)
    assert_sound(conclusions)
    return conclusions


def best(conclusions, gpus=2):
    return conclusions.best.filter(pl.col("gpus") == gpus).row(0, named=True)


def ring(conclusions):
    return conclusions.effects.filter(pl.col("axis") == "nccl.algorithm").row(0, named=True)


@pytest.mark.parametrize(
    ("default", "bucket", "effect"),
    [([190.0, 95.0], [180.0], "needs >= 2 visits"), ([190.0, 190.0, 60.0], [180.0, 180.5], "slower")],
)
def test_a_bad_visit_of_the_default_makes_no_winner(default, bucket, effect):
    rows = visits(made_cell(1, 64), 100.0, 100.0, 100.0)
    rows += visits(made_cell(2, 64), *default) + visits(made_cell(2, 64, bucket_mib=1), *bucket)
    conclusions = concluded(rows)
    row = best(conclusions)
    assert row["label"] == "gpus 2, defaults"
    assert row["verdict"] == "the default is the fastest of 2 where both ran"
    assert row["gain"] is None
    assert "bucket" not in conclusions.headline
    assert conclusions.effects.select("value", "verdict").rows() == [("1", effect)]


def test_the_winner_of_shared_visits_wins_although_another_has_the_higher_mean():
    rows = visits(made_cell(2, 64), 200.0, 100.0) + visits(made_cell(2, 64, algorithm="ring"), 202.0)
    rows += visits(made_cell(2, 64, channels=8), 220.0, 110.0)
    row = best(concluded(rows))
    assert row["label"] == "gpus 2, 8 channels"
    assert row["gain"] == pytest.approx(0.1)


def test_without_a_shared_visit_the_verdict_says_what_is_missing():
    rows = [made_row(made_cell(2, 64), 100.0, visit=1), made_row(made_cell(2, 64, algorithm="ring"), 105.0, visit=2)]
    assert best(concluded(rows))["verdict"] == "measured faster than the default, needs a visit that has both"


def test_an_effect_is_over_the_pairs_that_every_visit_has():
    rows = visits(made_cell(2, 64), 100.0, 100.0) + visits(made_cell(2, 64, algorithm="ring"), 200.0, 200.0)
    rows += visits(made_cell(2, 64, channels=8), 100.0) + visits(made_cell(2, 64, channels=8, algorithm="ring"), 50.0)
    conclusions = concluded(rows)
    row = ring(conclusions)
    assert (row["pairs"], row["pairs_left_out"], row["sessions"]) == (1, 1, 2)
    assert row["ratio"] == pytest.approx(2.0)
    (remark,) = [remark for remark in conclusions.remarks if remark.startswith("Effects leave out")]
    assert "nccl.algorithm ring at 2 GPUs: 1 of 2" in remark
    assert "until the run is complete" in remark


def test_the_interval_is_over_the_balanced_pairs():
    rows = visits(made_cell(2, 64), 100.0, 101.0, 99.0)
    rows += visits(made_cell(2, 64, algorithm="ring"), 103.0, 105.0, 101.5)
    rows += visits(made_cell(2, 64, channels=8), 100.0) + visits(made_cell(2, 64, channels=8, algorithm="ring"), 50.0)
    row = ring(concluded(rows))
    right = paired_ratio([103.0, 105.0, 101.5], [100.0, 101.0, 99.0])
    assert (row["ratio"], row["ratio_low"], row["ratio_high"]) == pytest.approx(
        tuple(float(value) for value in (right.ratio, right.low, right.high))
    )


def test_without_a_pair_in_every_visit_the_visit_with_most_pairs_counts_alone():
    rows = []
    for channels, visit, ratio in (("auto", 1, 0.5), (8, 2, 1.1), (4, 2, 1.2)):
        rows.append(made_row(made_cell(2, 64, channels=channels), 100.0, visit=visit))
        rows.append(made_row(made_cell(2, 64, channels=channels, algorithm="ring"), 100.0 * ratio, visit=visit))
    row = ring(concluded(rows))
    assert (row["pairs"], row["pairs_left_out"], row["sessions"]) == (2, 1, 1)
    assert row["ratio"] == pytest.approx(math.sqrt(1.1 * 1.2))
    assert (row["ratio_low"], row["verdict"]) == (None, "needs >= 2 visits")


def test_a_complete_run_leaves_no_pair_out():
    rows = visits(made_cell(2, 64), 100.0, 100.0) + visits(made_cell(2, 64, algorithm="ring"), 101.0, 102.0)
    conclusions = concluded(rows)
    assert conclusions.effects["pairs_left_out"].to_list() == [0]
    assert not any("leave out" in remark for remark in conclusions.remarks)


def test_the_base_is_the_mean_of_the_gpus_that_every_visit_has():
    one = made_cell(1, 64)
    rows = [made_row(one, 100.0, visit=1), made_row(one, 60.0, visit=1, slot=1), made_row(one, 100.0, visit=2)]
    conclusions = concluded(rows + visits(made_cell(2, 64), 160.0, 160.0))
    table = dict(conclusions.efficiency.select("gpus", "throughput_per_s").iter_rows())
    assert table[1] == pytest.approx(100.0)
    assert conclusions.efficiency["efficiency"].to_list() == [1.0, pytest.approx(0.8)]
    assert any("count in (gpus 1: 1 of 2 GPUs)" in remark for remark in conclusions.remarks)


def test_gpus_that_no_visit_shares_all_count_and_are_named():
    one = made_cell(1, 64)
    rows = [made_row(one, 100.0, visit=1), made_row(one, 64.0, visit=2, slot=1)]
    conclusions = concluded(rows)
    assert conclusions.cells["throughput_per_s"].to_list() == [pytest.approx(80.0)]
    assert any("No GPU was measured in every visit in (gpus 1)" in remark for remark in conclusions.remarks)


def test_mixed_batches_are_not_called_one_gpu():
    rows = visits(made_cell(1, 64), 100.0, 100.0) + visits(made_cell(2, 32), 190.0, 191.0)
    text = " ".join(concluded(rows).remarks)
    assert "Only one GPU" not in text
    assert "add 1 to the axis gpus" not in text
    assert "measure one GPU with their batch" in text
    assert "No efficiency from (gpus 1): no larger GPU count has the same batch" in text
    assert "add 1 to the axis gpus" in " ".join(concluded(visits(made_cell(2, 32), 190.0, 191.0)).remarks)
    assert "Only one GPU has a result" in " ".join(concluded(visits(made_cell(1, 64), 100.0, 100.0)).remarks)


def test_cells_of_one_gpu_are_told_by_what_tells_them_apart():
    """That all of them are on one GPU is said already."""
    several = {"workload.precision": ["bf16", "fp32"], "workload.batch_per_gpu": [64]}
    rows = [
        row for precision in ("bf16", "fp32") for row in visits(made_cell(1, 64, precision=precision), 100.0, 100.0)
    ]
    (remark,) = (one for one in concluded(rows, AXES | several).remarks if one.startswith("Only one GPU"))
    assert remark.startswith("Only one GPU has a result (bf16; fp32): ")
    (remark,) = (one for one in concluded(rows[:2], AXES | several).remarks if one.startswith("Only one GPU"))
    assert remark.startswith("Only one GPU has a result: ")


def test_why_an_axis_has_no_effect_is_true():
    plain, with_ring = made_cell(2, 64), made_cell(2, 64, algorithm="ring")
    apart = [made_row(plain, 100.0, visit=1), made_row(with_ring, 105.0, visit=2)]
    assert any(
        "nccl.algorithm: the cells that differ in it alone share no visit" in r for r in concluded(apart).remarks
    )
    rows = visits(plain, 100.0, 100.0) + visits(made_cell(2, 64, algorithm="ring", channels=8), 100.0, 100.0)
    rows += visits(made_cell(2, 64, algorithm="tree", channels=8), 100.0, 100.0)
    remarks = concluded(rows).remarks
    assert any("nccl.algorithm: of the cells with a result" in remark for remark in remarks)
    assert any("nccl.channels: no two cells with a result differ in it alone" in remark for remark in remarks)


def test_advice_covers_a_run_that_was_stopped():
    conclusions = concluded([made_row(made_cell(1, 64), 100.0), made_row(made_cell(2, 64), 190.0)])
    advice = "run the sweep again to finish it, or raise visits to 2 or more"
    assert advice in conclusions.headline
    assert any(advice in remark.lower() for remark in conclusions.remarks)


def test_a_trial_that_was_not_begun_changes_no_number():
    """It has no session, no environment and no place: others were on the GPUs."""
    rows = visits(made_cell(1, 64), 100.0, 100.0) + visits(made_cell(2, 64), 190.0, 191.0)
    unborn = {"session_id": None, "environment_id": None, "position": None, "nodes": None, "gpu_uuids": None}
    away = [
        made_row(made_cell(2, 64, algorithm="ring"), None, outcome="foreign_process", stage=stage, **unborn)
        for stage in ("sweep", "sentinel")
    ]
    conclusions = concluded(rows + away)
    assert conclusions.efficiency.equals(concluded(rows).efficiency)
    assert conclusions.outcomes.filter(pl.col("outcome") == "foreign_process")["trials"].sum() == 2
