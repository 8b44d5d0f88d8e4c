"""FP8 by torchao: what it needs, what it converts, and that it learns as bf16 does (skipped without torchao)."""

import importlib.util
from importlib import metadata

import pytest
import torch

from rtxscale.devices.inventory import Gpu, Inventory, Node
from rtxscale.plan.rules import precision_exists, site_of
from rtxscale.spec.cell import Cell
from rtxscale.spec.workload import LanguageWorkload
from rtxscale.workloads import float8
from rtxscale.workloads.language import Language
from rtxscale.workloads.protocol import Context
from rtxscale.workloads.registry import complaints

TINY = {"kind": "language", "size": "tiny", "context": 32, "batch_per_gpu": 4}
torchao = pytest.mark.skipif(
    importlib.util.find_spec("torchao") is None, reason="needs torchao: pip install 'rtxscale[fp8]'"
)


def prepared(precision):
    context = Context(
        workload=LanguageWorkload.model_validate(TINY | {"precision": precision}),
        bucket_mib=None,
        device=torch.device("cpu"),
        rank=0,
        world=1,
        group=None,
        exchange=lambda value: [value],
        kept={},
    )
    return Language().prepare(context)


def losses(running, steps=20):
    found = []
    for _ in range(steps):
        running.step()
        found.append(running.loss())
    running.close()
    return found


@torchao
def test_the_blocks_matrices_are_converted_and_the_output_is_not():
    running = prepared("fp8")
    (row,) = [row for row in running.attest() if row.subject == "workload.precision"]
    assert (row.observed, str(row.verdict)) == ("14 of 15 matrices multiply in fp8", "honoured")
    running.close()


@torchao
def test_fp8_converges_as_bf16_does():
    low, half = losses(prepared("fp8")), losses(prepared("bf16"))
    assert low != half, "it is another arithmetic"
    assert low == pytest.approx(half, rel=0.02)
    assert low[-1] < low[0] - 0.05


def test_a_model_without_converted_matrices_is_refuted():
    assert str(float8.attest_float8(torch.nn.Linear(16, 16)).verdict) == "refuted"


@pytest.mark.parametrize(
    ("version", "enough"), [("0.7.0", False), ("0.8.0", True), ("0.18.0+cu130", True), ("1.0", True)]
)
def test_an_old_torchao_is_not_enough(version, enough, monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: version)
    assert (float8.missing_library() == "") is enough


def test_what_is_missing_is_said_before_anything_runs(monkeypatch):
    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    asked = [LanguageWorkload.model_validate(TINY | {"precision": name}) for name in ("fp8", "bf16")]
    (complaint,) = complaints(asked)
    assert "needs torchao >= 0.8 and a GPU of compute capability >= 8.9" in complaint
    assert complaints(asked[1:]) == []


def refusal(gpu=None, **fields):
    gpus = () if gpu is None else (Gpu(name=gpu[0], uuid="GPU-0", index=0, memory_mib=gpu[1]),)
    site = site_of(Inventory(nodes=(Node(node_id="n", cpus=8, gpus=gpus),)), "cuda" if gpu else "cpu")
    return precision_exists(Cell.model_validate({"workload": TINY | {"precision": "fp8"} | fields}), site)


def test_fp8_needs_a_card_that_has_it():
    assert refusal(("NVIDIA GeForce RTX 5090", 32607)) is None
    assert refusal(("NVIDIA of tomorrow", 99999)) is None, "a card that is not known is tried"
    assert "there is no GPU" in refusal()


def test_a_card_below_ada_is_refused_with_what_it_has(monkeypatch):
    monkeypatch.setattr("rtxscale.plan.rules._lowest_capability", lambda inventory: (8, 6))
    assert refusal(("A card", 1000)).startswith("precision fp8 needs torchao >= 0.8 and a compute capability >= 8.9")
    assert "the GPU has 8.6" in refusal(("A card", 1000))


@pytest.mark.parametrize("fields", [{"parallel": "zero3"}, {"tuning": "lora"}])
def test_fp8_is_not_combined_with_what_it_was_not_tried_with(fields):
    assert "is not supported; use bf16" in refusal(("NVIDIA GeForce RTX 5090", 32607), **fields)


def test_fp4_is_refused_everywhere_with_the_reason():
    assert "precision fp4 is refused" in refusal(("NVIDIA GeForce RTX 5090", 32607), precision="fp4")
    assert "precision fp4 is refused" in refusal(precision="fp4")
