"""Outcomes provoked on real GPUs: somebody else's process, memory that is not there, ranks that die or hang."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from planted_gpu_faults import visitor
from test_rank_gpu import MEASURE, attested, served

from rtxscale.plan.feasibility import MARGIN, largest_batch, training_of, what_would_fit
from rtxscale.results.read import Run
from rtxscale.run.occupancy import Owner, identify
from rtxscale.spec.cell import Trial
from rtxscale.spec.workload import VisionWorkload
from rtxscale.telemetry.holders import GpuHolders

pytestmark = pytest.mark.gpu
WORLD = max(1, min(2, torch.cuda.device_count()))
"""Two GPUs where they are: then the other rank has to notice, too."""
SCRIPT = Path(__file__).with_name("planted_gpu_faults.py")
SWEEP = """\
name: gpu-faults
question: How does each trial end?
study: weak
workload: {{kind: vision, model: resnet50, precision: bf16}}
axes:
  gpus: [{world}]
  planted.arm: [{arms}]
  workload.batch_per_gpu: {batches}
exclude: [{excluded}]
visits: 1
order: as_written
sentinels: off
measure: {{warmup_min_s: 1, warmup_max_s: 20, window_s: 5, min_steps: 10, tolerance: 0.3}}
hardware: {{device: cuda, min_gpus: {world}}}
"""


def huge_batch():
    """Images that do not fit, but by so little that the plan tries them."""
    room = (1 + MARGIN) / 2 * torch.cuda.get_device_properties(0).total_memory
    return largest_batch(training_of(VisionWorkload(kind="vision", model="resnet50"), WORLD), room, 1_000_000)


def sweep_text(*arms):
    """A sweep with these faults; only `oom` has the huge batch."""
    huge = huge_batch()
    batches = [64, huge] if "oom" in arms else [64]
    excluded = [
        f"{{planted.arm: {arm}, workload.batch_per_gpu: {batch}}}"
        for arm in arms
        for batch in batches
        if (batch == huge) != (arm == "oom")
    ]
    return SWEEP.format(world=WORLD, arms=", ".join(arms), batches=batches, excluded=", ".join(excluded))


@pytest.fixture(autouse=True, scope="module")
def gpus():
    """Everything here needs real GPUs."""
    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU, found none")


def owner_of_visitor():
    """How this host lets us see somebody else's process."""
    holders = GpuHolders()
    try:
        with visitor() as process:
            new = [identify(one, "node0", []) for one in holders.processes()]
            return [one for one in new if one.pid == process.pid] or new
    finally:
        holders.close()


def run_sweep(directory, *arms):
    """Attempts by arm in the order they ran, and what the user was told."""
    (directory / "sweep.yaml").write_text(sweep_text(*arms))
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(directory / "sweep.yaml"), str(directory / "results")],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    print(done.stderr)
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["finished"] == summary["total"], done.stderr
    attempts = {}
    for row in Run.open(Path(summary["run_dir"])).frame("trials").sort("started_ns").collect().to_dicts():
        attempts.setdefault(json.loads(row["axes_json"])["planted.arm"], []).append(row)
    return attempts, done.stderr


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    """Too little memory, and somebody else on the GPUs: three sessions."""
    return run_sweep(tmp_path_factory.mktemp("crowded"), "well", "visited", "held", "oom")


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """Ranks that hang or die: four sessions."""
    return run_sweep(tmp_path_factory.mktemp("broken"), "stop", "kill")


def test_somebody_elses_process_is_seen_on_its_gpu_with_its_memory():
    seen = owner_of_visitor()
    if not seen:
        pytest.skip("needs a driver that tells compute processes; NVML tells none here, as in some containers")
    assert {one.owner for one in seen} <= {Owner.FOREIGN, Owner.UNKNOWN}
    assert all(one.uuid.startswith("GPU-") for one in seen)
    assert max(one.used_mib or 0.0 for one in seen) > 1024.0


@pytest.mark.parametrize("arm", ["visited", "held"])
def test_somebody_else_on_the_gpus_costs_the_attempt_and_is_named(crowded, arm):
    if not any(one.owner is Owner.FOREIGN for one in owner_of_visitor()):
        pytest.skip("needs process ids that mean the same to the driver and here; this is a container of its own")
    first, again = crowded[0][arm]
    assert (first["outcome"], again["outcome"]) == ("foreign_process", "ok")
    assert re.search(r"GPU-\S+ on node0 is held by python\S* \(pid \d+, [\d,]+ MiB\)", first["message"])
    assert first["message"].startswith("not begun: ") == (arm == "held")


def test_out_of_memory_is_confirmed_and_says_what_would_fit(crowded):
    used, fresh = crowded[0]["oom"]
    assert (used["outcome"], fresh["outcome"]) == ("crashed", "oom")
    assert fresh["position"] == 0
    assert re.search(r"\([\d,]+ MiB allocated and [\d,]+ reserved of [\d,]+\)", fresh["message"]), fresh["message"]
    assert re.search(r"batch_per_gpu \d+ would fit \(64 took [\d,]+ MiB of [\d,]+\)", fresh["message"])
    assert fresh["memory_reserved_mib"] >= fresh["memory_peak_mib"] > 0


def test_what_would_fit_fits(crowded, tmp_path):
    batch = int(re.search(r"batch_per_gpu (\d+) would fit", crowded[0]["oom"][-1]["message"]).group(1))
    assert 64 < batch < huge_batch()
    workload = {"kind": "vision", "model": "resnet50", "batch_per_gpu": batch, "global_batch": batch * WORLD}
    trial = Trial.model_validate({"cell": {"gpus": WORLD, "workload": workload, "measure": MEASURE}, "visit": 1})
    report, _ = served({"fits": trial}, tmp_path / "mailbox")["fits"]
    assert str(report.outcome) in ("ok", "unsteady"), report.message


def test_what_the_memory_model_says_would_fit_fits(tmp_path):
    memory_mib = torch.cuda.get_device_properties(0).total_memory // 2**20

    def language(batch, visit):
        workload = {"kind": "language", "size": "350m", "context": 2048, "batch_per_gpu": batch}
        workload["global_batch"] = batch * WORLD
        return Trial.model_validate({"cell": {"gpus": WORLD, "workload": workload, "measure": MEASURE}, "visit": visit})

    advice = what_would_fit(language(512, 1).cell, memory_mib, {})
    batch = int(re.search(r"batch_per_gpu (\d+) instead of", advice).group(1))
    found = served({"huge": language(512, 1), "fits": language(batch, 2)}, tmp_path / "mailbox")
    assert str(found["huge"][0].outcome) == "oom"
    assert str(found["fits"][0].outcome) in ("ok", "unsteady"), found["fits"][0].message


@pytest.mark.parametrize(
    ("arm", "outcome", "message"),
    [("stop", "hang", " silent for 20 s"), ("kill", "crashed", f"rank {WORLD - 1}: its process died")],
)
def test_a_hung_and_a_killed_rank_cost_one_attempt_each(broken, arm, outcome, message):
    first, again = broken[0][arm]
    assert (first["outcome"], again["outcome"]) == (outcome, "ok")
    assert message in first["message"]
    assert first["session_id"] != again["session_id"]


def test_every_session_left_the_memory_as_it_was(crowded, broken):
    assert "more in use than before the session" not in crowded[1] + broken[1]
    holders = GpuHolders()

    def here():
        return [one for one in holders.processes() if identify(one, "node0", []).owner is Owner.FOREIGN]

    deadline = time.monotonic() + 10
    while (left := here()) and time.monotonic() < deadline:
        time.sleep(0.1)
    holders.close()
    assert not left


@pytest.mark.skipif(WORLD < 2, reason=f"needs 2 NVIDIA GPUs, found {WORLD} or none: one GPU has no channels")
def test_a_setting_that_the_users_environment_overrules_is_found_out(tmp_path):
    workload = {"kind": "vision", "model": "resnet50", "batch_per_gpu": 64, "global_batch": 64 * WORLD}
    cell = {"gpus": WORLD, "workload": workload, "measure": MEASURE, "nccl": {"channels": 8}}
    trial = Trial.model_validate({"cell": cell, "visit": 1})
    report, _ = served({"capped": trial}, tmp_path / "mailbox", {"NCCL_MAX_CTAS": "2"})["capped"]
    row = attested(report)["nccl.channels"]
    assert (row["requested"], row["observed"], row["verdict"]) == ("8", "2", "refuted"), row
    assert str(report.outcome) == "not_honoured", report.message
    assert "nccl.channels: asked for 8, found 2" in report.message
