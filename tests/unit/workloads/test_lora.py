"""LoRA on the tiny decoder: what is built, what is trained, and that it starts as its base."""

import importlib.util

import pytest
import torch
from made_context import made_context
from pydantic import ValidationError

from rtxscale.models.shapes import SIZES
from rtxscale.nccl.attest import Verdict
from rtxscale.spec.workload import LanguageWorkload, Matrix
from rtxscale.workloads.language import Language
from rtxscale.workloads.networks import adapters
from rtxscale.workloads.networks.adapters import attest_tuning, is_adapter
from rtxscale.workloads.registry import complaints

TINY = {"kind": "language", "size": "tiny", "context": 32, "batch_per_gpu": 2, "precision": "fp32"}
LORA = {"tuning": "lora", "lora_rank": 4, "lora_alpha": 8}


def declared(**fields):
    return LanguageWorkload.model_validate(TINY | fields)


def prepared(kept=None, **fields):
    return Language().prepare(made_context(declared(**fields), kept={} if kept is None else kept))


def losses(running, steps=10):
    found = []
    for _ in range(steps):
        running.step()
        found.append(running.loss())
    return found


def parameters(running):
    return {name: parameter.detach().clone() for name, parameter in running._wrapped.named_parameters()}


def test_only_adapters_move():
    running = prepared(**LORA)
    before = parameters(running)
    found = losses(running)
    after = parameters(running)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {name for name in before if is_adapter(name)}
    assert len(moved) == 2 * 2 * SIZES["tiny"].layers  # A and B of two targets in each block
    assert found[-1] < found[0]
    running.close()


def test_it_starts_as_its_base():
    base, adapted = prepared(), prepared(**LORA)
    own, full = parameters(adapted), parameters(base)
    assert all(
        torch.equal(own[name.replace("_proj.weight", "_proj.base_layer.weight")], full[name])
        if name.replace("_proj.weight", "_proj.base_layer.weight") in own
        else torch.equal(own[name], full[name])
        for name in full
    )
    assert losses(adapted, 1)[0] == pytest.approx(losses(base, 1)[0], rel=1e-6)


@pytest.mark.parametrize("targets", [["q_proj", "v_proj"], ["down_proj"], list(SIZES["tiny"].matrices)])
def test_as_many_weights_are_trained_as_the_shape_says(targets):
    running = prepared(**LORA, lora_targets=targets)
    shape = SIZES["tiny"]
    wanted = shape.layers * sum(4 * sum(shape.matrices[name]) for name in targets)
    trained = sum(p.numel() for p in running._wrapped.parameters() if p.requires_grad)
    held = sum(p.numel() for group in running._updates.optimizer.param_groups for p in group["params"])
    assert trained == held == wanted
    (row,) = [row for row in running.attest() if row.subject == "workload.tuning"]
    assert row.verdict == Verdict.HONOURED
    assert row.observed.startswith(f"lora, {wanted:,} of {shape.parameters + wanted:,} parameters trainable (")
    running.close()


def test_what_is_trained_is_attested_from_the_model():
    full = prepared()
    assert (
        attest_tuning(declared(), full._wrapped).observed == "full, 125,248 of 125,248 parameters trainable (100.000%)"
    )
    assert attest_tuning(declared(**LORA), full._wrapped).verdict == Verdict.REFUTED
    adapted = prepared(**LORA)
    assert attest_tuning(declared(), adapted._wrapped).verdict == Verdict.REFUTED
    assert attest_tuning(declared(**LORA | {"lora_rank": 8}), adapted._wrapped).verdict == Verdict.REFUTED
    next(p for p in adapted._wrapped.parameters() if not p.requires_grad).requires_grad = True
    row = attest_tuning(declared(**LORA), adapted._wrapped)
    assert (row.observed.partition(",")[0], row.verdict) == ("other weights", Verdict.REFUTED)


@pytest.mark.parametrize(("precision", "base"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_the_base_is_kept_in_what_it_computes_in_and_adapters_in_fp32(precision, base):
    running = prepared(**LORA | {"precision": precision})
    kinds = {(is_adapter(name), p.dtype) for name, p in running._wrapped.named_parameters()}
    assert kinds == {(False, base), (True, torch.float32)}
    found = losses(running)
    assert found[-1] < found[0]
    assert running.attest()[0].observed == precision


def test_a_warm_session_tells_full_from_lora():
    kept = {}
    fresh = losses(prepared(**LORA), 3)
    losses(prepared(kept), 3)
    assert losses(prepared(kept, **LORA), 3) == fresh
    model = kept["language"].model
    assert losses(prepared(kept, **LORA), 3) == fresh
    assert kept["language"].model is model
    prepared(kept, **LORA | {"lora_rank": 8})
    assert kept["language"].model is not model


@pytest.mark.parametrize("checkpointing", ["off", "on"])
def test_checkpointing_changes_no_loss(checkpointing):
    running = prepared(**LORA, checkpointing=checkpointing)
    running.step()
    (row,) = [row for row in running.attest() if row.subject == "workload.checkpointing"]
    assert row.verdict == Verdict.HONOURED
    assert row.observed.startswith(checkpointing)
    assert losses(running, 3) == pytest.approx(losses(prepared(**LORA), 4)[1:], rel=1e-6)


def test_the_targets_of_the_spec_are_those_of_the_model():
    from typing import get_args

    fused = ("qkv_proj", "gate_up_proj")  # of models of one's own
    assert tuple(name for name in get_args(Matrix) if name not in fused) == tuple(SIZES["tiny"].matrices)
    model = prepared()._wrapped
    block = {name.rpartition(".")[2]: module for name, module in model.model.layers[0].named_modules()}
    for name, (inputs, outputs) in SIZES["tiny"].matrices.items():
        assert tuple(block[name].weight.shape) == (outputs, inputs)


def test_a_target_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(ValidationError, match=r"q_proj.*down_proj"):
        declared(**LORA, lora_targets=["query"])


def test_without_the_library_the_plan_says_what_to_install(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(adapters.importlib.util, "find_spec", lambda name: None if name == "peft" else find(name))
    assert complaints([declared(**LORA), declared()]) == [adapters.MISSING]
    assert "rtxscale[finetune]" in adapters.MISSING
    assert complaints([declared()]) == []
    with pytest.raises(RuntimeError, match="rtxscale\\[finetune\\]"):
        prepared(**LORA)
