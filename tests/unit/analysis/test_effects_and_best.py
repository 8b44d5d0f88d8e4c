"""Knob effects are paired within sessions; the best of many cells is not yet a result."""

import itertools
import math
import re

import numpy as np
import polars as pl
import pytest
from made_trials import assert_sound, collectives_frame, made_cell, made_row, trials_frame, visits

from rtxscale.analysis.conclude import conclude_tables
from rtxscale.spec.cell import Target
from rtxscale.stats.compare import holm, paired_ratio

AXES = {"gpus": [1, 2], "nccl.algorithm": ["tree", "auto", "ring"], "nccl.channels": ["auto", 8]}


def concluded(rows, axes=AXES):
    conclusions = conclude_tables(trials_frame(rows), collectives_frame(), axes=axes)
    assert_sound(conclusions)
    return conclusions


def effect(conclusions, axis, value):
    return conclusions.effects.filter((pl.col("axis") == axis) & (pl.col("value") == value)).row(0, named=True)


def test_what_sessions_have_in_common_cancels():
    sessions = [100.0, 140.0, 75.0]
    ratios = [1.03, 1.031, 1.029]
    rows = visits(made_cell(2, 64), *sessions)
    rows += visits(made_cell(2, 64, algorithm="ring"), *(s * r for s, r in zip(sessions, ratios, strict=True)))
    row = effect(concluded(rows), "nccl.algorithm", "ring")
    right = paired_ratio([s * r for s, r in zip(sessions, ratios, strict=True)], sessions)
    assert row["reference"] == "auto"
    assert (row["pairs"], row["sessions"], row["verdict"]) == (1, 3, "faster")
    assert (row["ratio"], row["ratio_low"], row["ratio_high"]) == pytest.approx(
        tuple(float(value) for value in (right.ratio, right.low, right.high))
    )


def test_pairs_of_other_settings_are_averaged_within_the_visit():
    rows = []
    for channels in ("auto", 8):
        rows += visits(made_cell(2, 64, channels=channels), 100.0, 100.0)
        rows += visits(made_cell(2, 64, channels=channels, algorithm="ring"), 110.0, 111.0)
    row = effect(concluded(rows), "nccl.algorithm", "ring")
    assert (row["pairs"], row["sessions"]) == (2, 2)


def test_cells_of_different_sessions_are_paired_by_visit():
    axes = {"nccl.p2p": ["auto", "disabled"]}
    rows = visits(made_cell(2, 64), 100.0, 101.0) + visits(made_cell(2, 64, p2p="disabled"), 80.0, 80.8)
    row = effect(concluded(rows, axes), "nccl.p2p", "disabled")
    assert row["ratio"] == pytest.approx(0.8)
    assert row["verdict"] == "slower"


def test_another_target_is_no_setting():
    """It says when a run ends, and nothing of how fast it is."""
    axes = {"gpus": [2], "target.value": [0.5, 0.8], "nccl.algorithm": ["auto", "ring"]}
    rows = []
    for value, algorithm in itertools.product((0.5, 0.8), ("auto", "ring")):
        target = Target(metric="top1", value=value, max_time_s=60.0)
        cell = made_cell(2, 64, algorithm=algorithm).model_copy(update={"target": target})
        rows += visits(cell, 100.0, 101.0 + value)
    conclusions = concluded(rows, axes)
    assert conclusions.effects.select("axis", "pairs").rows() == [("nccl.algorithm", 4)], "equal but for the target"
    assert conclusions.interactions.is_empty()
    assert not any("target.value" in remark for remark in conclusions.remarks if remark.startswith("No effect"))


def test_another_model_is_no_setting():
    """Its images per second are others' work: nothing is faster by it, and it stands in no family of comparisons."""
    axes = {"workload.model": ["resnet18", "resnet50"], "workload.precision": ["fp32", "bf16"]}
    rows = []
    for model, rate in (("resnet18", 3.0), ("resnet50", 1.0)):
        for precision, gain in (("fp32", 1.0), ("bf16", 2.0)):
            cell = made_cell(2, 64, model=model, precision=precision)
            rows += visits(cell, *(rate * gain * day for day in (100.0, 101.0, 100.5)))
    conclusions = concluded(rows, axes)
    assert conclusions.effects["axis"].unique().to_list() == ["workload.precision"]
    row = effect(conclusions, "workload.precision", "bf16")
    assert (row["pairs"], row["ratio"]) == (2, pytest.approx(2.0))
    assert not any("workload.model" in remark for remark in conclusions.remarks)


def test_a_shared_session_is_preferred_to_the_visits_mean():
    cell, ring = made_cell(2, 64), made_cell(2, 64, algorithm="ring")
    rows = [
        made_row(cell, 100.0, repeat=1, session="a"),
        made_row(cell, 50.0, repeat=2, session="b"),
        made_row(ring, 110.0, repeat=1, session="a"),
    ]
    row = effect(concluded(rows), "nccl.algorithm", "ring")
    assert row["ratio"] == pytest.approx(1.1)
    assert row["verdict"] == "needs >= 2 visits"


def test_holm_covers_all_comparisons_of_a_gpu_count():
    chance = np.random.default_rng(3)
    rows = []
    for algorithm in ("auto", "ring", "tree"):
        for channels in ("auto", 8):
            cell = made_cell(2, 64, algorithm=algorithm, channels=channels)
            rows += visits(cell, *(100.0 + chance.normal(0, 0.5) for _ in range(4)))
    table = concluded(rows).effects
    assert table.height == 3
    raw = []
    frame = trials_frame(rows).with_columns(log=pl.col("throughput_per_s").log())
    cells = {
        made_cell(2, 64, algorithm=a, channels=c).cell_id: (a, c) for a in ("auto", "ring", "tree") for c in ("auto", 8)
    }
    logs = {(cells[cell], visit): log for cell, visit, log in frame.select("cell_id", "visit", "log").iter_rows()}
    for value in ("tree", "ring"):
        differences = [sum(logs[(value, c), v] - logs[("auto", c), v] for c in ("auto", 8)) / 2 for v in (1, 2, 3, 4)]
        raw.append(float(paired_ratio([math.exp(d) for d in differences], [1.0] * 4).p_value))
    differences = [
        sum(logs[(a, 8), v] - logs[(a, "auto"), v] for a in ("auto", "ring", "tree")) / 3 for v in (1, 2, 3, 4)
    ]
    raw.append(float(paired_ratio([math.exp(d) for d in differences], [1.0] * 4).p_value))
    assert table["value"].to_list() == ["tree", "ring", "8"]
    assert table["p_holm"].to_list() == pytest.approx(holm(raw).tolist())


def test_without_auto_the_first_value_as_written_is_the_reference():
    axes = {"workload.precision": ["fp32", "bf16"]}
    rows = visits(made_cell(1, 64, precision="bf16"), 100.0, 100.0) + visits(
        made_cell(1, 64, precision="fp32"), 50.0, 51.0
    )
    row = effect(concluded(rows, axes), "workload.precision", "bf16")
    assert (row["reference"], row["gpus"]) == ("fp32", 1)


def test_the_added_default_cell_does_not_become_the_reference():
    axes = {"ddp.bucket_mib": [25, 100]}
    rows = visits(made_cell(2, 64), 100.0, 100.0)
    rows += visits(made_cell(2, 64, bucket_mib=25), 100.0, 100.0) + visits(made_cell(2, 64, bucket_mib=100), 90.0, 91.0)
    table = concluded(rows, axes).effects
    assert table.select("value", "reference").rows() == [("100", "25"), ("auto", "25")]


def test_communication_has_no_effect_at_one_gpu():
    rows = visits(made_cell(1, 64), 100.0, 100.0)
    conclusions = concluded(rows)
    assert conclusions.effects.height == 0
    assert conclusions.cells["axis:nccl.algorithm"].to_list() == [None]


def test_an_axis_that_never_varies_alone_is_mentioned():
    rows = visits(made_cell(2, 64), 100.0, 100.0) + visits(made_cell(2, 64, algorithm="ring", channels=8), 101.0, 102.0)
    remarks = concluded(rows).remarks
    assert any(remark.startswith("No effect of nccl.algorithm") for remark in remarks)
    assert any(remark.startswith("No effect of nccl.channels") for remark in remarks)


def best(conclusions, gpus=2):
    return conclusions.best.filter(pl.col("gpus") == gpus).row(0, named=True)


def test_a_clear_winner_is_unconfirmed():
    rows = visits(made_cell(1, 64), 50.0, 50.0, 50.0) + visits(made_cell(2, 64), 100.0, 100.1, 99.9)
    rows += visits(made_cell(2, 64, algorithm="ring", channels=8), 104.0, 104.1, 103.9)
    conclusions = concluded(rows)
    row = best(conclusions)
    assert row["label"] == "gpus 2, ring, 8 channels"
    assert row["gain"] == pytest.approx(0.04, abs=1e-3)
    assert row["verdict"] == "measured faster than the default (unconfirmed)"
    assert conclusions.headline.endswith(
        "; best cell (ring, 8 channels) measured 4.0 % faster, unconfirmed; `rtxscale confirm RUN` settles it."
    )


def test_the_best_of_many_equal_cells_is_rarely_called_faster():
    called = 0
    for seed in range(20):
        chance = np.random.default_rng(seed)
        rows = []
        for channels in ("auto", *range(1, 13)):
            rows += visits(made_cell(2, 64, channels=channels), *(100.0 + chance.normal(0, 1) for _ in range(3)))
        row = best(concluded(rows, {"nccl.channels": ["auto", *range(1, 13)]}))
        called += row["verdict"] == "measured faster than the default (unconfirmed)"
    assert called <= 4


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        (visits(made_cell(2, 64), 100.0), "only cell"),
        (visits(made_cell(2, 64, algorithm="ring"), 100.0), "the default cell has no result"),
        (
            visits(made_cell(2, 64), 100.0) + visits(made_cell(2, 64, algorithm="ring"), 99.0),
            "the default is the fastest of 2",
        ),
        (
            visits(made_cell(2, 64), 100.0) + visits(made_cell(2, 64, algorithm="ring"), 101.0),
            "measured faster than the default, needs >= 2 visits",
        ),
        (
            visits(made_cell(2, 64), 100.0, 120.0) + visits(made_cell(2, 64, algorithm="ring"), 121.0, 100.0),
            "not separable from the default",
        ),
    ],
)
def test_verdicts_on_the_best_cell(rows, verdict):
    assert best(concluded(rows))["verdict"] == verdict


def test_the_gain_of_cells_without_a_common_visit_has_no_interval():
    rows = [made_row(made_cell(2, 64), 100.0, visit=1), made_row(made_cell(2, 64, algorithm="ring"), 105.0, visit=2)]
    row = best(concluded(rows))
    assert row["gain"] == pytest.approx(0.05)
    assert row["gain_low"] is None


def test_no_cell_is_the_best_of_a_curve_that_the_run_does_not_have():
    cells = (made_cell(1, 8), made_cell(2, 8, algorithm="ring"))
    rows = [row for cell in cells for row in visits(cell, 100.0 * cell.gpus, study="both")]
    assert set(concluded(rows).best["curve"]) == {"weak"}
    assert not concluded(rows).efficiency.filter(curve="strong").height


def test_a_rate_and_its_bounds_have_as_many_decimal_places():
    rows = visits(made_cell(1, 8), 999.0, 1008.0, 996.0) + visits(made_cell(2, 8), 1990.0, 2000.0, 2010.0)
    (base,) = [remark for remark in concluded(rows).remarks if remark.startswith("Base of the")]
    assert re.search(r": 1,001 \(986-1,017\) images/s over 3 visits", base), base
