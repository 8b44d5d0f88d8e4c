"""Workers that die or hang under a trial, on a cluster that runs already and must be left as it was."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import command_of, processes_of, wait_for
from tiny import sweep_file, trials_of

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
SCRIPT = Path(__file__).with_name("planted_faults.py")


def run_with(head, sweep, results, *faults):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(sweep), str(results), head.address, *faults],
        env=head.environment | {"RAY_ADDRESS": head.address},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["finished"] == summary["total"]
    return summary, trials_of(Path(summary["run_dir"]))


def ranks_left(head):
    commands = [command_of(pid) for pid in processes_of(head.home)]
    return [one for one in commands if "RayTrainWorker" in one or "rtxscale.rank" in one]


def test_a_killed_and_a_hung_rank_cost_one_attempt_each(head, tmp_path):
    sweep = sweep_file(tmp_path, "faulty", gpus="[2]", buckets="[25]", window_s=3)
    summary, trials = run_with(head, sweep, tmp_path / "results", "kill", "stop")
    history = [(row["attempt"], row["outcome"]) for row in trials]
    assert history[:2] == [(1, "crashed"), (1, "hang")]
    assert sorted(history[2:]) == [(1, "ok")] * (summary["total"] - 2) + [(2, "ok")] * 2
    crashed, hung = trials[:2]
    assert crashed["message"].startswith("rank 1: its process died")
    assert "silent for" in hung["message"]
    assert len({row["session_id"] for row in trials[:3]}) == 3
    wait_for(lambda: not ranks_left(head), 10, "the ranks to be gone")


def test_torchrun_starts_the_ranks_each_trial_alone_and_a_dead_rank_is_retried(head, tmp_path):
    sweep = sweep_file(
        tmp_path, "launched", gpus="[2]", buckets="[1]", launcher="torchrun", isolation="process", window_s=3
    )
    summary, trials = run_with(head, sweep, tmp_path / "results", "none", "kill")
    assert {(row["launcher"], row["isolation"]) for row in trials} == {("torchrun", "process")}
    assert sorted(row["outcome"] for row in trials) == ["crashed"] + ["ok"] * summary["total"]
    (crashed,) = [row for row in trials if row["outcome"] == "crashed"]
    assert "its process died (exit code -9)" in crashed["message"]
    assert all(row["throughput_per_s"] > 0 for row in trials if row["outcome"] == "ok")
    assert len({row["session_id"] for row in trials}) == len(trials)
    wait_for(lambda: not ranks_left(head), 10, "the ranks to be gone")
