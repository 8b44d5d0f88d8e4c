"""What the tool itself costs on a cluster that nobody has at hand, and whether it finds a law that was planted.

    python tests/bench/simulate.py wide                 64 nodes x 8 simulated GPUs: 1,000 baselines and larger sizes
    python tests/bench/simulate.py long                 10,500 simulated trials end to end
    python tests/bench/simulate.py raylets --nodes 4    the same pipeline on a Ray cluster of 4 real raylets
    python tests/bench/simulate.py long --limit-minutes 7 --results DIR     in slices: the same command continues

How to read it. Workers are simulated: `run.simulated_session` stands where a worker group stands and reports numbers
from a planted law, so no rank, model, NCCL or GPU is part of this. Everything else is the real thing: the sweep
command as a process of its own, a Ray cluster, Tune, hub, foreman, telemetry actors, commits with fsync, `show` and
`report`. Seconds per trial are those between the starts of two trials of one session, so they hold all that the sweep
does between measurements; a session change is given beside them. Memory is the resident set of the sweep's process,
looked at every half second, and after it that of `show` and `report`. The exit code is 1 where the sweep is not
complete or more than one planted parameter is outside its 95 % interval, which one in twenty is by chance; costs are
only printed, as timings of a shared machine are no test.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl
import psutil

from rtxscale.analysis.conclude import conclude
from rtxscale.analysis.conclusions import Conclusions
from rtxscale.results.read import Run

LOOK_S = 0.5
NODES_S = 600
MIB = 2**20
ENDS = 500
"""Trials at each end of the run whose cost is compared: does it grow?"""
CONTENTION, COHERENCY, CROSS_NODE = 0.01, 1e-4, 0.1
SWEEP = """\
name: {name}
question: What does the tool cost, and does it find the planted law?
study: strong
workload:
  {{kind: simulated, machines: {machines}, gpus_per_machine: {cards}, contention: {contention}, coherency: {coherency},
   cross_node_loss: {cross_node}, global_batch: 8192, noise: 0.005, session_noise: 0.005}}
axes:
{axes}
visits: {visits}
repeats: {repeats}
"""
KNOBS = "  nccl.algorithm: [auto, ring, tree]\n  nccl.channels: [auto, 1, 2, 4, 8]\n"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One bench: the simulated cluster, the axes, and how often to visit."""

    machines: int
    axes: str
    visits: int
    repeats: int
    cross_node: float = 0.0
    cards: int = 8

    def text(self, name: str) -> str:
        """The sweep file."""
        return SWEEP.format(
            name=name,
            machines=self.machines,
            cards=self.cards,
            contention=CONTENTION,
            coherency=COHERENCY,
            cross_node=self.cross_node,
            axes=self.axes,
            visits=self.visits,
            repeats=self.repeats,
        )


PARTS = {
    "wide": Part(machines=64, axes="  gpus: [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]\n", visits=2, repeats=1),
    "long": Part(machines=8, axes="  gpus: [1, 2, 4, 8, 16, 32, 64]\n" + KNOBS, visits=6, repeats=10),
    "raylets": Part(
        machines=4,
        axes="  gpus: [1, 2, 4, 8]\n  placement: [packed, cross_node]\n" + KNOBS,
        visits=2,
        repeats=2,
        cross_node=CROSS_NODE,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Process:
    """How a command ended: seconds, largest resident set in MiB, exit code."""

    wall_s: float
    peak_mib: float
    code: int


def watched(arguments: list[str], log: Path) -> Process:
    """Run the command line in a process of its own and look at its memory."""
    began, peak = time.monotonic(), 0.0
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "rtxscale", *arguments], stdout=output, stderr=subprocess.STDOUT
        )
        while process.poll() is None:
            try:
                peak = max(peak, psutil.Process(process.pid).memory_info().rss / MIB)
            except psutil.NoSuchProcess:
                break
            time.sleep(LOOK_S)
    return Process(wall_s=time.monotonic() - began, peak_mib=peak, code=process.wait())


@contextmanager
def raylets(nodes: int) -> Iterator[list[str]]:
    """A Ray cluster of so many raylets on this host, as arguments of the sweep command; none of its own for 0."""
    if not nodes:
        yield []
        return
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    try:
        for _ in range(nodes - 1):
            cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes(timeout=NODES_S)
        yield ["--address", cluster.address]
    finally:
        cluster.shutdown()


def costs(run: Run) -> dict[str, float]:
    """Milliseconds between the starts of trials: within a session, at its change, and whether they grow."""
    trials = run.frame("trials").select("started_ns", "session_id").sort("started_ns").collect()
    gaps = trials.with_columns(
        gap_ms=pl.col("started_ns").diff() / 1e6, same=pl.col("session_id") == pl.col("session_id").shift()
    ).filter(pl.col("gap_ms") < 60_000)  # the pause between two slices
    inside, changes = gaps.filter("same")["gap_ms"], gaps.filter(~pl.col("same"))["gap_ms"]
    told = {"trial_ms_median": inside.median(), "trial_ms_p95": inside.quantile(0.95)}
    told |= {"session_change_ms_median": changes.median(), "session_change_ms_p95": changes.quantile(0.95)}
    if gaps.height > 4 * ENDS:
        first, last = gaps.filter("same").head(ENDS)["gap_ms"], gaps.filter("same").tail(ENDS)["gap_ms"]
        told |= {f"first_{ENDS}_ms_median": first.median(), f"last_{ENDS}_ms_median": last.median()}
    return {name: float(value) for name, value in told.items() if value is not None}  # type: ignore[arg-type]


def sizes(run_dir: Path) -> dict[str, float]:
    """MiB and files of the run, the report aside, and MiB by table."""
    files = [path for path in run_dir.rglob("*") if path.is_file() and path.name != "report.html"]
    run = Run.open(run_dir)
    tables: dict[str, int] = {}
    for part in (part for record in run.records for part in record.files):
        tables[part.table] = tables.get(part.table, 0) + (run_dir / part.path).stat().st_size
    whole = {"run_mib": sum(path.stat().st_size for path in files) / MIB, "files": float(len(files))}
    return whole | {f"{name}_mib": size / MIB for name, size in sorted(tables.items())}


def found(conclusions: Conclusions, part: Part) -> list[dict[str, Any]]:
    """Planted parameters beside what the run says of them."""
    rows = []
    law = conclusions.fits.filter((pl.col("law") == "USL") & pl.col("is_default"))
    planted = {"contention": CONTENTION, "coherency": COHERENCY}
    for row in law.iter_rows(named=True):
        if row["parameter"] in planted and not part.cross_node and row["value"] is not None:
            rows.append(_compared(f"USL {row['parameter']}", planted[row["parameter"]], row))
    for row in conclusions.placements.filter(pl.col("link_class") == "cross_node").iter_rows(named=True):
        bounds = {"value": row["penalty"], "low": 1 - row["ratio_high"], "high": 1 - row["ratio_low"]}
        rows.append(_compared(f"penalty across nodes, {row['gpus']} GPUs", part.cross_node, bounds))
    return rows


def _compared(name: str, planted: float, row: Mapping[str, Any]) -> dict[str, Any]:
    inside = row["low"] is not None and row["low"] <= planted <= row["high"]
    return {"what": name, "planted": planted, "inside": inside} | {key: row[key] for key in ("value", "low", "high")}


def false_effects(conclusions: Conclusions) -> dict[str, int]:
    """Settings that change nothing: how many comparisons there were, and how many were called an effect."""
    effects = conclusions.effects.filter(pl.col("axis").str.starts_with("nccl."))
    return {"comparisons": effects.height, "called": effects.filter(pl.col("p_holm") < 0.05).height}


def main() -> int:
    """Run one part and print what it cost and what it found, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=sorted(PARTS))
    parser.add_argument("--results", type=Path, help="where to keep the run; else a temporary directory")
    parser.add_argument("--limit-minutes", type=float, help="stop after so long; the same command continues")
    parser.add_argument("--nodes", type=int, default=0, help="raylets of a Ray cluster to run on (0: one of its own)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rtxscale-simulate-") as scratch:
        return bench(arguments.part, arguments.results or Path(scratch), arguments.limit_minutes, arguments.nodes)


def bench(name: str, root: Path, limit_minutes: float | None, nodes: int) -> int:
    """One part on its cluster; 0 where the sweep is complete and everything planted was found."""
    part, log = PARTS[name], root / f"{name}.log"
    root.mkdir(parents=True, exist_ok=True)
    sweep = root / f"{name}.yaml"
    sweep.write_text(part.text(f"simulate-{name}"))
    limit = [] if limit_minutes is None else ["--limit-minutes", str(limit_minutes)]
    nodes = nodes if name == "raylets" else 0
    began = time.monotonic()
    with raylets(nodes) as address:
        start_s = time.monotonic() - began
        swept = watched(["sweep", str(sweep), "--results", str(root), "--no-report", *limit, *address], log)
        cluster_mib = sum(one.memory_info().rss for one in psutil.Process().children(recursive=True)) / MIB
    run_dir = max((path.parent for path in root.glob("*/run.json")), key=lambda path: path.stat().st_mtime)
    rows = Run.open(run_dir).frame("trials").select(pl.len()).collect().item()
    said: dict[str, Any] = {
        "part": name,
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "versions": {one: version(one) for one in ("ray", "pyarrow", "polars")} | {"python": platform.python_version()},
        "host": f"{psutil.cpu_count()} CPUs, load {psutil.getloadavg()[0]:.1f}",
        "raylets": {"nodes": nodes, "start_s": round(start_s), "mib": round(cluster_mib)} if nodes else 1,
        "trials": rows,
        "sweep": {"wall_s": round(swept.wall_s), "driver_peak_mib": round(swept.peak_mib), "exit": swept.code},
    }
    said["costs"] = {key: round(value, 1) for key, value in costs(Run.open(run_dir)).items()}
    if swept.code == 0:
        for command in ("show", "report"):
            seen = watched([command, run_dir.name, "--results", str(root)], log)
            said[command] = {"wall_s": round(seen.wall_s, 1), "peak_mib": round(seen.peak_mib), "exit": seen.code}
        said["report"]["mib"] = round((run_dir / "report.html").stat().st_size / MIB, 1)
        said["size"] = {key: round(value, 2) for key, value in sizes(run_dir).items()}
        conclusions = conclude(Run.open(run_dir))
        said["headline"], said["found"] = conclusions.headline, found(conclusions, part)
        said["effects_of_nothing"] = false_effects(conclusions)
    print(json.dumps(said, indent=1))
    complete = swept.code == 0 and all(said[command]["exit"] == 0 for command in ("show", "report"))
    missed = [one["what"] for one in said["found"] if not one["inside"]] if complete else []
    return 0 if complete and said["found"] and len(missed) <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
