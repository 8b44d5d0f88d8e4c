"""The memory model against peaks that PyTorch measured: one GPU, a warm session for each kind, cell after cell.

With `RTXSCALE_MEMORY_JSON=FILE` each cell is written to FILE as soon as it is measured, predicted or not.
"""

import json
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path

import pytest
from test_rank_gpu import MEASURE, serving

from rtxscale.plan.feasibility import training_of
from rtxscale.spec.cell import Trial

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(1500)]
MIB = 2**20
WITHIN = 0.10
QUICK = MEASURE | {"window_s": 0.5, "min_steps": 3, "tolerance": 9.0}
KEPT = "RTXSCALE_MEMORY_JSON"
LANGUAGE = {"kind": "language", "size": "1b"}
LORA = {**LANGUAGE, "tuning": "lora"}
RESNET = {"kind": "vision", "model": "resnet50"}
SWIN = {"kind": "vision", "model": "swin_base_patch4_window7_224", "batch_per_gpu": 64}
SDXL = {"kind": "diffusion", "model": "sdxl"}
CELLS = {
    "resnet50 x256": {**RESNET, "batch_per_gpu": 256},
    "resnet50 x64": {**RESNET, "batch_per_gpu": 64},
    "resnet50 x256, fp32": {**RESNET, "batch_per_gpu": 256, "precision": "fp32"},
    "resnet50 x256, tf32": {**RESNET, "batch_per_gpu": 256, "precision": "tf32"},
    "resnet50 x256, fp16": {**RESNET, "batch_per_gpu": 256, "precision": "fp16"},
    "resnet50 x256, channels first": {**RESNET, "batch_per_gpu": 256, "channels_last": False},
    "resnet50 x256, fp32, channels first": {
        **RESNET,
        "batch_per_gpu": 256,
        "precision": "fp32",
        "channels_last": False,
    },
    "resnet50 x256, checkpointing": {**RESNET, "batch_per_gpu": 256, "checkpointing": "on"},
    "resnet50 x128, accumulated": {**RESNET, "batch_per_gpu": 128, "accumulation": 2},
    "resnet50 x64, 320 pixels": {**RESNET, "batch_per_gpu": 64, "image_size": 320},
    "swin x64": SWIN,
    "swin x64, fp32": {**SWIN, "precision": "fp32"},
    "swin x64, adamw": {**SWIN, "optimizer": "adamw"},
    "swin x64, checkpointing": {**SWIN, "checkpointing": "on"},
    "swin x8": {**SWIN, "batch_per_gpu": 8},
    "vit x128": {"kind": "vision", "model": "vit_base_patch16_224", "batch_per_gpu": 128},
    "vit x128, fp32": {
        "kind": "vision",
        "model": "vit_base_patch16_224",
        "batch_per_gpu": 128,
        "precision": "fp32",
    },
    "convnext x64": {"kind": "vision", "model": "convnext_base", "batch_per_gpu": 64},
    "efficientnet x128": {"kind": "vision", "model": "efficientnet_b0", "batch_per_gpu": 128},
    "sdxl x1": {**SDXL, "batch_per_gpu": 1},
    "sdxl x2": {**SDXL, "batch_per_gpu": 2},
    "sdxl x1, checkpointing": {**SDXL, "batch_per_gpu": 1, "checkpointing": "on"},
    "sdxl x2, checkpointing": {**SDXL, "batch_per_gpu": 2, "checkpointing": "on"},
    "sdxl x8, checkpointing": {**SDXL, "batch_per_gpu": 8, "checkpointing": "on"},
    "sdxl x1, channels first": {**SDXL, "batch_per_gpu": 1, "channels_last": False},
    "sdxl x4, 512 pixels": {**SDXL, "batch_per_gpu": 4, "image_size": 512},
    "sdxl x1, fp32": {**SDXL, "batch_per_gpu": 1, "precision": "fp32"},
    "350m at 2k": {**LANGUAGE, "size": "350m", "context": 2048, "batch_per_gpu": 4},
    "350m at 2k, fp32": {**LANGUAGE, "size": "350m", "context": 2048, "batch_per_gpu": 2, "precision": "fp32"},
    "350m at 2k, math": {**LANGUAGE, "size": "350m", "context": 2048, "attention": "math"},
    "350m at 2k, efficient": {
        **LANGUAGE,
        "size": "350m",
        "context": 2048,
        "batch_per_gpu": 4,
        "attention": "efficient",
    },
    "350m at 2k, accumulated": {**LANGUAGE, "size": "350m", "context": 2048, "batch_per_gpu": 4, "accumulation": 2},
    "1b at 2k": {**LANGUAGE, "context": 2048},
    "1b at 2k, checkpointing": {**LANGUAGE, "context": 2048, "batch_per_gpu": 4, "checkpointing": "on"},
    "1b at 2k, fp16": {**LANGUAGE, "context": 2048, "precision": "fp16"},
    "1b at 4k": {**LANGUAGE, "context": 4096},
    "1b at 8k": {**LANGUAGE, "context": 8192},
    "1b at 8k, checkpointing": {**LANGUAGE, "context": 8192, "checkpointing": "on"},
    "1b at 8k, efficient": {**LANGUAGE, "context": 8192, "attention": "efficient", "checkpointing": "on"},
    "1b LoRA at 2k": {**LORA, "context": 2048, "batch_per_gpu": 4},
    "1b LoRA at 8k": {**LORA, "context": 8192},
    "7b LoRA at 2k": {**LORA, "size": "7b", "context": 2048},
    "7b LoRA at 4k, checkpointing": {**LORA, "size": "7b", "context": 4096, "checkpointing": "on"},
    "resnet50 x256, compiled": {**RESNET, "batch_per_gpu": 256, "compile": "default"},
    "swin x64, compiled": {**SWIN, "compile": "default"},
}


def trial(fields):
    workload = {"batch_per_gpu": 1, "precision": "bf16"} | fields
    return Trial.model_validate({"cell": {"workload": workload, "measure": QUICK}, "visit": 1})


def predicted_mib(one):
    """What the model says of a trial's peak, in MiB; None where it says nothing."""
    training = training_of(one.cell.workload, 1)
    return None if training is None else training.peak / MIB


def sessions(names):
    """Cells that share a warm session: neighbours of the same kind, whose models are not kept beside another kind's."""
    return [list(group) for _, group in groupby(names, key=lambda name: CELLS[name]["kind"])]


def measured_cells(names, directory):
    """Every cell as plain data as soon as it has ended; one that takes its session along does not take the others."""
    trials = {name: trial(CELLS[name]) for name in names}
    left = list(names)
    while left:
        at_work = left[0]
        try:
            session = serving({name: trials[name] for name in left}, directory / f"mailbox-{len(left)}")
            for name, report, seconds in session:
                left.remove(name)
                at_work = left[0] if left else ""
                ended_well = str(report.outcome) in ("ok", "unsteady")
                yield cell_row(name, report if ended_well else None, report.message, seconds)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            if at_work:
                left.remove(at_work)
                yield cell_row(at_work, None, str(error), None)


def cell_row(name, report, message, seconds):
    facts = {} if report is None else report.facts
    return {
        "name": name,
        "fields": trial(CELLS[name]).cell.workload.model_dump(mode="json", exclude_unset=True),
        "measured_mib": facts.get("memory_peak_mib"),
        "reserved_mib": facts.get("memory_reserved_mib"),
        "predicted_mib": predicted_mib(trial(CELLS[name])),
        "message": message,
        "seconds": seconds,
    }


def environment():
    """Hardware and versions that the peaks depend on."""
    import torch

    properties = torch.cuda.get_device_properties(0)
    found = {"gpu": properties.name, "memory_mib": properties.total_memory / MIB, "cuda": torch.version.cuda}
    found |= {"cudnn": torch.backends.cudnn.version(), "python": platform.python_version(), "torch": torch.__version__}
    for package in ("timm", "transformers", "diffusers", "peft"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """All cells that are not predicted to exceed this GPU, measured or failed, by name."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU, found none")
    room = 0.9 * torch.cuda.get_device_properties(0).total_memory / MIB
    fitting = [name for name, fields in CELLS.items() if (predicted_mib(trial(fields)) or 0) < room]
    found, kept = [], {"environment": environment(), "cells": []}
    for number, names in enumerate(sessions(fitting)):
        for row in measured_cells(names, tmp_path_factory.mktemp(f"memory-{number}")):
            found.append(row)
            print(shown(row), flush=True)
            if os.environ.get(KEPT):
                kept["cells"] = found
                Path(os.environ[KEPT]).write_text(json.dumps(kept, indent=1))
    return {row["name"]: row for row in found}


def shown(row):
    measured, told = row["measured_mib"], row["predicted_mib"]
    if measured is None:
        return f"{row['name']:<36} failed: {row['message']}"
    said = f"predicted {told:>9,.0f}  ratio {told / measured:.3f}" if told else "not predicted"
    return f"{row['name']:<36} measured {measured:>9,.0f} MiB  {said}"


@pytest.fixture(scope="module")
def peaks(cells):
    """Measured and predicted peaks in MiB of the cells that have both, by name."""
    both = ("measured_mib", "predicted_mib")
    return {name: tuple(row[key] for key in both) for name, row in cells.items() if all(row[key] for key in both)}


def test_every_cell_that_fits_is_measured(cells):
    assert not {name: row["message"] for name, row in cells.items() if row["measured_mib"] is None}


def test_the_model_is_within_a_tenth_of_the_measured_peak_for_a_dozen_cells(peaks):
    ratios = {name: told / measured for name, (measured, told) in peaks.items()}
    close = [name for name, ratio in ratios.items() if abs(ratio - 1) <= WITHIN]
    far = {name: round(ratio, 3) for name, ratio in ratios.items() if name not in close}
    assert len(close) >= 12, f"predicted over measured: {far}; of {len(ratios)} cells that fit this GPU"
    assert not far


@pytest.mark.parametrize("kind", ["vision", "diffusion", "language"])
def test_the_model_orders_the_cells_as_they_are(peaks, kind):
    """A model that says the same of every cell would be within a tenth of a few by chance."""
    names = [name for name in peaks if CELLS[name]["kind"] == kind]
    measured, told = (sorted(names, key=lambda name: peaks[name][place]) for place in (0, 1))
    assert max(abs(measured.index(name) - told.index(name)) for name in names) <= 3
