"""From a run on disk to its conclusions."""

from pathlib import Path

import polars as pl
import pytest
from made_trials import assert_sound, made_cell, visits

from rtxscale.analysis.conclude import conclude
from rtxscale.results.read import Run
from rtxscale.results.schema import table
from rtxscale.results.write import RunWriter
from rtxscale.spec.sweep import Sweep

GOLDEN = Path(__file__).parents[2] / "golden" / "results_schema_1" / "quickstart-0a1b2c3d4e5f-01"


@pytest.fixture
def sweep():
    return Sweep.model_validate(
        {
            "name": "small",
            "question": "Does it scale?",
            "study": "weak",
            "workload": {"kind": "vision", "batch_per_gpu": 64},
            "axes": {"gpus": [1, 2], "nccl.algorithm": ["ring", "auto"]},
        }
    )


def test_a_run_on_disk_is_concluded_and_compaction_changes_nothing(tmp_path, sweep):
    rows = visits(made_cell(1, 64), 100.0, 101.0, session="s1") + visits(made_cell(2, 64), 190.0, 191.0, session="s2")
    rows += visits(made_cell(2, 64, algorithm="ring"), 195.0, 196.0, session="s2")
    rows[0]["flags"], rows[1]["flags"] = ["throttled", "host_bound"], ["host_bound"]
    with RunWriter.open(tmp_path, sweep, "name: small\n") as writer:
        for row in rows:
            writer.commit({"trials": table("trials", [row])})
        before = conclude(Run.open(writer.run_dir))
        writer.compact("s1")
        writer.compact("s2")
        after = conclude(Run.open(writer.run_dir))
    assert_sound(before)
    assert before.headline == after.headline
    assert before.efficiency.equals(after.efficiency)
    assert before.cells.equals(after.cells)
    assert before.cells.filter(pl.col("gpus") == 1)["flags"].to_list() == ["host_bound, throttled"]
    said = "host_bound on 2 (the GPUs waited for their host), throttled on 1 ("
    assert any(said in remark for remark in before.remarks)
    assert before.effects.select("axis", "value", "reference").rows() == [("nccl.algorithm", "ring", "auto")]


def test_a_run_that_has_only_begun_is_concluded(tmp_path, sweep):
    with RunWriter.open(tmp_path, sweep, "name: small\n") as writer:
        conclusions = conclude(Run.open(writer.run_dir))
    assert_sound(conclusions)
    assert conclusions.headline == "Nothing has been measured yet; run the sweep."


def test_a_run_of_an_older_rtxscale_is_concluded():
    conclusions = conclude(Run.open(GOLDEN))
    assert_sound(conclusions)
    assert conclusions.outcomes.select("outcome", "trials").rows() == [("ok", 2)]
