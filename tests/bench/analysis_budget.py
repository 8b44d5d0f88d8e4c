"""What the analysis costs against its budget: an efficiency table of many trials, and a summary of much telemetry.

Not a test: run it on a quiet machine. Prints one line per budget with what was measured, what it was measured with, and
the ratio to the bar; a figure that was scaled up says so. Of several runs the fastest counts, since other load can only
add. With pandas installed, the same telemetry summary written plainly in pandas is timed beside it, on fewer rows.

    python tests/bench/analysis_budget.py                                   5 M rows, scaled up; a minute
    python tests/bench/analysis_budget.py --rows 1e8 --directory DIR        all of it; DIR needs 1 GB and keeps them

    efficiency table with intervals, 100,000 trials: at most 2 s
    100 M telemetry rows summarised per trial: at most 20 s in at most 4 GiB
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from rtxscale.analysis.cells import cell_table, replicates
from rtxscale.analysis.clocks import throttle_table, window_samples
from rtxscale.analysis.counted import counted_trials, settled_trials
from rtxscale.analysis.efficiency import efficiency_table
from rtxscale.results.schema import table_from_columns
from rtxscale.spec.cell import content_id

TRIALS, TRIALS_BAR_S = 100_000, 2.0
ROWS, ROWS_BAR_S, ROWS_BAR_GIB = 100_000_000, 20.0, 4.0
GPUS, SAMPLES_PER_TRIAL, PART_ROWS = 8, 120, 2_000_000
WHOLE = 0.999
"""Trials are whole: from this share of the rows on nothing is scaled up."""
START_NS, PERIOD_NS = 1_790_000_000_000_000_000, 13_000_000_000
UUIDS = [f"GPU-{gpu:08x}-1111-2222-3333-444444444444" for gpu in range(GPUS)]


def made_trials(count: int) -> pl.DataFrame:
    """A compacted run: weak curves on 1, 2, 4 and 8 GPUs under many settings, five visits each."""
    visits, sizes = 5, (1, 2, 4, 8)
    per_setting = visits * len(sizes)
    settings = count // per_setting
    rng = np.random.default_rng(1)
    cells = []
    for setting in range(settings):
        for size in sizes:
            workload = {"batch_per_gpu": 64, "global_batch": 64 * size, "kind": "vision", "model": f"m{setting // 40}"}
            nccl = {"channels": setting % 40 + 1} if size > 1 else {}
            cells.append((size, json.dumps({"ddp": {}, "gpus": size, "nccl": nccl, "workload": workload})))
    texts = [text for _, text in cells for _ in range(visits)]
    gpus = np.repeat([count for count, _ in cells], visits)
    rows = len(texts)
    columns = {
        "trial_id": [f"{number:012x}" for number in range(rows)],
        "attempt": 1,
        "cell_id": [identity for text in (text for _, text in cells) for identity in [content_id(text)] * visits],
        "session_id": [f"s{number % 50}" for number in range(rows)],
        "visit": np.tile(np.arange(1, visits + 1), len(cells)),
        "repeat": 1,
        "slot": 0,
        "study": "weak",
        "cell_json": texts,
        "gpus": gpus,
        "batch_per_gpu": 64,
        "global_batch": gpus * 64,
        "outcome": "ok",
        "work_unit": "image",
        "throughput_per_s": 100.0 * gpus * 0.95 * np.exp(rng.normal(0, 0.01, rows)),
    }
    return pl.DataFrame(pl.from_arrow(table_from_columns("trials", rows, columns)))


def efficiencies(trials: pl.DataFrame) -> pl.DataFrame:
    """From rows to the efficiency table with intervals."""
    counted = counted_trials(settled_trials(trials))
    measured = replicates(counted)
    axes: dict[str, list[str]] = {"gpus": [], "nccl.channels": [], "workload.model": []}
    return efficiency_table(cell_table(counted, measured, axes).frame)


def write_telemetry(directory: Path, rows: int) -> pl.DataFrame:
    """Part files of `rows` samples as a sweep writes them; the trials with their windows."""
    rng = np.random.default_rng(0)
    per_trial = GPUS * SAMPLES_PER_TRIAL
    trials = rows // per_trial
    step = PART_ROWS // per_trial
    for part, first in enumerate(range(0, trials, step)):
        names = [f"{number:012x}" for number in range(first, min(first + step, trials))]
        _write_part(directory / f"{part:08d}-telemetry.parquet", names, first, rng)
    starts = START_NS + np.arange(trials) * PERIOD_NS
    return pl.DataFrame(
        {
            "trial_id": [f"{number:012x}" for number in range(trials)],
            "attempt": np.ones(trials, dtype=np.int64),
            "cell_id": [f"c{number % 500}" for number in range(trials)],
            "gpu_uuids": [UUIDS] * trials,
            "window_start_ns": starts + 4_000_000_000,
            "window_end_ns": starts + 11_000_000_000,
        }
    )


def _write_part(path: Path, names: list[str], first: int, rng: np.random.Generator) -> None:
    per_trial = GPUS * SAMPLES_PER_TRIAL
    rows = len(names) * per_trial
    place = np.arange(rows)
    trial, tick = place // per_trial, place % per_trial // GPUS
    t_ns = START_NS + (first + trial) * PERIOD_NS + tick * 100_000_000
    count = rng.integers(0, 3, rows)
    offsets = np.concatenate([[0], np.cumsum(count)]).astype(np.int32)
    second = np.zeros(offsets[-1], dtype=np.int32)
    second[offsets[1:][count == 2] - 1] = 1
    words = pa.DictionaryArray.from_arrays(pa.array(second), pa.array(["sw_power_cap", "sw_thermal_slowdown"]))
    columns = {
        "trial_id": pa.DictionaryArray.from_arrays(pa.array(trial), pa.array(names)).cast(pa.string()),
        "attempt": 1,
        "session_id": "s1",
        "node": "n1",
        "device": "gpu",
        "uuid": pa.DictionaryArray.from_arrays(pa.array(place % GPUS), pa.array(UUIDS)).cast(pa.string()),
        "t_ns": t_ns,
        "monotonic_ns": t_ns - START_NS,
        "power_w": rng.normal(500, 10, rows).round(2),
        "energy_j": place * 50.0,
        "temperature_c": rng.integers(60, 75, rows).astype(float),
        "sm_clock_mhz": rng.integers(180, 190, rows) * 15.0,
        "throttle_reasons": pa.ListArray.from_arrays(pa.array(offsets), words.cast(pa.string())),
        "utilisation": 1.0,
        "memory_used_mib": 20000.0,
    }
    pq.write_table(table_from_columns("telemetry", rows, columns), path, compression="zstd")


def summarise(directory: Path) -> None:
    """The summary in a process of its own, so that its memory can be told: prints seconds and GiB as JSON."""
    trials = pl.read_parquet(directory / "trials.parquet")
    cells = pl.DataFrame({"cell_id": trials["cell_id"].unique().sort()}).with_columns(
        label="cell_id", gpus=pl.lit(GPUS, pl.Int64), is_default=pl.lit(value=True)
    )
    start, busy = time.perf_counter(), time.process_time()
    telemetry = pl.scan_parquet(sorted(directory.glob("*-telemetry.parquet")))
    throttle_table(window_samples(telemetry, trials), cells)
    cost = _cost(start, busy)
    print(json.dumps({**cost, "rows": telemetry.select(pl.len()).collect().item()}))


def summarise_pandas(directory: Path, parts: int) -> None:
    """The same numbers with pandas, part by part, of the first `parts` part files."""
    import pandas as pd

    trials = pd.read_parquet(directory / "trials.parquet").explode("gpu_uuids").rename(columns={"gpu_uuids": "uuid"})
    start, busy, rows = time.perf_counter(), time.process_time(), 0
    columns = ["trial_id", "attempt", "uuid", "t_ns", "power_w", "temperature_c", "sm_clock_mhz", "throttle_reasons"]
    for path in sorted(directory.glob("*-telemetry.parquet"))[:parts]:
        part = pd.read_parquet(path, columns=columns)
        rows += len(part)
        part = part.merge(trials, on=["trial_id", "attempt", "uuid"])
        part = part[part["t_ns"].between(part["window_start_ns"], part["window_end_ns"])]
        part["reasons"] = part["throttle_reasons"].map(lambda words: ",".join(words))
        key = part.groupby(["trial_id", "attempt", "uuid", "reasons"])
        key.agg({"power_w": "mean", "temperature_c": "max", "sm_clock_mhz": "mean", "t_ns": "size"})
    print(json.dumps({**_cost(start, busy), "rows": rows, "pandas": pd.__version__}))


def _cost(start: float, busy: float) -> dict[str, float]:
    """Seconds and processor seconds since these, and the most memory that this process has had, in GiB."""
    return {
        "seconds": time.perf_counter() - start,
        "busy": time.process_time() - busy,
        "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def in_own_process(how: str, directory: Path, *more: str) -> dict[str, Any]:
    """What one summary cost: `seconds`, processor seconds `busy`, `gib` of memory, `rows`."""
    command = [sys.executable, __file__, how, str(directory), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=5e6, help="telemetry rows to really summarise")
    parser.add_argument("--directory", type=Path, help="where they lie, or are put and stay; else a temporary one")
    parser.add_argument("--runs", type=int, default=3, help="how often to summarise; the fastest counts")
    parser.add_argument("--pandas-rows", type=float, default=4e6, help="rows for pandas, in whole part files; 0: none")
    asked = parser.parse_args()
    print(
        f"{time.strftime('%Y-%m-%d', time.gmtime())}, Python {platform.python_version()}, polars {pl.__version__}, "
        f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"
    )
    trials = made_trials(TRIALS)
    seconds = min(_timed(efficiencies, trials) for _ in range(3))
    print(f"efficiency table, {trials.height:,} trials: {seconds:.2f} s, {seconds / TRIALS_BAR_S:.2f} of the bar")
    directory = asked.directory or Path(tempfile.mkdtemp(prefix="rtxscale-bench-"))
    try:
        if not (directory / "trials.parquet").exists():
            directory.mkdir(exist_ok=True)
            write_telemetry(directory, int(asked.rows)).write_parquet(directory / "trials.parquet")
        _print_telemetry(directory, asked.runs)
        _print_pandas(directory, int(asked.pandas_rows // PART_ROWS))
    finally:
        if asked.directory is None:
            shutil.rmtree(directory)


def _timed(function: Callable[..., Any], *arguments: Any) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def _print_telemetry(directory: Path, runs: int) -> None:
    every = [in_own_process("--summarise", directory) for _ in range(runs)]
    found = min(every, key=lambda one: one["seconds"])
    rows, seconds, gib = found["rows"], found["seconds"], found["gib"]
    shown, said = f"{rows:,} rows: {seconds:.1f} s", ""
    if rows < WHOLE * ROWS:
        said = f" (scaled up from {shown})"
        seconds *= ROWS / rows
        shown = f"{ROWS:,} rows: {seconds:.1f} s"
    print(f"telemetry summary, {shown}{said}, {seconds / ROWS_BAR_S:.2f} of the bar")
    each = " ".join(f"{one['seconds']:.1f}" for one in every)
    print(f"  {runs} runs: {each} s; processor time {found['busy']:.1f} s, load {os.getloadavg()[0]:.1f}")
    print(f"  peak memory at {rows:,} rows: {gib:.2f} GiB, {gib / ROWS_BAR_GIB:.2f} of the bar")


def _print_pandas(directory: Path, parts: int) -> None:
    """Both on the same few part files, one after the other."""
    if not parts:
        return
    with tempfile.TemporaryDirectory(prefix="rtxscale-bench-") as few:
        for path in [directory / "trials.parquet", *sorted(directory.glob("*-telemetry.parquet"))[:parts]]:
            (Path(few) / path.name).symlink_to(path.absolute())
        own = in_own_process("--summarise", Path(few))
        try:
            other = in_own_process("--summarise-pandas", directory, str(parts))
        except subprocess.CalledProcessError:
            print("  pandas: not installed, not compared")
            return
    print(
        f"  pandas {other['pandas']} on {other['rows']:,} rows: {other['seconds']:.1f} s, {other['busy']:.1f} s of "
        f"processor time, {other['gib']:.2f} GiB; polars {own['seconds']:.1f} s, {own['busy']:.1f} s, "
        f"{own['gib']:.2f} GiB: {other['seconds'] / own['seconds']:.1f} times as long"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--summarise"]:
        summarise(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["--summarise-pandas"]:
        summarise_pandas(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
