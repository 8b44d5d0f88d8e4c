"""Budgets of rtxscale, measured: what its Ray side costs against the same rank code alone, as ratios from one run.

    python tests/bench/budgets.py                    on the GPUs that are there; about 20 minutes on two
    python tests/bench/budgets.py --device cpu       small sizes on CPU workers: shows that the bench works, no more
    python tests/bench/budgets.py --only parity --pairs 8 --json parity.json

How to read it. Each line is one budget: what was found, its 95 % interval where there are replicates, the bar, and
whether it was met. Ratios compare two things measured in this very run, so they carry over to other machines better
than the figures they are made of; those are in the JSON. Nothing is asserted and the exit code is 0 when everything
was measured: timings of a machine that somebody else uses are no test.

- `parity`: throughput under Ray, with telemetry on, over that of the same rank code started by torchrun with no Ray on
  the machine. Fresh processes each time, in the order A B B A A B B A, compared pair by pair (Student's t on log
  ratios). Bar: 0.99.
- `bandwidth`: all-reduce bus bandwidth over nccl-tests' in-place figure from 64 MiB on, same libnccl, same GPUs, same
  P2P setting. Needs `all_reduce_perf` on the PATH or by --nccl-tests. Bar: 0.98 at each size.
- `outside`: median seconds of a warm trial that are neither soak, warm-up, window nor collectives. Bar: 0.5 s.
- `cells`: all seconds outside soak, warm-up and window of cells that differ in communicator and bucket, in one warm
  session, over those of one `fit()` for each cell. Of the latter only a few are measured and their mean is
  multiplied: the output says how many. Bar: 1/10.

Needs the package with torch, timm, ray, pyarrow and scipy; neither polars nor Altair.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq

from rtxscale.cli.reference import find_binary, reference_environment, run_all_reduce
from rtxscale.errors import RtxscaleError
from rtxscale.nccl.nccl_tests import bus_bandwidths
from rtxscale.results.commit import live_records, read_records
from rtxscale.spec.cell import Trial
from rtxscale.spec.load import parse_sweep
from rtxscale.stats.compare import paired_ratio
from rtxscale.stats.intervals import log_moments, ratio_interval

PARTS = ("parity", "bandwidth", "outside", "cells")
LAUNCH_TIMEOUT_S = 900
MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much is measured on a device."""

    device: str
    gpus: int
    workload: str
    measure: str
    short: str
    cells: dict[str, list[Any]]
    fits: int


CUDA = Sizes(
    device="cuda",
    gpus=2,
    workload="{kind: vision, model: resnet50, batch_per_gpu: 256, precision: bf16}",
    measure="{warmup_min_s: 5, warmup_max_s: 60, window_s: 10, min_steps: 20, tolerance: 0.05}",
    short="{warmup_min_s: 0.3, warmup_max_s: 30, window_s: 0.5, min_steps: 5, tolerance: 10}",
    cells={
        "nccl.channels": ["auto", 1, 2, 4, 8, 16],
        "ddp.bucket_mib": ["auto", 1, 5, 10, 25, 50, 100, 200],
    },
    fits=4,
)
CPU = Sizes(
    device="cpu",
    gpus=2,
    workload="{kind: vision, model: resnet18, image_size: 32, classes: 10, batch_per_gpu: 2, precision: fp32}",
    measure="{warmup_min_s: 0.3, warmup_max_s: 30, window_s: 1, min_steps: 5, tolerance: 10}",
    short="{warmup_min_s: 0.1, warmup_max_s: 30, window_s: 0.2, min_steps: 3, tolerance: 10}",
    cells={"ddp.bucket_mib": ["auto", 1, 5, 10, 25, 50]},
    fits=2,
)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """One line: `value` with its interval against the bar; `met` is None where it was not measured."""

    part: str
    what: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    bar: str = ""
    met: bool | None = None
    note: str = ""
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def surely(self) -> bool:
        """Whether the whole interval is on the same side of a least ratio, such as `>= 0.99`."""
        least = float(self.bar.removeprefix(">= "))
        if self.low is None or self.high is None:
            return False
        return self.low >= least if self.met else self.high < least


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What to measure with, and where the runs go."""

    sizes: Sizes
    root: Path
    pairs: int
    binary: str | None


def sweep_text(name: str, sizes: Sizes, axes: dict[str, list[Any]], **fields: Any) -> str:
    """A sweep file; `fields` replace or add to what all of the bench's sweeps have."""
    usual = {
        "question": "What does it cost?",
        "study": "weak",
        "workload": sizes.workload,
        "measure": sizes.measure,
        "visits": 1,
        "sentinels": "off",
        "hardware": f"{{device: {sizes.device}, min_gpus: {sizes.gpus}}}"
        if sizes.device == "cuda"
        else "{device: cpu}",
        "axes": "{" + ", ".join(f"{path}: {json.dumps(values)}" for path, values in axes.items()) + "}",
    }
    return "\n".join(f"{key}: {value}" for key, value in {"name": name, **usual, **fields}.items()) + "\n"


def run_sweep(bench: Bench, text: str) -> tuple[Any, list[dict[str, Any]]]:
    """Run it under Ray, with telemetry, as `rtxscale sweep` does; its result and the rows of its trials."""
    from rtxscale.run.authentication import settle

    settle(os.environ, Path.home())  # before Ray is imported
    from rtxscale.run.sweep import SweepRequest, execute

    sweep = parse_sweep(text, "bench")
    request = SweepRequest(sweep=sweep, sweep_text=text, results_root=bench.root, fresh=True, stream=sys.stderr)
    result = execute(request)
    if result.interrupted:
        sys.exit(f"interrupted: {result.interrupted}")
    trials = sorted(rows_of(result.run_dir, "trials"), key=lambda row: row["started_ns"])
    bad = [f"{row['outcome']} ({row['message']})" for row in trials if row["outcome"] != "ok"]
    if bad:
        sys.exit(f"{result.run_dir}: found trials that are not ok: {'; '.join(bad)}")
    return result, trials


def rows_of(run_dir: Path, table: str) -> list[dict[str, Any]]:
    """The committed rows of a table, read without polars."""
    parts = [
        part.path for record in live_records(read_records(run_dir)) for part in record.files if part.table == table
    ]
    return [row for path in parts for row in pq.read_table(run_dir / path).to_pylist()]


# --- parity -----------------------------------------------------------------------------------------------------------


def parity(bench: Bench) -> Iterator[Budget]:
    """Throughput under Ray over torchrun alone, in pairs whose order alternates."""
    text = sweep_text("bench-parity", bench.sizes, {"gpus": [bench.sizes.gpus]})
    alone: list[float] = []
    under_ray: list[float] = []
    ray_seen = False
    for pair in range(bench.pairs):
        for arm in "AB" if pair % 2 == 0 else "BA":
            if arm == "A":
                ray_seen |= bool(raylets())
                alone.append(torchrun_throughput(text))
                print(f"pair {pair + 1}: torchrun {alone[-1]:.1f} per s", file=sys.stderr, flush=True)
            else:
                under_ray.append(run_sweep(bench, text)[1][0]["throughput_per_s"])
                print(f"pair {pair + 1}: under Ray {under_ray[-1]:.1f} per s", file=sys.stderr, flush=True)
    test = paired_ratio(under_ray, alone)
    ratio, low, high = (finite(value) for value in (test.ratio, test.low, test.high))
    yield Budget(
        part="parity",
        what="throughput under Ray with telemetry / torchrun without Ray",
        value=ratio,
        low=low,
        high=high,
        bar=">= 0.99",
        met=None if ratio is None else ratio >= 0.99,
        note=f"{bench.pairs} pairs" + ("; a Ray of somebody else was running beside torchrun" if ray_seen else ""),
        figures={"under_ray_per_s": under_ray, "torchrun_per_s": alone},
    )


def torchrun_throughput(text: str) -> float:
    """Throughput of the sweep's only cell, by the command that `rtxscale explain` prints."""
    from rtxscale.rank.command import explain_command

    plan = plan_here(text)
    trial = Trial(cell=plan.trials[0].trial.cell, visit=1)
    command = explain_command(trial, plan.device, plan.threads_per_worker, gpu_uuids=())
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=LAUNCH_TIMEOUT_S, check=False)
    start = done.stdout.find("{")
    if done.returncode != 0 or start < 0:
        sys.exit(f"torchrun ended with {done.returncode}: {done.stderr[-2000:]}")
    return float(json.loads(done.stdout[start:])["throughput_per_s"])


def plan_here(text: str) -> Any:
    """What the sweep comes down to on this machine."""
    from rtxscale.devices.inventory import Inventory
    from rtxscale.plan.expand import make_plan
    from rtxscale.telemetry.facts import describe_node

    node, notes = describe_node("local")
    return make_plan(parse_sweep(text, "bench"), Inventory(nodes=(node,), notes=notes))


def raylets() -> list[int]:
    """Ray's node processes on this machine."""
    return [
        process.pid for process in psutil.process_iter(["name"]) if process.info["name"] in ("raylet", "gcs_server")
    ]


# --- bandwidth --------------------------------------------------------------------------------------------------------


def bandwidth(bench: Bench) -> Iterator[Budget]:
    """All-reduce bus bandwidth over nccl-tests, for both P2P settings, size by size."""
    bar = ">= 0.98"
    if bench.binary is None or bench.sizes.device != "cuda":
        why = "no GPUs" if bench.sizes.device != "cuda" else "all_reduce_perf is not on the PATH"
        yield Budget(part="bandwidth", what="bus bandwidth / nccl-tests", bar=bar, note=f"not run: {why}")
        return
    workload = "{kind: collectives, operations: [all_reduce], sizes_mib: [64, 128, 256, 512], precision: fp32}"
    axes: dict[str, list[Any]] = {"gpus": [bench.sizes.gpus], "nccl.p2p": ["auto", "disabled"]}
    result, trials = run_sweep(bench, sweep_text("bench-bandwidth", bench.sizes, axes, workload=workload, visits=3))
    timed = rows_of(result.run_dir, "collectives")
    for p2p in ("auto", "disabled"):
        mine = [row for row in trials if row["nccl_p2p"] == p2p]
        environment = reference_environment(p2p, mine[0]["gpu_uuids"], os.environ)
        outputs = [run_all_reduce(bench.binary, bench.sizes.gpus, (64, 512), environment) for _ in mine]
        theirs = [bus_bandwidths(output) for output in outputs]
        for size_bytes in sorted(set.intersection(*map(set, theirs))):
            ids = {row["trial_id"] for row in mine}
            ours = [row["busbw_gb_s"] for row in timed if row["trial_id"] in ids and row["size_bytes"] == size_bytes]
            interval = ratio_interval(log_moments(ours), log_moments([found[size_bytes] for found in theirs]))
            yield Budget(
                part="bandwidth",
                what=f"bus bandwidth / nccl-tests, P2P {p2p}, {size_bytes // MIB} MiB",
                value=float(interval.estimate),
                low=finite(interval.low),
                high=finite(interval.high),
                bar=bar,
                met=float(interval.estimate) >= 0.98,
                note=f"NCCL of nccl-tests: {outputs[0].nccl_version or 'not said'}",
                figures={"busbw_gb_s": ours, "nccl_tests_gb_s": [found[size_bytes] for found in theirs]},
            )


# --- outside measurement ----------------------------------------------------------------------------------------------


def warm_cells(bench: Bench, parts: tuple[str, ...]) -> Iterator[Budget]:
    """Seconds outside measurement of a warm trial, and of all cells against one fit for each."""
    sizes = bench.sizes
    axes = {"gpus": [sizes.gpus], **sizes.cells}
    result, warm = run_sweep(bench, sweep_text("bench-cells", sizes, axes, measure=sizes.short))
    if "outside" in parts:
        median = result.outside_median_s
        yield Budget(
            part="outside",
            what="seconds outside measurement of a warm trial, median",
            value=median,
            bar="<= 0.5 s",
            met=None if median is None else median <= 0.5,
            note=f"{len(warm) - 1} warm trials",
            figures={"outside_s": [row["outside_s"] for row in warm[1:]]},
        )
    if "cells" in parts:
        buckets = {"gpus": [sizes.gpus], "ddp.bucket_mib": sizes.cells["ddp.bucket_mib"][: sizes.fits]}
        text = sweep_text("bench-fits", sizes, buckets, measure=sizes.short, isolation="process")
        _, fits = run_sweep(bench, text)
        per_fit_s = overhead_s(fits) / len(fits)
        ratio = overhead_s(warm) / (len(warm) * per_fit_s)
        yield Budget(
            part="cells",
            what=f"seconds outside warm-up and window, {len(warm)} warm cells / one fit per cell",
            value=ratio,
            bar="<= 0.1 for 48 cells",
            met=ratio <= 0.1 if len(warm) == 48 else None,
            note=f"{len(fits)} fits measured, extrapolated to {len(warm)}"
            + ("" if len(warm) == 48 else "; too few cells for the bar, as they share one start-up"),
            figures={"warm_s": overhead_s(warm), "one_fit_s": per_fit_s},
        )


def overhead_s(trials: list[dict[str, Any]]) -> float:
    """Seconds from the start of the first session to the end of the last trial that measured nothing.

    >>> row = {"started_ns": 20 * 10**9, "ended_ns": 25 * 10**9, "session_start_s": 8.0, "window_s": 3.0}
    >>> overhead_s([row | {"soak_s": None, "warmup_s": 1.0, "collectives_s": None}])
    9.0
    """
    from rtxscale.run.trial_rows import MEASURED_SPANS

    first = min(trials, key=lambda row: row["started_ns"])
    last_ns = max(row["ended_ns"] for row in trials)
    span_s = (last_ns - first["started_ns"]) / 1e9 + (first["session_start_s"] or 0.0)
    return float(span_s) - sum(row.get(name) or 0.0 for row in trials for name in MEASURED_SPANS)


# --- output -----------------------------------------------------------------------------------------------------------


def finite(value: Any) -> float | None:
    """A number for JSON: None where it is not known."""
    number = float(value)
    return number if number == number and abs(number) != float("inf") else None


def line(budget: Budget) -> str:
    """One budget in words.

    >>> line(Budget(part="parity", what="a / b", value=0.9951, low=0.991, high=0.9992, bar=">= 0.99", met=True))
    'a / b: 0.995 (0.991-0.999), bar >= 0.99: met'
    >>> line(Budget(part="parity", what="a / b", value=0.9951, low=0.981, high=1.01, bar=">= 0.99", met=True))
    'a / b: 0.995 (0.981-1.010), bar >= 0.99: met, but the interval allows for the opposite'
    >>> line(Budget(part="bandwidth", what="a / b", bar=">= 0.98", note="not run: no GPUs"))
    'a / b: not run: no GPUs'
    """
    if budget.value is None:
        return f"{budget.what}: {budget.note}"
    interval = "" if budget.low is None or budget.high is None else f" ({budget.low:.3f}-{budget.high:.3f})"
    met = {True: "met", False: "not met", None: "not judged"}[budget.met]
    if budget.low is not None and budget.high is not None and budget.met is not None:
        met += "" if budget.surely else ", but the interval allows for the opposite"
    note = f" [{budget.note}]" if budget.note else ""
    return f"{budget.what}: {budget.value:.3f}{interval}, bar {budget.bar}: {met}{note}"


def measure(bench: Bench, parts: tuple[str, ...]) -> Iterator[Budget]:
    """Every part asked for, in order."""
    if "parity" in parts:
        yield from parity(bench)
    if "bandwidth" in parts:
        yield from bandwidth(bench)
    if {"outside", "cells"} & set(parts):
        yield from warm_cells(bench, parts)


def has_gpus() -> bool:
    """Whether this machine shows a GPU."""
    from rtxscale.telemetry.facts import local_node

    return bool(local_node("local").gpus)


@contextlib.contextmanager
def results_root(given: Path | None) -> Iterator[Path]:
    """The directory given, or one that is removed afterwards."""
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given.absolute()
        return
    directory = Path(tempfile.mkdtemp(prefix="rtxscale-bench-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a line as soon as it is known, write the JSON."""
    parser = argparse.ArgumentParser(
        description="Budgets of rtxscale as ratios from one run; see the module's docstring."
    )
    parser.add_argument("--only", action="append", choices=PARTS, help="measure only this part; repeatable")
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--pairs", type=int, help="pairs of the parity comparison: 4, on CPU 2")
    parser.add_argument("--nccl-tests", type=Path, help="all_reduce_perf, or its directory")
    parser.add_argument("--results", type=Path, help="keep the runs here")
    parser.add_argument("--json", type=Path, help="also write everything to this file")
    options = parser.parse_args(arguments)
    on_gpus = options.device == "cuda" or (options.device == "auto" and has_gpus())
    sizes = CUDA if on_gpus else CPU
    found: list[Budget] = []
    with results_root(options.results) as root:
        pairs = options.pairs or (4 if on_gpus else 2)
        bench = Bench(sizes=sizes, root=root, pairs=pairs, binary=find_binary(options.nccl_tests))
        try:
            for budget in measure(bench, tuple(options.only or PARTS)):
                found.append(budget)
                print(line(budget), flush=True)
                if options.json is not None:
                    keep(options.json, sizes, found)
        except RtxscaleError as error:
            sys.exit(f"bench: {error}")
    return 0


def keep(path: Path, sizes: Sizes, found: list[Budget]) -> None:
    """Write what has been measured so far: an hour of it may be cut short."""
    text = json.dumps({"device": sizes.device, "budgets": [asdict(budget) for budget in found]}, indent=2)
    path.write_text(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
