"""Efficiency: which base, which interval, and what is said when there is none."""

import math

import polars as pl
import pytest
from made_trials import assert_sound, collectives_frame, made_cell, made_row, trials_frame, visits

from rtxscale.analysis.conclude import conclude_tables
from rtxscale.stats.intervals import log_moments, ratio_interval

AXES = {"gpus": [1, 2, 4], "nccl.algorithm": ["auto", "ring"], "workload.precision": ["bf16", "fp32"]}


def concluded(rows, axes=AXES):
    conclusions = conclude_tables(trials_frame(rows), collectives_frame(), axes=axes)
    assert_sound(conclusions)
    return conclusions


def test_the_interval_is_welchs_over_visit_means_and_holds_the_bases_error():
    base, two = [100.0, 102.0, 99.0], [190.0, 194.0, 191.0]
    rows = visits(made_cell(1, 64), *base) + visits(made_cell(2, 64), *two)
    row = concluded(rows).efficiency.filter(pl.col("gpus") == 2).row(0, named=True)
    right = ratio_interval(log_moments(two), log_moments(base))
    assert row["speedup"] == pytest.approx(float(right.estimate))
    assert row["efficiency"] == pytest.approx(float(right.estimate) / 2)
    assert row["efficiency_low"] == pytest.approx(float(right.low) / 2)
    assert row["efficiency_high"] == pytest.approx(float(right.high) / 2)
    assert row["extra_gpu"] == pytest.approx(float(right.estimate) - 1)


def test_repeats_and_gpus_within_a_visit_are_one_replicate():
    base = [
        made_row(made_cell(1, 64), 90.0 + 10 * slot + repeat, visit=visit, repeat=repeat, slot=slot)
        for visit in (1, 2)
        for slot in (0, 1)
        for repeat in (1, 2, 3)
    ]
    conclusions = concluded(base + visits(made_cell(2, 64), 190.0, 190.0))
    one = conclusions.cells.filter(pl.col("gpus") == 1).row(0, named=True)
    assert (one["sessions"], one["trials"]) == (2, 12)
    assert one["throughput_per_s"] == pytest.approx(97.0)
    assert any("2 GPUs in turn, which differ by 10.3 %" in remark for remark in conclusions.remarks)


def test_an_uneven_number_of_repeats_does_not_weigh_a_gpu_more():
    rows = [
        made_row(made_cell(1, 64), 100.0, slot=0, repeat=1),
        made_row(made_cell(1, 64), 100.0, slot=0, repeat=2),
        made_row(made_cell(1, 64), 110.0, slot=1, repeat=1),
    ]
    assert concluded(rows).cells["throughput_per_s"].to_list() == [pytest.approx(105.0)]


def test_one_visit_gives_a_number_without_an_interval_and_says_so():
    conclusions = concluded([made_row(made_cell(1, 64), 100.0), made_row(made_cell(2, 64), 190.0)])
    row = conclusions.efficiency.filter(pl.col("gpus") == 2).row(0, named=True)
    assert row["efficiency"] == pytest.approx(0.95)
    assert row["efficiency_low"] is None
    assert row["note"] == "needs >= 2 visits"
    assert "one visit gives no interval" in conclusions.headline
    assert any("one visit only" in remark for remark in conclusions.remarks)


def test_every_series_uses_the_one_base_with_its_own_precision():
    rows = []
    for precision, speed in (("bf16", 100.0), ("fp32", 40.0)):
        rows += visits(made_cell(1, 64, precision=precision), speed, speed)
        for algorithm, share in (("auto", 0.9), ("ring", 0.8)):
            cell = made_cell(2, 64, precision=precision, algorithm=algorithm)
            rows += visits(cell, 2 * speed * share, 2 * speed * share)
    table = concluded(rows).efficiency
    assert table.height == 8
    points = table.filter(pl.col("gpus") == 2)
    assert dict(points.select("series", "efficiency").iter_rows()) == pytest.approx(
        {"bf16": 0.9, "bf16, ring": 0.8, "fp32": 0.9, "fp32, ring": 0.8}
    )
    assert table.filter(pl.col("gpus") == 1)["efficiency"].to_list() == [1.0] * 4
    assert points["base_cell_id"].n_unique() == 2


def test_settings_that_differ_have_no_common_base():
    rows = visits(made_cell(1, 64, model="resnet18"), 100.0, 100.0) + visits(made_cell(2, 64), 190.0, 191.0)
    conclusions = concluded(rows)
    assert conclusions.efficiency.height == 0
    assert "No efficiency yet" in conclusions.headline
    assert any(remark.startswith("No efficiency for (gpus 2, bf16)") for remark in conclusions.remarks)


def test_a_declared_weak_study_has_no_strong_curve():
    rows = [made_row(made_cell(gpus, 64 // gpus), 100.0 * gpus, study="weak") for gpus in (1, 2)]
    assert concluded(rows).efficiency.height == 0
    rows = [row | {"study": "strong"} for row in rows]
    assert concluded(rows).efficiency["curve"].unique().to_list() == ["strong"]


def test_work_that_breaks_the_studys_invariant_is_reported():
    rows = [made_row(made_cell(1, 64), 100.0), made_row(made_cell(2, 64), 190.0, work=640.0)]
    conclusions = concluded(rows)
    assert any("invariant does not hold in (gpus 2" in remark for remark in conclusions.remarks)
    fine = concluded([made_row(made_cell(1, 64), 100.0), made_row(made_cell(2, 64), 190.0)])
    assert not any("invariant" in remark for remark in fine.remarks)


def test_several_batches_are_several_curves():
    rows = [
        made_row(made_cell(gpus, batch), gpus * batch * (1.0 if gpus == 1 else share))
        for batch, share in ((32, 0.8), (64, 0.9))
        for gpus in (1, 2)
    ]
    table = concluded(rows, {"gpus": [1, 2], "workload.batch_per_gpu": [32, 64]}).efficiency
    points = table.filter(pl.col("gpus") == 2)
    assert dict(points.select("series", "efficiency").iter_rows()) == pytest.approx(
        {"defaults, batch 32 per GPU": 0.8, "defaults, batch 64 per GPU": 0.9}
    )


def test_the_headline_names_hardware_speedup_interval_and_settings():
    rows = visits(made_cell(1, 64), 100.0, 100.1) + visits(made_cell(4, 64), 371.0, 371.1)
    text = concluded(rows).headline
    assert text.startswith("4x NVIDIA H200 run vision/resnet50 at 3.71x (")
    assert "of one, weak efficiency 0.93 (" in text
    assert text.endswith("with bf16 and NCCL's and DDP's defaults.")
    cpu = concluded([row | {"device": "cpu"} for row in rows], {"gpus": [1, 4]}).headline
    assert cpu.startswith("4 CPU workers run vision/resnet50 at 3.71x")
    assert cpu.endswith("with defaults.")


@pytest.mark.parametrize(
    ("rows", "headline"),
    [
        ([], "Nothing has been measured yet"),
        (
            [made_row(made_cell(2, 64), None, outcome="oom", message="out of memory")],
            "as no trial can be counted: 1 oom. Look at `rtxscale explain ",
        ),
        ([made_row(made_cell(2, 64), math.nan)], "as no trial can be counted: 1 ok, but without a number"),
        ([made_row(made_cell(2, 64), 190.0)], "run 1 GPU as the base"),
        ([made_row(made_cell(1, 64), 100.0)], "run a second GPU count"),
        ([made_row(made_cell(1, 64), 0.0)], "no trial can be counted"),
        ([made_row(made_cell(2, 64), 190.0) | {"cell_json": "{"}], "run 1 GPU as the base"),
        ([made_row(made_cell(2, 64), None)], "neither a throughput nor a bandwidth"),
    ],
)
def test_little_or_nothing_gives_sentences(rows, headline):
    assert headline in concluded(rows).headline


def test_an_empty_run_has_all_frames_and_axes():
    conclusions = concluded([])
    assert conclusions.cells.columns[-3:] == ["axis:gpus", "axis:nccl.algorithm", "axis:workload.precision"]
    assert conclusions.remarks == ()
