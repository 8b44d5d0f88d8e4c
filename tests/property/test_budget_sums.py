"""Whatever the step times: the parts of a loss budget add up to what the step lost, and no number is broken."""

import sys
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "analysis"))
from made_steps import budget_cell, step_rows, steps_frame
from made_trials import assert_sound, collectives_frame, made_row, trials_frame

from rtxscale.analysis.conclude import conclude_tables

AXES = {"gpus": [1, 2, 4]}
LOSSES = ("smaller local batch", "compute", "stragglers", "synchronisation", "input")
SECONDS = st.floats(1e-6, 10.0)
BATCHES = (16, 32, 64)


@st.composite
def tables(draw):
    trials, steps = [], []
    for visit in range(1, draw(st.integers(1, 3)) + 1):
        for batch in draw(st.sets(st.sampled_from(BATCHES))):
            for slot in range(draw(st.integers(1, 2))):
                trials.append(_trial(budget_cell(1, batch), draw(SECONDS), visit=visit, slot=slot))
        for gpus in (2, 4):
            for batch in (16, 32):
                trial = _trial(budget_cell(gpus, batch), draw(SECONDS), visit=visit)
                trials.append(trial)
                ranks = draw(st.sampled_from([0, 1, gpus, gpus]))
                row = st.lists(SECONDS, min_size=3, max_size=3)
                steps += step_rows(trial, [draw(row) for _ in range(ranks)])
    return trials, steps


def _trial(cell, step_s, **columns):
    return made_row(cell, cell.workload.global_batch / step_s, study="both", step_time_mean_s=step_s, **columns)


@given(tables())
@settings(max_examples=40, deadline=None)
def test_the_parts_sum_to_the_loss(made):
    trials, steps = made
    conclusions = conclude_tables(trials_frame(trials), collectives_frame(), axes=AXES, steps=steps_frame(steps))
    assert_sound(conclusions)
    for _, rows in conclusions.budget.group_by("curve", "cell_id"):
        found = dict(rows.select("part", "seconds_per_step").iter_rows())
        lost = found["measured step"] - found["ideal step"]
        known = [found[part] for part in LOSSES if found.get(part) is not None]
        if found["synchronisation"] is not None:
            assert sum(known) == pytest.approx(lost, rel=1e-9, abs=1e-9)
        assert found["input"] is None
        assert sum(rows.filter(pl.col("part").is_in(["stragglers"]))["seconds_per_step"].drop_nulls()) >= -1e-12
