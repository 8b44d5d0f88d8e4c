"""A script with a loop of its own, trained by two ranks that torchrun starts, as `explain` would have it."""

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from rtxscale.rank.command import explain_command
from rtxscale.spec.cell import Trial

SCRIPTS = Path(__file__).parents[2] / "conformance"
MEASURE = {"warmup_min_s": 0.1, "warmup_max_s": 2.0, "window_s": 0.2, "min_steps": 4, "tolerance": 10.0}


def measured(**workload):
    """The summary of a trial on two CPU workers, and whether the ranks called it good."""
    workload = {"kind": "script", "directory": "scripts", "batch_per_gpu": 2, "global_batch": 4, **workload}
    trial = Trial.model_validate({"cell": {"gpus": 2, "workload": workload, "measure": MEASURE}, "visit": 1})
    argv = shlex.split(explain_command(trial, "cpu", 1, [], str(SCRIPTS)))
    done = subprocess.run(argv, env=os.environ, capture_output=True, text=True, timeout=200)
    return json.loads(done.stdout[done.stdout.index("{") :]), done.returncode


@pytest.fixture(scope="module")
def loop():
    return measured(path="tiny_loop.py", arguments=["uneven"])


def test_two_ranks_are_measured_like_any_workload(loop):
    result, code = loop
    assert (code, result["outcome"], result["steady"], result["message"]) == (0, "ok", True, "")
    # Steps of 2 and of 3 samples take turns on each of two ranks.
    assert 4 * result["window_steps"] < result["work"] < 6 * result["window_steps"]
    assert result["throughput_per_s"] == pytest.approx(result["work"] / result["window_s"])
    assert 0 <= result["loss_last"] < 1


def test_the_models_gradients_were_reduced_on_the_trials_group(loop):
    result, _ = loop
    assert [bucket["parameters"] for bucket in result["buckets"]] == [2]
    verdicts = {row["subject"]: row["verdict"] for row in result["attestation"]}
    assert verdicts["workload.group"] == verdicts["workload.entry"] == "honoured"


def test_code_that_does_not_communicate_is_not_called_scaling():
    result, code = measured(entry="tiny_entry:alone")
    assert (code, result["outcome"]) == (1, "not_honoured")
    assert "neither job.wrap nor job.group was used" in result["message"]
