"""The command and environment that start ranks: for the torchrun launcher and for `explain`.

Pure and without torch, so that a laptop can print them. Callers: `run` and `cli`.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence

from rtxscale.nccl.knobs import DEBUG_ENVIRONMENT, Knobs, process_environment
from rtxscale.spec.cell import Cell, Trial
from rtxscale.spec.workload import names_files
from rtxscale.workloads.files.script import DIRECTORY_VARIABLE

# The host's own name need not resolve; ranks of one machine meet on the loopback.
STANDALONE = ("--standalone", "--local-addr", "127.0.0.1")


def rank_environment(cell: Cell, device: str, directory: str = "") -> dict[str, str]:
    """Variables that a rank process of this cell must start with; CPU ranks see no GPU.

    `directory` is the sweep file's: paths of scripts, data and models are relative to it.
    """
    place = {DIRECTORY_VARIABLE: directory} if names_files(cell.workload) and directory else {}
    if device != "cuda":
        return {"CUDA_VISIBLE_DEVICES": "", **place}
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        **DEBUG_ENVIRONMENT,
        **process_environment(Knobs(p2p=cell.nccl.p2p)),
        **place,
    }


def torchrun_argv(world: int, arguments: Sequence[str]) -> list[str]:
    """Command that starts `world` ranks of this Python on one machine."""
    launcher = [sys.executable, "-m", "torch.distributed.run", *STANDALONE, "--nproc-per-node", str(world)]
    return [*launcher, "-m", "rtxscale.rank", *arguments]


def explain_command(trial: Trial, device: str, threads: int, gpu_uuids: Sequence[str], directory: str = "") -> str:
    """One shell line that repeats one trial without Ray and prints its result as JSON.

    It names this Python by its path, so that it runs without an activated environment, and is plain ASCII where the
    trial is not. Without UUIDs the GPUs are those that CUDA lists first. `directory` is the sweep file's, for a script.
    """
    variables = {**rank_environment(trial.cell, device, directory), "OMP_NUM_THREADS": str(threads)}
    if device == "cuda" and gpu_uuids:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(gpu_uuids)
    order = json.dumps(trial.model_dump(mode="json", exclude_defaults=True), separators=(",", ":"))
    arguments = ["--trial", order, "--device", device, "--threads", str(threads)]
    words = ["env", *(f"{name}={value}" for name, value in variables.items())]
    return shlex.join([*words, *torchrun_argv(trial.cell.gpus, arguments)])
