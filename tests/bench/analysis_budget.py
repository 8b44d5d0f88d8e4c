"""What the analysis costs against its budget: an efficiency table of many trials, and a summary of much telemetry.

Not a test: run it on a quiet machine, as `python tests/bench/analysis_budget.py`. Prints one line per budget with what
was measured, what it was measured with, and the ratio to the bar; a figure that was scaled up says so. With pandas
installed, the same telemetry summary in pandas is timed beside it.

    efficiency table with intervals, 100,000 trials: at most 2 s
    100 M telemetry rows summarised per trial: at most 20 s in at most 4 GiB
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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
        for gpus in sizes:
            workload = {"batch_per_gpu": 64, "global_batch": 64 * gpus, "kind": "vision", "model": f"m{setting // 40}"}
            nccl = {"channels": setting % 40 + 1} if gpus > 1 else {}
            cells.append((gpus, json.dumps({"ddp": {}, "gpus": gpus, "nccl": nccl, "workload": workload})))
    texts = [text for _, text in cells for _ in range(visits)]
    gpus = np.repeat([size for size, _ in cells], visits)
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
    axes = ("gpus", "nccl.channels", "workload.model")
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
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"seconds": seconds, "busy": busy, "gib": gib}))


def summarise_pandas(directory: Path) -> None:
    """The same numbers with pandas, part by part."""
    import pandas as pd

    trials = pd.read_parquet(directory / "trials.parquet").explode("gpu_uuids").rename(columns={"gpu_uuids": "uuid"})
    start = time.perf_counter()
    columns = ["trial_id", "attempt", "uuid", "t_ns", "power_w", "temperature_c", "sm_clock_mhz", "throttle_reasons"]
    for path in sorted(directory.glob("*-telemetry.parquet")):
        part = pd.read_parquet(path, columns=columns).merge(trials, on=["trial_id", "attempt", "uuid"])
        part = part[part["t_ns"].between(part["window_start_ns"], part["window_end_ns"])]
        part["reasons"] = part["throttle_reasons"].map(lambda words: ",".join(words))
        key = part.groupby(["trial_id", "attempt", "uuid", "reasons"])
        key.agg({"power_w": "mean", "temperature_c": "max", "sm_clock_mhz": "mean", "t_ns": "size"})
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}))


def in_own_process(how: str, directory: Path) -> dict[str, float]:
    """Seconds and peak memory of one summary."""
    command = [sys.executable, __file__, how, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=float, default=5e6, help="telemetry rows to really summarise")
    parser.add_argument("--directory", type=Path, default=None, help="where to put them; else a temporary directory")
    asked = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, polars {pl.__version__}")
    trials = made_trials(TRIALS)
    seconds = min(_timed(efficiencies, trials) for _ in range(3))
    print(f"efficiency table, {trials.height:,} trials: {seconds:.2f} s, {seconds / TRIALS_BAR_S:.2f} of the bar")
    directory = Path(tempfile.mkdtemp(dir=asked.directory, prefix="rtxscale-bench-"))
    try:
        write_telemetry(directory, int(asked.rows)).write_parquet(directory / "trials.parquet")
        _print_telemetry(directory, int(asked.rows))
    finally:
        shutil.rmtree(directory)


def _timed(function, *arguments) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def _print_telemetry(directory: Path, rows: int) -> None:
    found = in_own_process("--summarise", directory)
    scale = ROWS / rows
    said = "" if rows >= ROWS else f" (scaled up from {rows:,} rows, {found['seconds']:.2f} s)"
    ratio = found["seconds"] * scale / ROWS_BAR_S
    print(f"telemetry summary, {ROWS:,} rows: {found['seconds'] * scale:.1f} s{said}, {ratio:.2f} of the bar")
    print(
        f"  processor time {found['busy']:.2f} s: other load on the machine makes the wall time longer than it need be"
    )
    print(f"  peak memory at {rows:,} rows: {found['gib']:.2f} GiB, {found['gib'] / ROWS_BAR_GIB:.2f} of the bar")
    try:
        other = in_own_process("--summarise-pandas", directory)
    except subprocess.CalledProcessError:
        print("  pandas: not installed, not compared")
        return
    print(f"  pandas: {other['seconds']:.2f} s, {other['seconds'] / found['seconds']:.1f} times as long")


if __name__ == "__main__":
    modes = {"--summarise": summarise, "--summarise-pandas": summarise_pandas}
    if len(sys.argv) == 3 and sys.argv[1] in modes:
        modes[sys.argv[1]](Path(sys.argv[2]))
    else:
        main()
