"""Two runs against each other: ratios with Welch's interval, and what cannot be compared says why."""

import math

import polars as pl
import pytest
from made_trials import collectives_frame, made_cell, made_row, trials_frame, visits

from rtxscale.analysis.compare import COMPARED, Comparison, compared_cells, side_of
from rtxscale.analysis.differences import DIFFERENCES
from rtxscale.analysis.tables import SANITY
from rtxscale.stats.intervals import log_moments, ratio_interval

AXES = {"gpus": [1, 2], "nccl.algorithm": ["auto", "ring"]}


def side(rows, collectives=()):
    return side_of(trials_frame(rows), collectives_frame(collectives), AXES)


def compared(a, b):
    table = compared_cells(a, b)
    assert dict(table.schema) == COMPARED
    for column in table.select(pl.col(pl.Float64)):
        assert all(value is None or math.isfinite(value) for value in column)
    return table


def only(table):
    assert table.height == 1
    return table.row(0, named=True)


def test_the_ratio_is_b_over_a_with_welchs_interval():
    old, new = [100.0, 101.0, 99.0], [104.0, 105.5, 104.5]
    row = only(compared(side(visits(made_cell(2, 64), *old)), side(visits(made_cell(2, 64), *new))))
    right = ratio_interval(log_moments(new), log_moments(old))
    assert (row["ratio"], row["ratio_low"], row["ratio_high"]) == pytest.approx(
        tuple(float(value) for value in (right.estimate, right.low, right.high))
    )
    assert (row["a"], row["b"]) == pytest.approx((math.prod(old) ** (1 / 3), math.prod(new) ** (1 / 3)))
    assert (row["visits_a"], row["visits_b"], row["unit"], row["quantity"]) == (3, 3, "images/s", "throughput")


@pytest.mark.parametrize(
    ("new", "verdict"),
    [
        ([110.0, 110.1, 109.9], "faster"),
        ([90.0, 90.1, 89.9], "slower"),
        ([100.1, 100.2, 100.0], "equal within 1 %"),
        ([101.0, 101.6, 99.7], "equal within 5 %"),
        ([80.0, 100.0, 125.0], "not separable"),
        ([103.0], "not separable: needs >= 2 visits on both sides"),
    ],
)
def test_verdicts(new, verdict):
    old = side(visits(made_cell(2, 64), 100.0, 100.1, 99.9))
    assert only(compared(old, side(visits(made_cell(2, 64), *new))))["verdict"] == verdict


def test_a_certain_but_tiny_difference_is_called_equal():
    old, new = visits(made_cell(2, 64), 100.0, 100.01, 99.99), visits(made_cell(2, 64), 100.3, 100.31, 100.29)
    row = only(compared(side(old), side(new)))
    assert row["ratio_low"] > 1
    assert row["verdict"] == "equal within 1 %"


def test_the_family_is_corrected():
    first = [made_cell(2, 64), made_cell(2, 64, algorithm="ring"), made_cell(1, 64)]
    old = side([row for cell in first for row in visits(cell, 100.0, 101.0, 99.0)])
    alone = only(compared(side(visits(first[0], 100.0, 101.0, 99.0)), side(visits(first[0], 103.0, 104.0, 102.5))))
    new = side([row for cell in first for row in visits(cell, 103.0, 104.0, 102.5)])
    assert compared(old, new)["p_holm"].to_list() == pytest.approx([3 * alone["p_holm"]] * 3)


def test_a_cell_of_one_run_only_names_what_differs_in_the_nearest():
    old = side(visits(made_cell(2, 64), 100.0) + visits(made_cell(4, 64), 200.0))
    new = side(visits(made_cell(2, 64, precision="fp32"), 50.0) + visits(made_cell(8, 64), 400.0))
    verdicts = dict(compared(old, new).select("gpus", "verdict").filter(pl.col("gpus") != 2).iter_rows())
    assert verdicts == {
        4: "not comparable: only in A; B has no cell like it",
        8: "not comparable: only in B; A has no cell like it",
    }
    two = compared(old, new).filter(pl.col("gpus") == 2)["verdict"].to_list()
    assert "not comparable: only in A; the nearest in B differs in workload.precision (bf16, fp32)" in two
    assert "not comparable: only in B; the nearest in A differs in workload.precision (fp32, bf16)" in two


def test_what_failed_in_one_run_says_how():
    failed = [made_row(made_cell(2, 64), None, outcome="oom")]
    row = only(compared(side(visits(made_cell(2, 64), 100.0)), side(failed)))
    assert row["verdict"] == "not comparable: no counted trial in B (oom)"
    assert row["ratio"] is None


@pytest.mark.parametrize(
    ("columns", "why"),
    [({"device": "cpu"}, "measured on cuda in A, on cpu in B"), ({"work_unit": "token"}, "counted in image in A")],
)
def test_unlike_measures_are_not_compared(columns, why):
    row = only(compared(side(visits(made_cell(2, 64), 1.0)), side(visits(made_cell(2, 64), 1.0, **columns))))
    assert row["verdict"].startswith(f"not comparable: {why}")
    assert row["ratio"] is None


def test_bandwidths_are_compared_by_collective_and_size():
    def bandwidth(rows, *values):
        names = {"operation": "all_reduce", "size_bytes": 2**20, "attempt": 1}
        return [
            names | {"trial_id": row["trial_id"], "busbw_gb_s": value} for row, value in zip(rows, values, strict=True)
        ]

    old, new = (visits(made_cell(2, 64), None, None) for _ in range(2))
    row = only(compared(side(old, bandwidth(old, 20.0, 20.1)), side(new, bandwidth(new, 22.0, 22.1))))
    assert (row["quantity"], row["unit"]) == ("bus bandwidth, all-reduce 1 MiB", "GB/s")
    assert row["ratio"] == pytest.approx(1.1, rel=1e-3)


def test_nothing_against_nothing():
    assert compared(side([]), side([])).height == 0
    table = compared(side([]), side(visits(made_cell(2, 64), 100.0)))
    assert only(table)["verdict"] == "not comparable: only in B; A has no cell like it"
    empty = Comparison(
        run_a="a",
        run_b="b",
        cells=table,
        differences=pl.DataFrame(schema=DIFFERENCES),
        signals=pl.DataFrame(schema=SANITY),
    )
    assert empty.sentence() == "b against a: nothing could be compared."
