"""Interactions of knobs are double differences of log throughput, paired like effects."""

import math

import numpy as np
import polars as pl
import pytest
from made_trials import assert_sound, collectives_frame, made_cell, made_row, trials_frame, visits

from rtxscale.analysis.conclude import conclude_tables
from rtxscale.stats.compare import holm, paired_ratio

AXES = {
    "gpus": [1, 2],
    "nccl.algorithm": ["auto", "tree"],
    "nccl.channels": ["auto", 8],
    "nccl.p2p": ["auto", "disabled"],
}


def concluded(rows, axes=AXES):
    conclusions = conclude_tables(trials_frame(rows), collectives_frame(), axes=axes)
    assert_sound(conclusions)
    return conclusions


def square(both, tree=1.0, eight=1.0, sessions=(100.0, 140.0, 75.0), noise=(0.0, 0.001, -0.001)):
    """Four cells whose throughput is a session's level times their factors."""
    rows = []
    cells = {(): 1.0, ("tree",): tree, ("eight",): eight, ("tree", "eight"): tree * eight * both}
    for names, factor in cells.items():
        knobs = ({"algorithm": "tree"} if "tree" in names else {}) | ({"channels": 8} if "eight" in names else {})
        values = [level * factor * math.exp(step * len(names)) for level, step in zip(sessions, noise, strict=True)]
        rows += visits(made_cell(2, 64, **knobs), *values)
    return rows


def only(conclusions):
    assert conclusions.interactions.height == 1
    return conclusions.interactions.row(0, named=True)


def test_a_planted_interaction_is_found_with_the_interval_of_its_double_differences():
    noise = (0.0, 0.004, -0.003)
    rows = square(1.03, tree=0.9, eight=1.2, noise=noise)
    row = only(concluded(rows))
    table = {(r["cell_id"], r["visit"]): math.log(r["throughput_per_s"]) for r in rows}
    ids = [
        made_cell(2, 64, **knobs).cell_id
        for knobs in ({"algorithm": "tree", "channels": 8}, {"algorithm": "tree"}, {"channels": 8}, {})
    ]
    doubles = [table[ids[0], v] - table[ids[1], v] - table[ids[2], v] + table[ids[3], v] for v in (1, 2, 3)]
    right = paired_ratio(np.exp(doubles), np.ones(3))
    assert (row["ratio"], row["ratio_low"], row["ratio_high"]) == pytest.approx(
        tuple(float(value) for value in (right.ratio, right.low, right.high))
    )
    assert (row["axis"], row["value"], row["reference"]) == ("nccl.algorithm", "tree", "auto")
    assert (row["other_axis"], row["other_value"], row["other_reference"]) == ("nccl.channels", "8", "auto")
    assert (row["quads"], row["quads_left_out"], row["sessions"], row["gpus"]) == (1, 0, 3, 2)


@pytest.mark.parametrize(
    ("both", "verdict"), [(1.05, "together more than apart"), (0.9, "together less than apart"), (1.0, "not separable")]
)
def test_verdicts(both, verdict):
    noise = (0.0, 0.01, -0.02) if both == 1.0 else (0.0, 0.0001, -0.0001)
    rows = square(both, tree=0.8, eight=1.3, noise=noise)
    for place, row in enumerate(rows):
        row["throughput_per_s"] *= 1 + 1e-4 * (place % 5)
    assert only(concluded(rows))["verdict"] == verdict


def test_one_visit_needs_more():
    assert only(concluded(square(1.05, sessions=(100.0,), noise=(0.0,))))["verdict"] == "needs >= 2 visits"


def test_without_the_fourth_cell_there_is_no_interaction():
    rows = [row for row in square(1.05) if row["cell_id"] != made_cell(2, 64, algorithm="tree").cell_id]
    assert concluded(rows).interactions.height == 0


def test_settings_that_need_another_session_are_paired_by_visit():
    rows = []
    for p2p, factor in (("auto", 1.0), ("disabled", 0.8)):
        for channels, gain in (("auto", 1.0), (8, 1.1 if p2p == "auto" else 1.0)):
            cell = made_cell(2, 64, p2p=p2p, channels=channels)
            rows += visits(cell, *(100.0 * factor * gain * level for level in (1.0, 1.01)))
    row = only(concluded(rows))
    assert row["ratio"] == pytest.approx(1 / 1.1)
    assert row["sessions"] == 2


def test_other_axes_are_averaged_within_the_visit_and_the_family_is_corrected():
    chance = np.random.default_rng(5)
    rows = []
    for algorithm in ("auto", "tree"):
        for channels in ("auto", 8):
            for p2p in ("auto", "disabled"):
                cell = made_cell(2, 64, algorithm=algorithm, channels=channels, p2p=p2p)
                rows += [
                    made_row(cell, 100 * math.exp(chance.normal(0, 0.01)), visit=visit, session=f"v{visit}")
                    for visit in (1, 2, 3)
                ]
    table = concluded(rows).interactions
    assert table["quads"].to_list() == [2, 2, 2]
    logs = {(r["cell_id"], r["visit"]): math.log(r["throughput_per_s"]) for r in rows}

    def double(axis, other, third):
        values = {"algorithm": "tree", "channels": 8, "p2p": "disabled"}
        means = []
        for visit in (1, 2, 3):
            parts = []
            for extra in ({}, {third: values[third]}):
                corners = [{axis: values[axis], other: values[other]}, {axis: values[axis]}, {other: values[other]}, {}]
                a, b, c, d = (logs[made_cell(2, 64, **{**corner, **extra}).cell_id, visit] for corner in corners)
                parts.append(a - b - c + d)
            means.append(sum(parts) / 2)
        return paired_ratio(np.exp(means), np.ones(3))

    right = [
        double(*names)
        for names in (
            ("algorithm", "channels", "p2p"),
            ("algorithm", "p2p", "channels"),
            ("channels", "p2p", "algorithm"),
        )
    ]
    assert table["ratio"].to_list() == pytest.approx([float(test.ratio) for test in right])
    assert table["p_holm"].to_list() == pytest.approx(holm([float(test.p_value) for test in right]).tolist())
    assert table.filter(pl.col("ratio_low") > pl.col("ratio")).height == 0
