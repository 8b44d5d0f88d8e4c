"""QLoRA by bitsandbytes: what it needs, that adapters train beside a base in four bits, and what memory it takes."""

import importlib.util
from dataclasses import replace
from importlib import metadata

import pytest
import torch
from made_context import made_context

from rtxscale.devices.inventory import Gpu, Inventory, Node
from rtxscale.models.memory import memory_of
from rtxscale.plan.feasibility import training_of
from rtxscale.plan.site import site_of
from rtxscale.plan.training_rules import quantised_base_is_whole
from rtxscale.spec.cell import Cell
from rtxscale.spec.workload import LanguageWorkload
from rtxscale.workloads.language import Language
from rtxscale.workloads.networks import quantisation
from rtxscale.workloads.registry import complaints

TINY = {"kind": "language", "size": "tiny", "context": 32, "batch_per_gpu": 4, "tuning": "qlora", "lora_rank": 4}
bitsandbytes = pytest.mark.skipif(
    importlib.util.find_spec("bitsandbytes") is None, reason="needs bitsandbytes: pip install 'rtxscale[finetune]'"
)


def declared(**fields):
    return LanguageWorkload.model_validate(TINY | fields)


def prepared(kept=None, **fields):
    context = made_context(declared(**fields), kept={} if kept is None else kept)
    return Language().prepare(context)


def losses(running, steps=6):
    found = []
    for _ in range(steps):
        running.step()
        found.append(running.loss())
    return found


@bitsandbytes
def test_adapters_train_beside_a_base_in_four_bits():
    running = prepared()
    (row,) = [row for row in running.attest() if row.subject == "workload.tuning"]
    assert (row.observed, str(row.verdict)) == ("qlora, 1,792 of 127,040 parameters trainable (1.411%)", "honoured")
    packed = [p for p in running._wrapped.parameters() if p.dtype == torch.uint8]
    assert sum(p.numel() for p in packed) == 2 * 46_080 // 2, "two weights in a byte"
    found = losses(running)
    assert found[-1] < found[0]
    running.close()


@bitsandbytes
def test_it_starts_as_lora_does_but_for_what_four_bits_cannot_hold():
    quantised, whole = losses(prepared(), 1)[0], losses(prepared(tuning="lora"), 1)[0]
    assert quantised == pytest.approx(whole, rel=5e-3)
    assert quantised != whole


@bitsandbytes
def test_a_session_keeps_the_base_and_starts_the_adapters_anew():
    kept = {}
    first = losses(prepared(kept))
    model = kept["language"].model
    assert losses(prepared(kept)) == first
    assert kept["language"].model is model


@pytest.mark.parametrize(("version", "enough"), [("0.45.5", False), ("0.46.0", True), ("0.50.2", True), ("1.0", True)])
def test_an_old_bitsandbytes_is_not_enough(version, enough, monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: version)
    assert (quantisation.missing_library() == "") is enough


def test_what_is_missing_is_said_before_anything_runs(monkeypatch):
    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    (complaint,) = complaints([declared()])
    assert "needs bitsandbytes >= 0.46 and, of a GPU, a compute capability >= 7.5" in complaint
    assert complaints([declared(tuning="lora")]) == []


def refusal(monkeypatch, capability, **fields):
    monkeypatch.setattr("rtxscale.plan.site._lowest_capability", lambda inventory: capability)
    gpu = Gpu(name="A card", uuid="GPU-0", index=0, memory_mib=1000)
    site = site_of(Inventory(nodes=(Node(node_id="n", cpus=8, gpus=(gpu,)),)), "cuda")
    return quantised_base_is_whole(Cell.model_validate({"workload": TINY | fields}), site)


def test_the_plan_refuses_what_it_cannot_be(monkeypatch):
    assert refusal(monkeypatch, (12, 0)) is None
    assert refusal(monkeypatch, None) is None
    assert "the GPU has 7.0; use lora" in refusal(monkeypatch, (7, 0))
    assert "parallel fsdp is not supported" in refusal(monkeypatch, (12, 0), parallel="fsdp")
    assert refusal(monkeypatch, (7, 0), tuning="lora", parallel="fsdp") is None


def test_a_7b_base_takes_a_quarter_of_what_it_takes_in_bf16():
    lora = training_of(declared(size="7b", tuning="lora", batch_per_gpu=1), 1)
    qlora = training_of(declared(size="7b", batch_per_gpu=1), 1)
    assert replace(qlora, quantised=False) == lora
    matrices, rest = 32 * (4 * 4096**2 + 3 * 4096 * 11008), 2 * 32000 * 4096 + 65 * 4096
    saved = memory_of(lora).weights - memory_of(qlora).weights
    assert saved == pytest.approx(matrices * (2 - 4.127 / 8), rel=1e-4)
    adapters = 4 * 32 * 2 * 4 * (4096 + 4096)
    assert memory_of(qlora).weights == pytest.approx(matrices * 4.127 / 8 + 2 * rest + adapters, rel=1e-4)
