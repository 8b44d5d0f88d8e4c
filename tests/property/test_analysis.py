"""Whatever the rows: the base has efficiency 1, and neither order nor repetition of rows changes a conclusion."""

import math
import random
import sys
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "analysis"))
from made_trials import all_frames, assert_sound, collectives_frame, made_cell, made_row, trials_frame

from rtxscale.analysis.conclude import conclude_tables
from rtxscale.results.schema import TABLES

AXES = {"gpus": [1, 2, 4], "nccl.algorithm": ["auto", "ring"], "workload.precision": ["bf16", "fp32"]}
CELLS = [
    made_cell(gpus, batch, precision=precision, **({"algorithm": algorithm} if gpus > 1 else {}))
    for gpus in (1, 2, 4)
    for batch in (32, 64)
    for precision in ("bf16", "fp32")
    for algorithm in (("auto", "ring") if gpus > 1 else ("auto",))
]
NUMBERS = st.one_of(st.floats(0.1, 1e6), st.sampled_from([None, float("nan"), float("inf"), 0.0, -1.0]))


@st.composite
def rows(draw):
    study = draw(st.sampled_from(["weak", "strong", "both"]))
    made = {}
    for _ in range(draw(st.integers(0, 25))):
        cell = draw(st.sampled_from(CELLS))
        visit, repeat = draw(st.integers(1, 3)), draw(st.integers(1, 2))
        slot = draw(st.integers(0, 1)) if cell.gpus == 1 else 0
        attempt = draw(st.integers(1, 2))
        outcome = draw(st.sampled_from(["ok", "ok", "ok", "oom", "hang"]))
        row = made_row(cell, draw(NUMBERS), visit=visit, repeat=repeat, slot=slot, study=study, outcome=outcome)
        if draw(st.integers(0, 3)) == 0:
            row |= {"stage": "sentinel", "trial_id": f"s{row['trial_id'][1:]}", "started_ns": draw(st.integers(0, 9))}
        made[row["trial_id"], attempt] = row | {"attempt": attempt}
    return list(made.values())


def made_collective(row):
    return {
        **{name: row[name] for name in ("trial_id", "attempt")},
        **{"operation": "all_reduce", "size_bytes": 2**20, "dtype": "fp32", "data_ok": True},
        **{"time_mean_s": 1e-4, "time_p50_s": 1e-4, "algbw_gb_s": 10.0, "busbw_gb_s": 10.0},
    }


def concluded(trials):
    return conclude_tables(trials_frame(trials), collectives_frame(), axes=AXES)


@given(rows())
@settings(max_examples=40, deadline=None)
def test_conclusions_are_sound_and_every_base_has_efficiency_one(trials):
    conclusions = concluded(trials)
    assert_sound(conclusions)
    table = conclusions.efficiency
    bases = table.filter(pl.col("cell_id") == pl.col("base_cell_id"))
    assert bases["efficiency"].to_list() == [1.0] * bases.height
    assert bases["extra_gpu"].null_count() == bases.height
    series = ["curve", "series", "base_cell_id"]
    assert bases.unique(series).height == table.unique(series).height
    scaled = table["speedup"] * table["base_gpus"] / table["gpus"]
    assert table["efficiency"].to_list() == pytest.approx(scaled.to_list())


@given(rows(), st.data())
@settings(max_examples=60, deadline=None)
def test_whatever_numbers_stand_in_the_tables_conclusions_are_sound(trials, data):
    """Numbers of a measured machine can be anything: a card that reports nonsense, a meter that breaks."""
    odd = st.sampled_from([None, math.nan, math.inf, -math.inf, 0.0, -1.0, 1e308, -1e308, 1e-320, 1.0])
    collectives = [made_collective(row) for row in trials]
    for table, kept in (("trials", trials), ("collectives", collectives)):
        names = [column.name for column in TABLES[table] if column.kind == "float"]
        for name in data.draw(st.lists(st.sampled_from(names), max_size=4)):
            for row in kept:
                row[name] = data.draw(odd)
    conclusions = conclude_tables(trials_frame(trials), collectives_frame(collectives), axes=AXES)
    assert_sound(conclusions)


@given(rows())
@settings(max_examples=30, deadline=None)
def test_no_cell_is_called_best_that_lost_to_the_default(trials):
    best = concluded(trials).best.filter(pl.col("gain").is_not_null())
    assert all(gain > -1e-9 for gain in best["gain"])


@given(rows(), st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_order_and_repetition_of_rows_change_nothing(trials, chance: random.Random):
    mixed = trials + [row for row in trials if chance.random() < 0.5]
    chance.shuffle(mixed)
    before, after = concluded(trials), concluded(mixed)
    assert before.headline == after.headline
    assert before.remarks == after.remarks
    for name, frame in all_frames(before).items():
        assert_frame_equal(frame, all_frames(after)[name])
