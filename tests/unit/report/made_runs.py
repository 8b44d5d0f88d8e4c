"""Made-up runs for the report's tests: written by the real writer, concluded by the real analysis.

`h200_run` is a weak sweep of communication settings on 1, 2 and 4 GPUs; `cpu_run` is a weak and strong study of CPU
workers, like the quickstart. Values are plausible, not measured.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from dataclasses import dataclass
from pathlib import Path

from rtxscale.analysis.conclude import conclude
from rtxscale.analysis.conclusions import Conclusions
from rtxscale.results.read import Run
from rtxscale.results.schema import table
from rtxscale.results.write import RunWriter
from rtxscale.spec.cell import Cell, Trial
from rtxscale.spec.sweep import Sweep

START_NS = 1_790_000_000_000_000_000
MIB = 2**20
CHANNEL_SPEED = {"auto": 313.0, "1": 20.9, "2": 41.8, "4": 82.4, "8": 158.0}


@dataclass(frozen=True)
class Made:
    run: Run
    conclusions: Conclusions


def h200_sweep(name: str = "nccl-resnet50", question: str = "Which NCCL settings scale ResNet-50 best here?") -> Sweep:
    return Sweep.model_validate(
        {
            "name": name,
            "question": question,
            "study": "weak",
            "workload": {"kind": "vision", "model": "resnet50", "batch_per_gpu": 128},
            "collectives": {"sizes_mib": [1, 64, 512]},
            "axes": {
                "gpus": [1, 2, 4],
                "nccl.algorithm": ["auto", "ring", "tree"],
                "nccl.channels": ["auto", 1, 2, 4, 8],
                "nccl.p2p": ["auto", "disabled"],
                "ddp.bucket_mib": ["auto", 1, 100],
            },
        }
    )


def h200_points() -> list[dict]:
    points = [{"gpus": 1}]
    for gpus, algorithm, channels, p2p, bucket in itertools.product(
        (2, 4), ("auto", "ring", "tree"), ("auto", 1, 2, 4, 8), ("auto", "disabled"), ("auto", 1, 100)
    ):
        nccl = {"algorithm": algorithm, "channels": channels, "p2p": p2p}
        points.append({"gpus": gpus, "nccl": nccl, "ddp": {"bucket_mib": bucket}})
    return points


def h200_speed(cell: Cell) -> float:
    """Images/s: a compute time and an exposed communication time that the settings change."""
    if cell.gpus == 1:
        return 128 / 0.0557
    bandwidth = _bandwidth(cell)
    bucket = {"auto": 1.0, 1: 1.25, 100: 1.1}[cell.ddp.bucket_mib]
    exposed = 0.0008 + 0.02 * bucket * (cell.gpus - 1) / bandwidth
    return cell.gpus * 128 / (0.0557 + exposed)


def h200_run(root: Path, *, visits: int = 2, hostile: str = "", device: str = "NVIDIA H200") -> Made:
    sweep = h200_sweep(question=hostile[:1000] or "Which NCCL settings scale ResNet-50 best here?")
    cells = [
        Cell.model_validate({"workload": sweep.workload.model_dump(), "collectives": {}, **point}, strict=False)
        for point in h200_points()
    ]
    return _made(root, sweep, cells, h200_speed, visits=visits, hostile=hostile, names=[hostile or device], gpu=True)


def cpu_run(root: Path, *, visits: int = 2) -> Made:
    workload = {"kind": "vision", "model": "resnet18", "image_size": 64, "precision": "fp32"}
    sweep = Sweep.model_validate(
        {
            "name": "quickstart",
            "question": "How well do two CPU workers share the work?",
            "study": "both",
            "workload": {**workload, "batch_per_gpu": 8, "global_batch": 8},
            "axes": {"gpus": [1, 2], "ddp.bucket_mib": ["auto", 1]},
            "visits": visits,
        }
    )
    shapes = [(1, 8, 8), (2, 8, 16), (2, 4, 8)]
    cells = [
        Cell.model_validate(
            {
                "gpus": gpus,
                "workload": {**workload, "batch_per_gpu": batch, "global_batch": total},
                "ddp": {"bucket_mib": bucket},
            }
        )
        for (gpus, batch, total) in shapes
        for bucket in (("auto", 1) if gpus > 1 else ("auto",))
    ]

    def speed(cell: Cell) -> float:
        share = 1.0 if cell.gpus == 1 else 0.81 if cell.workload.batch_per_gpu == 8 else 0.67
        return 41.0 * cell.gpus * share * (0.98 if cell.ddp.bucket_mib == 1 else 1.0)

    return _made(root, sweep, cells, speed, visits=visits, names=["AMD EPYC 7763"], gpu=False, study="both")


def large_run(root: Path, trials: int) -> Made:
    """Two visits of very many bucket sizes; telemetry, collectives and attestation of a few trials only."""
    sweep = h200_sweep(name="large")
    points = [
        Cell.model_validate({"workload": sweep.workload.model_dump(), **point}, strict=False) for point in h200_points()
    ]
    settings = [cell for cell in points if cell.ddp.bucket_mib == "auto"]
    cells = list(settings)
    for size in itertools.count(1):
        ddp = settings[0].ddp.model_copy(update={"bucket_mib": float(size)})
        cells += [cell.model_copy(update={"ddp": ddp}) for cell in settings if cell.gpus > 1]
        if len(cells) >= trials // 2:
            break

    def speed(cell: Cell) -> float:
        size = 25.0 if cell.ddp.bucket_mib == "auto" else float(cell.ddp.bucket_mib)
        exposed = 0.0 if cell.gpus == 1 else 0.001 + 0.01 * (1 + size / 100) * (cell.gpus - 1) / _bandwidth(cell)
        return cell.gpus * 128 / (0.0557 + exposed)

    cells = cells[: trials // 2]
    return _made(root, sweep, cells, speed, visits=2, names=["NVIDIA H200"], gpu=True, thin=100)


def empty_run(root: Path) -> Made:
    with RunWriter.open(root, h200_sweep(), "name: made-up\n", fresh=True) as writer:
        run_dir = writer.run_dir
    run = Run.open(run_dir)
    return Made(run, conclude(run))


def _bandwidth(cell: Cell) -> float:
    if cell.nccl.p2p == "disabled":
        return 26.5
    return CHANNEL_SPEED[str(cell.nccl.channels)] * (0.9 if cell.nccl.algorithm == "tree" else 1.0)


def _made(root, sweep, cells, speed, *, visits, names, gpu, hostile="", study="weak", thin=1) -> Made:
    random.seed(7)
    trials, collectives, attestation, now = [], [], [], START_NS
    for visit in range(1, visits + 1):
        session_factor = math.exp(random.gauss(0, 0.002))
        for position, cell in enumerate(cells):
            now += 9_000_000_000 if position or visit == 1 else 3_600_000_000_000
            rate = speed(cell) * session_factor * math.exp(random.gauss(0, 0.002))
            trial = Trial(cell=cell, visit=visit)
            row = _trial_row(sweep, trial, rate, now, position, names, gpu, study)
            trials.append({**row, "workload": hostile or row["workload"]})
            if cell.collectives and cell.gpus > 1:
                collectives += _collective_rows(trial, cell)
            if cell.gpus > 1 and gpu and position % thin == 0:
                attestation += _attestation_rows(trial, cell, hostile)
    trials.append(
        {
            **trials[-1],
            "trial_id": "f" * 12,
            "outcome": "oom",
            "throughput_per_s": None,
            "message": (hostile or "CUDA out of memory: tried to allocate 2.00 GiB; a batch of 96 would fit"),
            "window_start_ns": None,
        }
    )
    tables = {
        "trials": table("trials", trials),
        "collectives": table("collectives", collectives),
        "attestation": table("attestation", attestation),
        "telemetry": table("telemetry", _telemetry_rows(trials[::thin], gpu)),
        "environment": table("environment", _environment_rows(names, hostile, gpu)),
    }
    with RunWriter.open(root, sweep, "name: made-up\n", fresh=True) as writer:
        writer.check_environment("e" * 12)
        writer.commit({name: rows for name, rows in tables.items() if rows.num_rows})
        run_dir = writer.run_dir
    run = Run.open(run_dir)
    return Made(run, conclude(run))


def _axes(cell: Cell, sweep: Sweep) -> dict:
    return {path: cell.at(path) for path in sweep.axes}


def _trial_row(sweep, trial, rate, now, position, names, gpu, study) -> dict:
    cell = trial.cell
    step = (cell.workload.batch_per_gpu * cell.gpus) / rate
    return {
        "trial_id": trial.trial_id,
        "attempt": 1,
        "run_id": "made-up",
        "sweep_id": sweep.sweep_id,
        "cell_id": cell.cell_id,
        "session_id": f"{cell.gpus}-{cell.nccl.p2p}-{trial.visit}",
        "visit": trial.visit,
        "repeat": 1,
        "slot": 0,
        "position": position,
        "environment_id": "e" * 12,
        "study": study,
        "cell_json": cell.canonical(),
        "axes_json": json.dumps(_axes(cell, sweep)),
        "workload": cell.workload.label,
        "gpus": cell.gpus,
        "nodes": 1,
        "device": "cuda" if gpu else "cpu",
        "device_names": names,
        "gpu_uuids": [f"GPU-{rank:08x}-aaaa" for rank in range(cell.gpus)] if gpu else None,
        "batch_per_gpu": cell.workload.batch_per_gpu,
        "global_batch": cell.workload.batch_per_gpu * cell.gpus,
        "precision": cell.workload.precision,
        "compile": cell.workload.compile,
        "nccl_algorithm": cell.nccl.algorithm,
        "nccl_channels": str(cell.nccl.channels),
        "nccl_protocol": "auto",
        "nccl_p2p": cell.nccl.p2p,
        "ddp_bucket_mib": str(cell.ddp.bucket_mib),
        "isolation": "warm",
        "launcher": "ray",
        "profile": "quick",
        "outcome": "ok",
        "flags": ["host_bound"] if not gpu else [],
        "started_ns": now,
        "ended_ns": now + 8_500_000_000,
        "wall_s": 8.5,
        "warmup_s": 2.1,
        "warmup_steps": 30,
        "steady": True,
        "steady_criterion": "block means within 5 %, warm-up 1 to 20 s",
        "window_s": 3.1,
        "window_steps": 55,
        "window_start_ns": now + 4_000_000_000,
        "window_end_ns": now + 7_100_000_000,
        "outside_s": 0.31,
        "work_unit": "image",
        "throughput_per_s": rate,
        "step_time_p50_s": step,
        "step_time_p95_s": step * 1.03,
        "memory_peak_mib": 21800.0 if gpu else None,
        "power_w": 640.0 * cell.gpus if gpu else None,
        "temperature_max_c": 61.0 if gpu else None,
    }


def _collective_rows(trial: Trial, cell: Cell) -> list[dict]:
    rows = []
    for mib in (1, 64, 512):
        busbw = _bandwidth(cell) * mib / (mib + 6) * math.exp(random.gauss(0, 0.01))
        algbw = busbw * cell.gpus / (2 * (cell.gpus - 1))
        time_s = mib * MIB / algbw / 1e9
        rows.append(
            {
                "trial_id": trial.trial_id,
                "attempt": 1,
                "operation": "all_reduce",
                "size_bytes": mib * MIB,
                "dtype": "fp32",
                "iterations": 20,
                "time_mean_s": time_s,
                "time_p50_s": time_s,
                "time_p95_s": time_s,
                "algbw_gb_s": algbw,
                "busbw_gb_s": busbw,
            }
        )
    return rows


def _attestation_rows(trial: Trial, cell: Cell, hostile: str) -> list[dict]:
    asked = {"nccl.algorithm": cell.nccl.algorithm, "nccl.channels": str(cell.nccl.channels), "nccl.p2p": cell.nccl.p2p}
    seen = {"nccl.algorithm": "ring", "nccl.channels": "24", "nccl.p2p": "P2P/CUMEM"}
    return [
        {
            "trial_id": trial.trial_id,
            "attempt": 1,
            "subject": subject,
            "requested": value,
            "observed": seen[subject] if value == "auto" else value,
            "verdict": "honoured",
            "evidence": hostile or "NCCL log, TUNING line",
        }
        for subject, value in asked.items()
    ]


def _telemetry_rows(trials: list[dict], gpu: bool) -> list[dict]:
    rows = []
    for trial in trials:
        for tick in range(0, 9, 2):
            t_ns = trial["started_ns"] + tick * 1_000_000_000
            busy = 3 <= tick <= 7
            base = {"node": "node-1", "t_ns": t_ns, "trial_id": trial["trial_id"]}
            rows.append(
                {**base, "device": "host", "utilisation": 0.9 if busy and not gpu else random.gauss(0.13, 0.01)}
            )
            for index in range(4 if gpu else 0):
                used = busy and index < trial["gpus"]
                rows.append(
                    {
                        **base,
                        "device": "gpu",
                        "uuid": f"GPU-{index:08x}-aaaa",
                        "power_w": 120.0 + index + (510 * used) + random.gauss(8, 4),
                        "temperature_c": 38 + index + 22.0 * used,
                        "sm_clock_mhz": 1980.0 if used else 345.0,
                        "utilisation": 0.98 if used else 0.0,
                    }
                )
    return rows


def _environment_rows(names: list[str], hostile: str, gpu: bool) -> list[dict]:
    pairs = [
        ("software", "torch", "2.11.0+cu128"),
        ("software", "nccl", "2.28.9"),
        ("software", "python", "3.11.2"),
        ("host", "cpu", "2 x Xeon Platinum"),
        ("host", "kernel", "6.1.0"),
        ("setting", "matmul precision", hostile or "high"),
    ]
    if hostile:
        pairs += [("doctor", "text of nvidia-smi topo -m", hostile), ("doctor", hostile[:200], f"warning: {hostile}")]
    if gpu:
        pairs += [("gpu", "name", f"4x {names[0]}"), ("host", "driver", "580.95.05")]
    return [{"environment_id": "e" * 12, "node": "node-1", "subject": s, "name": n, "value": v} for s, n, v in pairs]
