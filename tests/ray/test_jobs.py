"""`ray job submit` for real: token, default results root, last line, and what the dashboard can show meanwhile."""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from conftest import REPOSITORY, clean_environment, wait_for
from tiny import sweep_file, trials_of

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


def get(url, token=None):
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})  # noqa: S310
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - our own head node
        return answer.read().decode()


def test_a_submitted_sweep_writes_to_the_default_root_and_ends_with_its_path(head, tmp_path):
    sweep = sweep_file(tmp_path, "submitted", gpus="[2]", buckets="[25, 1]", window_s=8)
    command = ["ray", "job", "submit", "--address", head.dashboard, "--working-dir", str(REPOSITORY)]
    command += ["--metadata-json", json.dumps({"sweep": "submitted"}), "--submission-id", "submitted-sweep", "--"]
    command += ["python", "-m", "rtxscale", "sweep", str(sweep)]
    with subprocess.Popen(
        command, env=head.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as job:
        token = (head.home / ".ray" / "auth_token").read_text().strip()
        actors = f"{head.dashboard}/api/v0/actors?detail=1"
        for name in ("rtxscale-hub-submitted", "rtxscale-telemetry-submitted"):
            wait_for(lambda wanted=name: wanted in get(actors, token), 120, name)
        gauges = wait_for(lambda: gauge_lines(head) or job.poll() is not None, 60, "the gauges")
        with (tmp_path / "queued.log").open("w") as log:
            queued = start_sweep(head, sweep_file(tmp_path, "queued", gpus="[1]"), tmp_path / "queued", log)
        (state,) = wait_for(lambda: states_of(head), 60, "the state of the sweep")
        output, _ = job.communicate(timeout=400)
    assert job.returncode == 0, output
    lines = [line for line in output.splitlines() if line.strip()]
    paths = [line for line in lines if line.startswith("/")]
    run_dir = Path(paths[-1])
    assert run_dir.parent == head.home / "rtxscale-results"
    assert {row["outcome"] for row in trials_of(run_dir)} == {"ok"}
    assert (run_dir / "report.html").is_file()
    log = json.loads(get(f"{head.dashboard}/api/jobs/submitted-sweep/logs", token))["logs"]
    assert log.splitlines()[-1] == str(run_dir)
    info = json.loads(get(f"{head.dashboard}/api/jobs/submitted-sweep", token))
    assert info["metadata"]["sweep"] == "submitted"
    assert any('sweep="submitted"' in line and 'node="node0"' in line for line in gauges)
    assert state["run"] == run_dir.name
    assert 0 <= state["finished"] < state["total"]
    assert queued.wait(240) == 0, (tmp_path / "queued.log").read_text()
    assert f"waiting for the GPUs: {run_dir.name} is running on this cluster" in (tmp_path / "queued.log").read_text()
    (other,) = (tmp_path / "queued").iterdir()
    assert min(row["started_ns"] for row in trials_of(other)) > max(row["ended_ns"] for row in trials_of(run_dir))
    assert token not in "".join(path.read_text(errors="replace") for path in run_dir.rglob("*") if path.is_file())


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
        command, env=head.environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return [state for state in json.loads(done.stdout) if "total" in state]


def gauge_lines(head):
    """Lines of our gauges from every metrics endpoint of the node; they need no token."""
    found = []
    for target in json.loads((head.home / "ray" / "prom_metrics_service_discovery.json").read_text()):
        for endpoint in target["targets"]:
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
