"""Bandwidth of collectives: replicates are visits, one GPU has no bus, wrong data does not count."""

import math

import polars as pl
import pytest
from made_trials import assert_sound, collectives_frame, made_row, trials_frame

from rtxscale.analysis.conclude import conclude_tables
from rtxscale.spec.cell import Cell
from rtxscale.stats.intervals import geometric_mean_interval, log_moments


def cell(gpus, **nccl):
    return Cell.model_validate({"gpus": gpus, "workload": {"kind": "collectives"}, "nccl": nccl})


def timed(trial, busbw, *, operation="all_reduce", size=2**26, **columns):
    return {
        "trial_id": trial["trial_id"],
        "attempt": trial["attempt"],
        "operation": operation,
        "size_bytes": size,
        "dtype": "float32",
        "time_p50_s": 1e-3,
        "algbw_gb_s": busbw,
        "busbw_gb_s": busbw,
        "data_ok": True,
    } | columns


def concluded(trials, collectives):
    axes = {"gpus": [1, 2], "nccl.algorithm": ["auto", "ring"]}
    conclusions = conclude_tables(trials_frame(trials), collectives_frame(collectives), axes=axes)
    assert_sound(conclusions)
    return conclusions


def test_the_interval_is_over_visits_and_the_headline_is_the_widest_default_at_the_largest_size():
    rows = [made_row(cell(2), None, visit=visit, repeat=repeat) for visit in (1, 2, 3) for repeat in (1, 2)]
    speeds = [300.0, 302.0, 310.0, 308.0, 305.0, 305.0]
    collectives = [timed(row, speed) for row, speed in zip(rows, speeds, strict=True)]
    collectives += [timed(row, 10.0, size=2**20) for row in rows]
    conclusions = concluded(rows, collectives)
    large = conclusions.bandwidth.filter(pl.col("size_bytes") == 2**26).row(0, named=True)
    right = geometric_mean_interval(log_moments([301.0, 309.0, 305.0]))
    assert large["trials"] == 6
    assert (large["busbw_gb_s"], large["busbw_low"], large["busbw_high"]) == pytest.approx(
        (float(right.estimate), float(right.low), float(right.high))
    )
    assert conclusions.headline.startswith("2x NVIDIA H200: 305 (295-315) GB/s bus bandwidth in all_reduce of 64 MiB")


def test_both_bandwidths_are_geometric_over_visits():
    rows = [made_row(cell(2), None, visit=visit) for visit in (1, 2)]
    table = concluded(rows, [timed(rows[0], 100.0), timed(rows[1], 400.0)]).bandwidth
    assert table.select("algbw_gb_s", "busbw_gb_s").rows() == [(pytest.approx(200.0), pytest.approx(200.0))]


def test_a_bandwidth_interval_that_says_nothing_is_not_quoted():
    rows = [made_row(cell(2), None, visit=visit) for visit in (1, 2)]
    text = concluded(rows, [timed(rows[0], 100.0), timed(rows[1], 400.0)]).headline
    assert "200 (interval wider than x10: more visits) GB/s bus bandwidth" in text


def test_one_gpu_has_no_bus():
    row = made_row(cell(1), None)
    conclusions = concluded([row], [timed(row, 0.0)])
    assert conclusions.bandwidth["busbw_gb_s"].to_list() == [0.0]
    assert conclusions.bandwidth["busbw_low"].to_list() == [None]
    assert "no bus bandwidth" in conclusions.headline


def test_wrong_or_broken_rows_and_failed_attempts_do_not_count():
    good = made_row(cell(2), None, visit=1)
    failed = good | {"attempt": 2, "outcome": "crashed"}
    wrong, broken = made_row(cell(2), None, visit=2), made_row(cell(2), None, visit=3)
    rows = [timed(good, 300.0), timed(failed, 1.0), timed(wrong, 900.0, data_ok=False), timed(broken, float("inf"))]
    conclusions = concluded([good, failed, wrong, broken], rows)
    assert conclusions.bandwidth.select("busbw_gb_s", "trials").rows() == [(pytest.approx(300.0), 1)]
    assert any("1 collective returned wrong data and is not counted" in remark for remark in conclusions.remarks)


@pytest.mark.parametrize(
    "columns",
    [
        {"busbw_gb_s": -5.0},
        {"busbw_gb_s": 1e300},
        {"time_mean_s": math.inf},
        {"time_mean_s": math.nan},
        {"time_mean_s": -1.0},
        {"size_bytes": 0},
        {"operation": None},
    ],
)
def test_a_number_that_cannot_be_is_left_out_and_said(columns):
    good, odd = made_row(cell(2), None, visit=1), made_row(cell(2), None, visit=2)
    conclusions = concluded([good, odd], [timed(good, 300.0), timed(odd, 300.0) | columns])
    assert conclusions.bandwidth.select("busbw_gb_s", "trials").rows() == [(pytest.approx(300.0), 1)]
    (remark,) = [remark for remark in conclusions.remarks if "not finite or impossible" in remark]
    assert remark.startswith("1 collective lacked a name or a size, or had a time")
    assert odd["trial_id"] in remark


def test_rows_given_twice_count_once():
    row = made_row(cell(2), None)
    conclusions = concluded([row, row], [timed(row, 300.0), timed(row, 300.0)])
    assert conclusions.bandwidth.select("busbw_gb_s", "trials").rows() == [(pytest.approx(300.0), 1)]
