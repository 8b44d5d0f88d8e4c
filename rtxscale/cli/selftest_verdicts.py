"""Verdicts of a self-test: which rows each check looks at, nccl-tests beside them, and where the verdicts are kept.

Reads runs and writes one file; only the check of bandwidth starts a process. Caller: `cli.selftest`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtxscale.cli.selftest_sweeps import PLACE_PREFIX, SWEEP_OF, VERDICTS_FILE
from rtxscale.errors import ResultsError, RunError

if TYPE_CHECKING:
    import polars as pl

    from rtxscale.analysis.selftest.verdicts import Check, Evidence
    from rtxscale.results.read import Run

REFERENCE_RUNS = 2
"""Times nccl-tests is run, so that its own spread is known."""


def judge(name: str, runs: Mapping[str, Path], missing: Mapping[str, str], why: str, binary: str | None) -> Check:
    """The verdict of one check on what has been measured.

    `runs` and `missing` say of each sweep where its run is and why it is not complete; `why` says why the check cannot
    be run here; `binary` is nccl-tests.
    """
    from rtxscale.analysis.selftest.simulated import check_simulated
    from rtxscale.analysis.selftest.verdicts import evidence_of, not_run
    from rtxscale.results.read import open_verified

    sweep = SWEEP_OF[name]
    if sweep is None:
        return check_simulated()
    if why or sweep in missing:
        return not_run(name, why or f"{missing[sweep]}; the same command continues")
    run = open_verified(runs[sweep])
    trials = run.frame("trials").collect()
    check = _bandwidth(run, binary or "") if name == "bandwidth" else _judges()[name](evidence_of(trials))
    lost = not_ok(trials)
    return replace(check, said=f"{check.said}; {lost}") if lost else check


def not_ok(trials: pl.DataFrame) -> str:
    """How many trials did not end ok and so do not count, in words; empty when all did."""
    from rtxscale.analysis.counted import settled_trials

    settled = settled_trials(trials)
    lost = settled.filter(settled["outcome"] != "ok")
    return f"{lost.height} of {settled.height} trials did not end ok" if lost.height else ""


def _judges() -> dict[str, Callable[[Evidence], Check]]:
    from rtxscale.analysis.selftest.delays import check_delays
    from rtxscale.analysis.selftest.equality import check_isolation, check_launcher
    from rtxscale.analysis.selftest.reference import check_energy
    from rtxscale.analysis.selftest.verdicts import check_equal_arms

    return {
        "aa": check_equal_arms,
        "planted": check_delays,
        "isolation": check_isolation,
        "launcher": check_launcher,
        "energy": check_energy,
    }


def _bandwidth(run: Run, binary: str) -> Check:
    """Run nccl-tests on the GPUs that the trials used, and compare."""
    from rtxscale.analysis.selftest.reference import check_bandwidth
    from rtxscale.analysis.selftest.verdicts import evidence_of, not_run
    from rtxscale.cli.reference import reference_environment, run_all_reduce
    from rtxscale.nccl.nccl_tests import bus_bandwidths
    from rtxscale.spec.cell import Cell

    evidence = evidence_of(run.frame("trials").collect())
    if evidence.counted.is_empty():
        return not_run("bandwidth", "no trial ended ok")
    row = evidence.counted.row(0, named=True)
    cell = Cell.model_validate_json(row["cell_json"])
    sizes_mib = [int(size_mib) for size_mib in getattr(cell.workload, "sizes_mib", ())]
    environment = reference_environment(cell.nccl.p2p, row["gpu_uuids"] or [], os.environ)
    try:
        outputs = [
            run_all_reduce(binary, cell.gpus, (min(sizes_mib), max(sizes_mib)), environment)
            for _ in range(REFERENCE_RUNS)
        ]
    except RunError as error:
        return not_run("bandwidth", str(error))
    ours, theirs = _nccl_of(run), outputs[0].nccl_version
    if ours and theirs and ours != theirs:
        return not_run("bandwidth", f"all_reduce_perf uses NCCL {theirs}, the workers {ours}: not the same library")
    collectives = run.frame("collectives").collect()
    return check_bandwidth(evidence, collectives, [bus_bandwidths(output) for output in outputs])


def _nccl_of(run: Run) -> str | None:
    """NCCL's version as the workers read it."""
    import polars as pl

    values = run.frame("environment").filter(pl.col("name") == "nccl").collect()["value"].to_list()
    return str(values[0]) if values else None


def keep(root: Path, data: dict[str, Any]) -> Path:
    """Write the verdicts into a place of their own below the results root; its path."""
    from rtxscale.results.disk import make_directory, replace_file

    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for number in range(1, 100):
        place = root / (f"{PLACE_PREFIX}{stamp}" if number == 1 else f"{PLACE_PREFIX}{stamp}-{number}")
        try:
            make_directory(place)
        except FileExistsError:
            continue
        path = place / VERDICTS_FILE
        replace_file(path, json.dumps(data, indent=2, allow_nan=False).encode())
        return path.absolute()
    raise ResultsError(f"{root}: found 99 self-tests of this second; expected fewer; wait a moment")
