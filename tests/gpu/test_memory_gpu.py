"""The memory model against peaks that PyTorch measured: one GPU, one warm session, one cell after the other."""

import pytest
from test_rank_gpu import MEASURE, served

from rtxscale.models.memory import memory_of
from rtxscale.plan.feasibility import training_of
from rtxscale.spec.cell import Trial

pytestmark = pytest.mark.gpu
MIB = 2**20
WITHIN = 0.10
QUICK = MEASURE | {"window_s": 0.5, "min_steps": 3, "tolerance": 9.0}
LORA = {"tuning": "lora", "size": "1b"}
CELLS = {
    "350m at 2k": {"size": "350m", "context": 2048, "batch_per_gpu": 4},
    "350m at 2k, fp32": {"size": "350m", "context": 2048, "batch_per_gpu": 2, "precision": "fp32"},
    "350m at 2k, math": {"size": "350m", "context": 2048, "batch_per_gpu": 1, "attention": "math"},
    "350m at 2k, efficient": {"size": "350m", "context": 2048, "batch_per_gpu": 4, "attention": "efficient"},
    "350m at 2k, accumulated": {"size": "350m", "context": 2048, "batch_per_gpu": 4, "accumulation": 2},
    "1b at 2k": {"context": 2048},
    "1b at 2k, checkpointing": {"context": 2048, "batch_per_gpu": 4, "checkpointing": "on"},
    "1b at 2k, fp16": {"context": 2048, "precision": "fp16"},
    "1b at 4k": {"context": 4096},
    "1b at 8k": {"context": 8192},
    "1b at 8k, checkpointing": {"context": 8192, "checkpointing": "on"},
    "1b at 8k, efficient": {"context": 8192, "attention": "efficient", "checkpointing": "on"},
    "1b LoRA at 2k": {**LORA, "context": 2048, "batch_per_gpu": 4},
    "1b LoRA at 8k": {**LORA, "context": 8192},
    "7b LoRA at 2k": {**LORA, "size": "7b", "context": 2048},
    "7b LoRA at 4k, checkpointing": {**LORA, "size": "7b", "context": 4096, "checkpointing": "on"},
}


def trial(fields):
    workload = {"kind": "language", "size": "1b", "batch_per_gpu": 1, "precision": "bf16"} | fields
    return Trial.model_validate({"cell": {"workload": workload, "measure": QUICK}, "visit": 1})


@pytest.fixture(scope="module")
def peaks(tmp_path_factory):
    """Measured and predicted peaks in MiB, by cell; cells that this GPU has no room for are left out."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU, found none")
    room = 0.9 * torch.cuda.get_device_properties(0).total_memory / MIB
    trials = {name: trial(fields) for name, fields in CELLS.items()}
    predicted = {name: memory_of(training_of(one.cell.workload, 1)).peak / MIB for name, one in trials.items()}
    fitting = {name: one for name, one in trials.items() if predicted[name] < room}
    answers = served(fitting, tmp_path_factory.mktemp("memory") / "mailbox")
    found = {}
    for name, (report, _) in answers.items():
        assert str(report.outcome) == "ok", f"{name}: {report.message}"
        found[name] = (report.facts["memory_peak_mib"], predicted[name])
        measured, told = found[name]
        print(f"{name:<30} measured {measured:>9,.0f} MiB  predicted {told:>9,.0f}  ratio {told / measured:.3f}")
    return found


def test_the_model_is_within_a_tenth_of_the_measured_peak_for_a_dozen_cells(peaks):
    ratios = {name: told / measured for name, (measured, told) in peaks.items()}
    close = [name for name, ratio in ratios.items() if abs(ratio - 1) <= WITHIN]
    far = {name: round(ratio, 3) for name, ratio in ratios.items() if name not in close}
    assert len(close) >= 12, f"predicted over measured: {far}; of {len(ratios)} cells that fit this GPU"
    assert not far


def test_the_model_orders_the_cells_as_they_are(peaks):
    """A model that says the same of every cell would be within a tenth of a few by chance."""
    measured = sorted(peaks, key=lambda name: peaks[name][0])
    told = sorted(peaks, key=lambda name: peaks[name][1])
    assert max(abs(measured.index(name) - told.index(name)) for name in peaks) <= 2
