import json
import os
import shlex
import subprocess
import sys

import pytest

from rtxscale.rank.command import explain_command, rank_environment, torchrun_argv
from rtxscale.spec.cell import Cell, Trial

WORKLOAD = {"kind": "vision", "model": "test_resnet", "batch_per_gpu": 2, "image_size": 32, "precision": "fp32"}
MEASURE = {"warmup_min_s": 0.1, "warmup_max_s": 2.0, "window_s": 0.1, "min_steps": 3, "tolerance": 5.0}


def trial(gpus=2, **fields):
    return Trial.model_validate(
        {"cell": {"gpus": gpus, "workload": WORKLOAD, "measure": MEASURE, **fields}, "visit": 1}
    )


def test_p2p_is_switched_off_from_the_start_of_the_process():
    cell = Cell.model_validate({"workload": WORKLOAD, "nccl": {"p2p": "disabled"}})
    variables = rank_environment(cell, "cuda")
    assert variables["NCCL_P2P_DISABLE"] == "1"
    assert variables["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert variables["NCCL_DEBUG"] == "INFO"
    assert "NCCL_P2P_DISABLE" not in rank_environment(Cell.model_validate({"workload": WORKLOAD}), "cuda")


def test_what_a_warm_session_can_swap_is_not_in_the_process_environment():
    nccl = {"algorithm": "tree", "protocol": "simple", "channels": 4}
    variables = rank_environment(Cell.model_validate({"gpus": 2, "workload": WORKLOAD, "nccl": nccl}), "cuda")
    assert not {"NCCL_ALGO", "NCCL_PROTO", "NCCL_MIN_NCHANNELS"} & set(variables)


def test_cpu_ranks_see_no_gpu():
    assert rank_environment(Cell.model_validate({"workload": WORKLOAD}), "cpu") == {"CUDA_VISIBLE_DEVICES": ""}


NAMING_FILES = (
    {"kind": "script", "entry": "train:build"},
    {"kind": "language", "path": "my-model"},
    {"kind": "diffusion", "data": "latents", "data_path": "latents"},
)


def test_only_a_workload_that_names_files_is_told_where_its_sweep_lies():
    for device in ("cpu", "cuda"):
        for workload in NAMING_FILES:
            cell = Cell.model_validate({"workload": workload})
            assert rank_environment(cell, device, "/sweeps")["RTXSCALE_DIRECTORY"] == "/sweeps"
        usual = rank_environment(Cell.model_validate({"workload": WORKLOAD}), device, "/sweeps")
        assert "RTXSCALE_DIRECTORY" not in usual


def test_torchrun_starts_this_python_with_so_many_ranks():
    argv = torchrun_argv(3, ["--mailbox", "here"])
    assert argv[:3] == [sys.executable, "-m", "torch.distributed.run"]
    assert argv[argv.index("--nproc-per-node") + 1] == "3"
    assert argv[-4:] == ["-m", "rtxscale.rank", "--mailbox", "here"]


def test_the_line_names_gpus_and_carries_the_whole_trial():
    asked = trial(nccl={"p2p": "disabled", "channels": 2})
    words = shlex.split(explain_command(asked, "cuda", 4, ["GPU-a", "GPU-b"]))
    assert words[0] == "env"
    assert "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b" in words
    assert "NCCL_P2P_DISABLE=1" in words
    repeated = Trial.model_validate_json(words[words.index("--trial") + 1])
    assert repeated.trial_id == asked.trial_id


def test_the_line_names_this_python_and_is_plain_ascii():
    asked = trial(workload={**WORKLOAD, "model": "a\x1b\x7f\u202eb c"})
    line = explain_command(asked, "cpu", 1, [])
    words = shlex.split(line)
    assert words[words.index("-m") - 1] == sys.executable
    assert line.isascii()
    assert line.isprintable()
    assert Trial.model_validate_json(words[words.index("--trial") + 1]) == asked


def test_the_line_needs_no_torch():
    code = "import sys, rtxscale.rank.command; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_line_runs_in_a_shell_and_prints_one_json_summary():
    line = explain_command(trial(gpus=1), "cpu", 1, [])
    argv = ["sh", "-c", line]
    # No environment is activated: `torchrun` is on no path.
    bare = os.environ | {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(argv, env=bare, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["outcome"] == "ok"
    assert result["trial_id"] == trial(gpus=1).trial_id
    assert result["throughput_per_s"] == pytest.approx(result["work"] / result["window_s"])
    assert result["buckets"] == []
