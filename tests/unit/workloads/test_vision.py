"""Training of image models: accumulation, optimizers, checkpointing."""

import pytest
import timm
import torch
from made_context import made_context

from rtxscale.nccl.attest import Verdict
from rtxscale.spec.workload import VisionWorkload
from rtxscale.workloads.networks.timm_models import cannot_checkpoint
from rtxscale.workloads.registry import complaints
from rtxscale.workloads.vision import LEARNING_RATES, Vision

# Without batch norm, whose statistics are those of a micro-batch.
TRANSFORMER = {"kind": "vision", "model": "test_vit", "image_size": 64, "classes": 10, "precision": "fp32"}
CONVOLUTIONS = {**TRANSFORMER, "model": "test_resnet", "image_size": 32}


def prepared(kept=None, **fields):
    return Vision().prepare(made_context(VisionWorkload.model_validate(fields), kept={} if kept is None else kept))


def losses(running, steps=4):
    found = []
    for _ in range(steps):
        running.step()
        found.append(running.loss())
    return found


def row_of(running, subject):
    return next(row for row in running.attest() if row.subject == subject)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_accumulation_equals_the_large_batch(optimizer):
    whole = losses(prepared(**TRANSFORMER, batch_per_gpu=8, optimizer=optimizer))
    running = prepared(**TRANSFORMER, batch_per_gpu=2, accumulation=4, optimizer=optimizer)
    assert running.work_per_step == 8
    assert losses(running) == pytest.approx(whole, rel=1e-5)
    assert abs(whole[-1] - whole[0]) > 1e-3, "the weights move far more than rounding"


def test_each_micro_step_has_autocast_and_scale_and_each_step_one_update(monkeypatch):
    running = prepared(**TRANSFORMER | {"precision": "fp16"}, batch_per_gpu=2, accumulation=4)
    outputs, scaled, cleared = [], [], []
    running._wrapped.register_forward_hook(lambda module, inputs, output: outputs.append(output.dtype))
    scale, zero_grad = running._updates.scaler.scale, running._updates.optimizer.zero_grad
    monkeypatch.setattr(
        running._updates.scaler, "scale", lambda loss: scaled.append(float(loss.detach())) or scale(loss)
    )
    monkeypatch.setattr(running._updates.optimizer, "zero_grad", lambda **how: cleared.append(how) or zero_grad(**how))
    running.step()
    assert outputs == [torch.float16] * 4
    assert sum(scaled) == pytest.approx(running.loss())
    assert max(scaled) < running.loss() / 2, "each micro-step counts for a quarter"
    assert len(cleared) == 1
    assert running._updates.scaler._growth_tracker.item() == 1, "one update of the scaler"


def test_scaled_accumulation_is_the_mean_of_its_micro_steps():
    fields = TRANSFORMER | {"precision": "fp16"}
    whole = losses(prepared(**fields, batch_per_gpu=8))
    assert losses(prepared(**fields, batch_per_gpu=2, accumulation=4)) == pytest.approx(whole, rel=5e-3)


@pytest.mark.parametrize(
    ("fields", "kind", "rate"),
    [
        ({}, torch.optim.SGD, 0.01),
        ({"optimizer": "adamw"}, torch.optim.AdamW, 0.001),
        ({"learning_rate": 0.1}, torch.optim.SGD, 0.1),
        ({"optimizer": "adamw", "learning_rate": 0.0003}, torch.optim.AdamW, 0.0003),
    ],
)
def test_the_optimizer_is_the_one_asked_for(fields, kind, rate):
    running = prepared(**CONVOLUTIONS, batch_per_gpu=2, **fields)
    assert type(running._updates.optimizer) is kind
    assert running._updates.optimizer.param_groups[0]["lr"] == rate
    assert LEARNING_RATES == {"sgd": 0.01, "adamw": 0.001}


@pytest.mark.parametrize("model", [TRANSFORMER, CONVOLUTIONS], ids=["transformer", "convolutions"])
def test_checkpointing_is_seen_and_changes_no_loss(model):
    kept = {}
    plain = prepared(kept, **model, batch_per_gpu=2)
    assert row_of(plain, "workload.checkpointing").verdict == Verdict.NOT_ATTESTED
    wanted = losses(plain)
    assert row_of(plain, "workload.checkpointing").observed == "off"
    plain.close()
    recomputed = prepared(kept, **model, batch_per_gpu=2, checkpointing="on")
    assert losses(recomputed) == pytest.approx(wanted, rel=1e-6)
    row = row_of(recomputed, "workload.checkpointing")
    assert row.observed.startswith("on, ")
    assert row.verdict == Verdict.HONOURED
    recomputed.close()
    again = prepared(kept, **model, batch_per_gpu=2)
    assert losses(again) == wanted
    assert row_of(again, "workload.checkpointing").observed == "off"


@pytest.mark.parametrize("wanted", ["off", "on"])
def test_checkpointing_that_is_not_what_was_asked_for_is_refuted(wanted):
    running = prepared(**CONVOLUTIONS, batch_per_gpu=2, checkpointing=wanted)
    running._wrapped.set_grad_checkpointing(wanted == "off")
    running.step()
    assert row_of(running, "workload.checkpointing").verdict == Verdict.REFUTED


def test_a_model_that_cannot_be_checkpointed_is_named_before_anything_runs():
    asked = [
        VisionWorkload.model_validate(CONVOLUTIONS | {"model": "vgg11", "checkpointing": wanted})
        for wanted in ("on", "off")
    ]
    (complaint,) = complaints(asked)
    assert complaint == (
        f"workload.checkpointing: found on, which timm {timm.__version__} does not have for vgg11; expected off"
    )
    assert complaints(asked[1:]) == []
    assert cannot_checkpoint("test_resnet") == ""
