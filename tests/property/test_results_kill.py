"""A writer killed between any two disk operations loses no finished trial and leaves none half visible or doubled."""

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from rtxscale.results.read import Run
from rtxscale.results.write import RunWriter

sys.path.insert(0, str(Path(__file__).parent))
import killed_writer

ROWS = {"trials": 1, "steps": 2}


@pytest.fixture(scope="module")
def wrecks(tmp_path_factory):
    root = tmp_path_factory.mktemp("kill")
    program = [sys.executable, killed_writer.__file__, str(root)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return tuple(map(int, done.stdout.split())), sorted(path for path in root.iterdir() if path.name != "whole")


def visible(runs):
    """Trial id -> rows of each table, over all runs of the root."""
    found = {}
    for run_dir in runs.glob("killed-*"):
        run = Run.open(run_dir)
        run.verify()
        for name in ROWS:
            for trial_id, count in run.frame(name).group_by("trial_id").agg(pl.len()).collect().iter_rows():
                found.setdefault(trial_id, {})[name] = found.get(trial_id, {}).get(name, 0) + count
    return found


def test_there_are_many_points_to_be_killed_at(wrecks):
    (points, kills), roots = wrecks
    assert points >= 60
    assert kills >= 200
    assert len(roots) > points


def test_what_was_acknowledged_is_there_and_everything_there_is_whole(wrecks):
    for root in wrecks[1]:
        found = visible(root / "runs")
        assert set((root / "acked").read_text()) <= set(found), root
        assert all(counts == ROWS for counts in found.values()), root


def test_the_next_writer_finishes_the_run_and_leaves_no_litter(wrecks, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    for root in wrecks[1]:
        killed_writer.finish(root / "runs")
        found = visible(root / "runs")
        assert found == {trial_id: ROWS for trial_id, _ in killed_writer.TRIALS}, root
        (run_dir,) = (root / "runs").glob("killed-*")
        assert {path.name for path in run_dir.iterdir()} == {"run.json", "sweep.yaml", "lock", "parts", "commits"}
        assert len(list((run_dir / "parts").iterdir())) == 2 * len(ROWS), root
        assert len(list((run_dir / "commits").iterdir())) == 2, root
        with RunWriter.open(root / "runs", killed_writer.SWEEP, killed_writer.TEXT) as writer:
            assert writer.attempts() == {trial_id: ["ok"] for trial_id, _ in killed_writer.TRIALS}
