"""Runs nccl-tests on the GPUs of a trial, as that trial's workers ran: the same libnccl, the same P2P setting.

Starts a process of the user's own binary and reads what it prints; decides nothing. Callers: `cli.selftest`, and the
bench of budgets in `tests/bench`.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from rtxscale.errors import RunError
from rtxscale.nccl.knobs import Knobs, process_environment
from rtxscale.nccl.nccl_tests import all_reduce_argv, read_nccl_tests
from rtxscale.nccl.nccl_tests_rows import NcclTests

BINARY = "all_reduce_perf"
TIMEOUT_S = 180.0


def find_binary(given: Path | None) -> str | None:
    """The binary of nccl-tests: the one given, a directory's, or the one on the PATH; None if there is none."""
    if given is None:
        return shutil.which(BINARY)
    return shutil.which(str(given / BINARY if given.is_dir() else given))


def reference_environment(p2p: str, gpu_uuids: Sequence[str], own: Mapping[str, str]) -> dict[str, str]:
    """The environment of nccl-tests: the user's, the trial's GPUs and P2P setting, and torch's libnccl first."""
    variables = {**own, **process_environment(Knobs(p2p=p2p)), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if gpu_uuids:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(gpu_uuids)
    library = _torch_nccl()
    if library is not None:
        variables["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, (str(library), own.get("LD_LIBRARY_PATH"))))
    return variables


def run_all_reduce(
    binary: str, gpus: int, sizes_mib: tuple[int, int], environment: Mapping[str, str], timeout_s: float = TIMEOUT_S
) -> NcclTests:
    """Time all-reduce once over sizes from the least to the most, doubling.

    Raises:
        RunError: it does not start, does not end in time, fails, or prints no table.
    """
    argv = all_reduce_argv(binary, gpus, *sizes_mib)
    try:
        done = subprocess.run(  # noqa: S603  the binary that the user has named or put on the PATH
            argv,
            env=dict(environment),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunError(f"{binary}: found {error}; expected nccl-tests to run; try it by hand") from error
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())[-300:]
        raise RunError(f"{binary}: found exit code {done.returncode} ({said}); expected 0; try it by hand")
    try:
        return read_nccl_tests(done.stdout)
    except ValueError as error:
        raise RunError(f"{binary}: {error}") from error


def _torch_nccl() -> Path | None:
    """Where the libnccl that PyTorch's wheels use lies; None where PyTorch brings its own or the system's."""
    try:
        found = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        return None
    places = [Path(place) / "lib" for place in (found.submodule_search_locations or [])] if found else []
    return next((place for place in places if place.is_dir()), None)
