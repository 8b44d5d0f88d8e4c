"""Time to target: the median with runs that did not arrive, against a simulation that waits for all of them."""

import math
import statistics

import numpy as np
import polars as pl
import pytest

from rtxscale.analysis.targets import censored_median, target_remarks, target_table
from rtxscale.results.schema import table

LABELS = pl.DataFrame({"cell_id": ["a", "b"], "label": ["gpus 1", "gpus 2"]})


def trials(*rows):
    """(cell, reached, seconds) each."""
    made = [
        {
            "trial_id": f"t{place}",
            "cell_id": cell,
            "gpus": 1 if cell == "a" else 2,
            "global_batch": 64,
            "work_unit": "image",
            "target_reached": reached,
            "target_s": seconds,
            "target_steps": round(10 * seconds),
            "target_work": 640.0 * seconds,
        }
        for place, (cell, reached, seconds) in enumerate(rows)
    ]
    return pl.from_arrow(table("trials", [*made, {"trial_id": "without", "cell_id": "a"}]))


def test_a_run_that_was_stopped_counts_as_longer_than_all_that_arrived():
    (row,) = target_table(trials(("a", True, 3.0), ("a", False, 1.0), ("a", True, 5.0)), LABELS).to_dicts()
    assert (row["runs"], row["reached"], row["label"]) == (3, 2, "gpus 1")
    assert (row["median_s"], row["median_steps"], row["median_work"]) == (5.0, 50, 3200.0)
    assert row["not_reached_s"] == 1.0


def test_with_half_of_them_stopped_there_is_no_median():
    (row,) = target_table(trials(("a", True, 3.0), ("a", False, 9.0)), LABELS).to_dicts()
    assert row["median_s"] is None
    (said,) = target_remarks(target_table(trials(("b", False, 9.0), ("b", False, 9.5)), LABELS))
    assert said == "target, gpus 2: reached in 0 of 2 runs; not reached within 9 s"


def test_cells_are_told_one_by_one_and_trials_without_a_target_not_at_all():
    found = target_table(trials(("b", True, 2.0), ("a", True, 3.0), ("a", True, 5.0)), LABELS)
    assert target_remarks(found) == (
        "target, gpus 1: reached in 2 of 2 runs, median 4 s and 2,560 images",
        "target, gpus 2: reached in 1 of 1 runs, median 2 s and 1,280 images",
    )
    assert target_table(trials(), LABELS).is_empty()


@pytest.mark.parametrize("seed", range(20))
def test_where_a_median_is_given_it_is_the_one_of_runs_that_were_all_waited_for(seed):
    chance = np.random.default_rng(seed)
    times = chance.exponential(10.0, size=chance.integers(1, 15)).tolist()
    limit = float(chance.uniform(1.0, 30.0))
    runs = pl.DataFrame(
        {"target_reached": [time <= limit for time in times], "target_s": [min(time, limit) for time in times]}
    )
    found = censored_median(runs, "target_s")
    if found is None:
        assert 2 * sum(time <= limit for time in times) <= len(times)
    else:
        assert found == pytest.approx(statistics.median(times))


def test_a_run_without_its_time_says_nothing_and_one_without_its_work_says_its_time():
    for told in (None, math.nan, math.inf):
        silent = trials(("a", True, 3.0), ("b", False, 4.0)).with_columns(target_s=pl.lit(told, pl.Float64))
        assert target_table(silent, LABELS).is_empty()
    known = trials(("a", True, 3.0)).with_columns(target_work=pl.lit(None, pl.Float64))
    assert target_remarks(target_table(known, LABELS)) == ("target, gpus 1: reached in 1 of 1 runs, median 3 s",)
