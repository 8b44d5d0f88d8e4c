"""Trials that end in every way a trial can, on a cluster that runs already and must be left as it was."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import command_of, processes_of, wait_for
from tiny import sweep_file, trials_of

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
SCRIPT = Path(__file__).with_name("planted_faults.py")


ARMS = "[segv, well, nan, refuted, visited, held, unsteady, oom, stuck]"
"""In this order the nine trials and their retries need six sessions."""


def run_with(head, mode, sweep, results, *faults):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), mode, str(sweep), str(results), head.address, *faults],
        env=head.environment | {"RAY_ADDRESS": head.address},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["finished"] == summary["total"], done.stderr
    return summary, trials_of(Path(summary["run_dir"])), done.stderr


def ranks_left(head):
    commands = [command_of(pid) for pid in processes_of(head.home)]
    return [one for one in commands if "RayTrainWorker" in one or "rtxscale.rank" in one]


def arm_of(row):
    return json.loads(row["axes_json"])["planted.arm"]


@pytest.fixture(scope="module")
def campaign(head, tmp_path_factory):
    """Every way a trial can end, one after the other: attempts by arm in the order they ran, and what was said."""
    directory = tmp_path_factory.mktemp("faults")
    sweep = sweep_file(directory, "faulty", gpus="[2]", buckets="[25]", warmup_max_s=8)
    sweep.write_text(sweep.read_text().replace("ddp.bucket_mib: [25]", f"planted.arm: {ARMS}"))
    _, trials, said = run_with(head, "arms", sweep, directory / "results")
    attempts = {}
    for row in trials:
        attempts.setdefault(arm_of(row), []).append(row)
    return attempts, trials, said


@pytest.mark.parametrize(
    ("arm", "outcomes", "message"),
    [
        ("well", ["ok"], ""),
        ("segv", ["crashed", "ok"], "rank 1: its process died (killed, out of host memory, or a fault in native code)"),
        ("stuck", ["hang", "ok"], "ranks 0, 1 silent for "),
        ("nan", ["diverged"], "ranks 0, 1: loss is not finite after "),
        ("refuted", ["not_honoured"], "rank 0: nccl.channels: asked for 64, found 2 (planted)"),
        (
            "oom",
            ["crashed", "oom"],
            "out of memory in a used process, to be confirmed in a fresh one: rank 1: MemoryError",
        ),
        ("unsteady", ["unsteady", "unsteady"], "rank 0: not steady after "),
        (
            "visited",
            ["foreign_process", "ok"],
            "GPU-planted on node0 is held by game (pid 4242, 3,000 MiB); the trial itself: ok",
        ),
        ("held", ["foreign_process", "ok"], "not begun: GPU-planted on node0 is held by game (pid 4242, 3,000 MiB)"),
    ],
)
def test_each_fault_ends_its_own_trial_as_it_should(campaign, arm, outcomes, message):
    attempts, _, said = campaign
    rows = attempts[arm]
    assert [(row["attempt"], row["outcome"]) for row in rows] == list(enumerate(outcomes, 1)), said
    assert rows[0]["message"].startswith(message)
    assert rows[0]["message"].count(message) == 1 or not message
    assert (rows[-1]["throughput_per_s"] or 0) > 0 or outcomes[-1] != "ok"


def test_a_confirmed_lack_of_memory_says_what_to_try(campaign):
    confirmed = campaign[0]["oom"][-1]
    assert confirmed["position"] == 0
    assert (
        confirmed["message"]
        == "rank 1: MemoryError; not known what would fit; try batch_per_gpu 1: activations scale with it"
    )


def test_a_broken_session_serves_nobody_else_and_an_unbroken_one_goes_on(campaign):
    attempts, trials, _ = campaign
    sessions = [row["session_id"] for row in trials]
    for arm in ("segv", "oom", "stuck"):
        broken = attempts[arm][0]
        assert broken["session_id"] not in sessions[trials.index(broken) + 1 :]
    kept = {attempts[arm][0]["session_id"] for arm in ("well", "nan", "refuted", "visited", "unsteady", "oom")}
    assert len(kept) == 1
    assert len(set(sessions) - {None}) == 6


def test_a_trial_that_was_not_begun_has_no_session(campaign):
    row = campaign[0]["held"][0]
    assert (row["session_id"], row["position"], row["nodes"], row["window_s"]) == (None, None, None, None)
    assert "waiting up to 1 s for GPUs that others use: GPU-planted on node0 is held by game" in campaign[2]


def test_a_hang_is_found_out_sooner_once_such_a_trial_has_ended_well(campaign):
    stuck, longest = campaign[0]["stuck"][0], max(row["wall_s"] for row in campaign[1] if row["outcome"] == "ok")
    # A fifth of the floor of 20 s or three times the longest, and the 8.3 s that the measure allows; else 44.9 s.
    assert stuck["wall_s"] < min(max(4.0, 3 * longest) + 8.3, 44.9) + 3.0


def test_no_process_is_left(campaign, head):
    wait_for(lambda: not ranks_left(head), 10, "the ranks to be gone")


def test_torchrun_starts_the_ranks_each_trial_alone_and_a_dead_rank_is_retried(head, tmp_path):
    sweep = sweep_file(
        tmp_path, "launched", gpus="[2]", buckets="[auto]", launcher="torchrun", isolation="process", window_s=3
    )
    summary, trials, _ = run_with(head, "torchrun", sweep, tmp_path / "results", "kill", "none")
    assert {(row["launcher"], row["isolation"]) for row in trials} == {("torchrun", "process")}
    assert sorted(row["outcome"] for row in trials) == ["crashed"] + ["ok"] * summary["total"]
    (crashed,) = [row for row in trials if row["outcome"] == "crashed"]
    assert "its process died (exit code -9)" in crashed["message"]
    assert all(row["throughput_per_s"] > 0 for row in trials if row["outcome"] == "ok")
    assert len({row["session_id"] for row in trials}) == len(trials)
    wait_for(lambda: not ranks_left(head), 10, "the ranks to be gone")
