"""The self-test on a real session: a planted delay goes through sweep, rows and verdict, and explain tells of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY
from tiny import rows_of, trials_of

DELAY_MS = 80
CHECK = f"""\
name: selftest-tiny
question: Is a planted delay found?
study: weak
workload: {{kind: vision, model: resnet18, image_size: 32, classes: 10, precision: fp32, batch_per_gpu: 2}}
axes:
  planted.delay_ms: [0, {DELAY_MS}]
visits: 1
order: as_written
sentinels: off
measure: {{warmup_min_s: 0.1, warmup_max_s: 20, window_s: 0.3, min_steps: 3, tolerance: 10}}
hardware: {{device: cpu}}
"""
WITH_OTHER_CHECKS = """\
import sys
from pathlib import Path
from rtxscale.cli import selftest_sweeps
selftest_sweeps.CHECKS_DIRECTORY = Path(sys.argv.pop(1))
from rtxscale.cli.main import main
main()
"""
pytestmark = pytest.mark.ray


def test_a_planted_delay_is_found_by_the_command(head, tmp_path):
    (tmp_path / "sessions-cpu.yaml").write_text(CHECK)
    results = tmp_path / "results"
    command = [sys.executable, "-c", WITH_OTHER_CHECKS, str(tmp_path)]
    options = ["--check", "planted", "--address", head.address, "--results", str(results), "--json"]

    def run(*words):
        arguments = [*command, *words]
        return subprocess.run(arguments, env=head.environment, cwd=REPOSITORY, capture_output=True, text=True)

    done = run("selftest", *options)
    assert done.returncode == 0, done.stderr
    (check,) = json.loads(done.stdout)["checks"]
    (found,) = check["rows"]
    assert (check["verdict"], found["planted_ms"], found["visits"]) == ("inconclusive", DELAY_MS, 1), "one visit"
    assert Path(done.stderr.splitlines()[-1]).name == "selftest.json"

    (run_dir,) = results.glob("selftest-tiny-*")
    plain, delayed = trials_of(run_dir)
    extra_s = delayed["window_s"] / delayed["window_steps"] - plain["window_s"] / plain["window_steps"]
    assert found["recovered_ms"] == pytest.approx(1000 * extra_s)
    steps = [row["step_time_s"] for row in rows_of(run_dir, "steps") if row["trial_id"] == delayed["trial_id"]]
    assert min(steps) >= DELAY_MS / 1000
    told = run("explain", delayed["trial_id"], "--run", str(run_dir))
    assert f"{DELAY_MS} ms added to every step of every rank" in told.stdout, told.stderr
