"""Rows of results as a sweep would have written them, for tests of the analysis. Not a test module."""

import dataclasses
import math

import polars as pl

from rtxscale.results.read import polars_schema
from rtxscale.results.schema import table
from rtxscale.spec.cell import Cell, Trial


def made_cell(gpus, per_gpu, *, model="resnet50", precision="bf16", **nccl_and_ddp):
    """A resolved cell; keywords such as `algorithm`, `channels`, `p2p` and `bucket_mib` set the communication."""
    bucket = {"bucket_mib": nccl_and_ddp.pop("bucket_mib")} if "bucket_mib" in nccl_and_ddp else {}
    workload = {
        "kind": "vision",
        "model": model,
        "batch_per_gpu": per_gpu,
        "global_batch": per_gpu * gpus,
        "precision": precision,
    }
    return Cell.model_validate({"gpus": gpus, "workload": workload, "nccl": nccl_and_ddp, "ddp": bucket})


def made_row(cell, throughput, *, visit=1, repeat=1, slot=0, study="weak", stage="sweep", **columns):
    """One row of the trials table; `session` defaults to one per GPU count, P2P setting, slot and visit."""
    trial = Trial(cell=cell, visit=visit, repeat=repeat, slot=slot, stage=stage)
    session = columns.pop("session", f"s{cell.gpus}-{cell.nccl.p2p}-{slot}-{visit}")
    row = {
        "trial_id": trial.trial_id,
        "attempt": 1,
        "cell_id": cell.cell_id,
        "session_id": session,
        "visit": visit,
        "repeat": repeat,
        "slot": slot,
        "stage": stage,
        "study": study,
        "cell_json": cell.canonical(),
        "axes_json": "{}",
        "workload": cell.workload.label,
        "gpus": cell.gpus,
        "device": "cuda",
        "device_names": ["NVIDIA H200"],
        "outcome": "ok",
        "profile": "published",
        "throughput_per_s": throughput,
        "work_unit": "image",
        "window_steps": 10,
        "loss_last": 2.3,
    }
    if cell.workload.kind == "vision":
        row |= {
            name: getattr(cell.workload, name) for name in ("batch_per_gpu", "global_batch", "precision", "compile")
        }
        row["work"] = 10.0 * cell.workload.global_batch
    return row | columns


def trials_frame(rows):
    return pl.DataFrame(pl.from_arrow(table("trials", rows)), schema=polars_schema("trials"))


def collectives_frame(rows=()):
    return pl.DataFrame(pl.from_arrow(table("collectives", rows)), schema=polars_schema("collectives"))


def visits(cell, *throughputs, **columns):
    """One row per throughput, visit after visit."""
    return [made_row(cell, value, visit=number, **columns) for number, value in enumerate(throughputs, start=1)]


def all_frames(conclusions):
    """Every frame of the conclusions by name."""
    found = {field.name: getattr(conclusions, field.name) for field in dataclasses.fields(conclusions)}
    return {name: frame for name, frame in found.items() if isinstance(frame, pl.DataFrame)}


def assert_sound(conclusions):
    """Every frame has its declared columns, and no number in it is NaN or infinite."""
    from rtxscale.analysis import tables as contract

    for name, frame in all_frames(conclusions).items():
        declared = getattr(contract, name.upper())
        assert list(frame.columns)[: len(declared)] == list(declared), name
        assert dict(list(frame.schema.items())[: len(declared)]) == declared, name
        for column in frame.select(pl.col(pl.Float64)):
            assert all(value is None or math.isfinite(value) for value in column), (name, column.name)
    assert conclusions.headline
    assert "nan" not in " ".join([conclusions.headline, *conclusions.remarks]).lower().replace("nanosecond", "")
    assert "None" not in " ".join([conclusions.headline, *conclusions.remarks])
