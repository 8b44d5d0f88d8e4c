"""`ray job submit` for real: token, default results root, last line, and what the dashboard can show meanwhile."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from contextlib import suppress

import pytest
from conftest import REPOSITORY, START_S, another_node, clean_environment, command_of, processes_of, wait_for
from tiny import rows_of, sweep_file, trials_of

pytestmark = [pytest.mark.ray, pytest.mark.timeout(1200)]


def get(url, token=None):
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})  # noqa: S310
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - our own head node
        return answer.read().decode()


def submit(head, sweep, name):
    """Submit the sweep as a job of this id; the client's process, which follows the job's log."""
    command = ["ray", "job", "submit", "--address", head.dashboard, "--working-dir", str(REPOSITORY)]
    command += ["--metadata-json", json.dumps({"sweep": "submitted"}), "--submission-id", name, "--"]
    command += ["python", "-m", "rtxscale", "sweep", str(sweep)]
    return subprocess.Popen(command, env=head.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_submitted_sweep_on_two_nodes_is_watched_stopped_and_resumed(head, tmp_path):
    sweep = sweep_file(tmp_path, "submitted", gpus="[3]", buckets="[25, 1]", window_s=6)
    token = (head.home / ".ray" / "auth_token").read_text().strip()
    with another_node(head):
        with submit(head, sweep, "first-job") as job:
            actors = f"{head.dashboard}/api/v0/actors?detail=1"
            for name in ("rtxscale-hub-submitted", "rtxscale-telemetry-submitted"):
                wait_for(lambda wanted=name: wanted in get(actors, token), START_S, name)
            wait_for(lambda: gauges_of_the_sweep(head), START_S, "the gauges")
            with (tmp_path / "queued.log").open("w") as log:
                queued = start_sweep(head, sweep_file(tmp_path, "queued", gpus="[1]"), tmp_path / "queued", log)
            (state,) = wait_for(lambda: states_of(head), START_S, "the state of the sweep")
            kill_telemetry(head)
            wait_for(lambda: finished_some(head), START_S, "the first trial")
            subprocess.run(
                ["ray", "job", "stop", "--address", head.dashboard, "first-job"],
                env=head.environment,
                check=True,
                capture_output=True,
            )
            job.communicate(timeout=START_S)
        assert json.loads(get(f"{head.dashboard}/api/jobs/first-job", token))["status"] == "STOPPED"
        (run_dir,) = (head.home / "rtxscale-results").glob("submitted-*")
        before = trials_of(run_dir)
        assert 0 < [row["outcome"] for row in before].count("ok") < state["total"] == 3
        assert queued.wait(START_S) == 0, (tmp_path / "queued.log").read_text()
        with submit(head, sweep, "second-job") as job:
            output, _ = job.communicate(timeout=400)
    assert job.returncode == 0, output
    after = trials_of(run_dir)
    assert [row["trial_id"] for row in after][: len(before)] == [row["trial_id"] for row in before]
    measured = [row for row in after if row["outcome"] == "ok"]
    assert len({row["trial_id"] for row in measured}) == len(measured) == 3
    assert {row["nodes"] for row in measured} == {2}
    assert [line for line in output.splitlines() if line.startswith("/")][-1] == str(run_dir)
    assert (run_dir / "report.html").is_file()
    log = json.loads(get(f"{head.dashboard}/api/jobs/second-job/logs", token))["logs"]
    assert log.splitlines()[-1] == str(run_dir)
    info = json.loads(get(f"{head.dashboard}/api/jobs/second-job", token))
    assert info["metadata"]["sweep"] == "submitted"
    assert state["run"] == run_dir.name
    assert f"waiting for the GPUs: {run_dir.name} is running on this cluster" in (tmp_path / "queued.log").read_text()
    (other,) = (tmp_path / "queued").iterdir()
    assert min(row["started_ns"] for row in trials_of(other)) > max(row["ended_ns"] for row in before)
    assert token not in "".join(path.read_text(errors="replace") for path in run_dir.rglob("*") if path.is_file())
    assert telemetry_gaps(run_dir) == 1, "the actor was killed once, and its gap stands in the results"


def finished_some(head):
    """What `rtxscale status` says once a trial has ended."""
    return [state for state in states_of(head) if state["finished"]]


def kill_telemetry(head):
    pids = [pid for pid in processes_of(head.home) if "ray::Watcher" in command_of(pid)]
    os.kill(pids[0], signal.SIGKILL)


def telemetry_gaps(run_dir):
    lines = [row["line"] or "" for row in rows_of(run_dir, "logs")]
    return sum("was lost and started again" in line for line in lines)


def start_sweep(head, sweep, results, log):
    """A second sweep on the same cluster."""
    command = [sys.executable, "-m", "rtxscale", "sweep", str(sweep), "--address", head.address, "--no-report"]
    return subprocess.Popen(
        [*command, "--results", str(results)], env=head.environment, cwd=REPOSITORY, stdout=log, stderr=log
    )


def states_of(head):
    """What `rtxscale status` says of the cluster, once the sweep has planned."""
    command = [sys.executable, "-m", "rtxscale", "status", "--address", head.address, "--json"]
    done = subprocess.run(
        command, env=head.environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=START_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return [state for state in json.loads(done.stdout) if "total" in state]


def gauges_of_the_sweep(head):
    """Those that are tagged with it and with the head's name in it."""
    return [line for line in gauge_lines(head) if 'sweep="submitted"' in line and 'node="node0"' in line]


def gauge_lines(head):
    """Lines of our gauges from every metrics endpoint of the node; they need no token."""
    found = []
    for target in json.loads((head.home / "ray" / "prom_metrics_service_discovery.json").read_text()):
        for endpoint in target["targets"]:
            with suppress(OSError):  # of a node that is only starting
                text = get(f"http://{endpoint}/metrics")
                found += [line for line in text.splitlines() if line.startswith("ray_rtxscale_utilisation_ratio{")]
    return found


def test_without_the_clusters_token_a_sweep_ends_at_once(head, tmp_path):
    (tmp_path / "t").mkdir()
    command = [sys.executable, "-m", "rtxscale", "sweep", str(sweep_file(tmp_path, "refused"))]
    done = subprocess.run(
        [*command, "--address", head.address, "--results", str(tmp_path / "results")],
        env=clean_environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert "asks for a token, and no token here" in done.stderr
    assert not (tmp_path / "results").exists()
