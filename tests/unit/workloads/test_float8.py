"""FP8: what its libraries need, what they convert, and that it learns as bf16 does (skipped without torchao).

Transformer Engine needs a GPU: a stand-in for it shows what is asked of it, not that it does it.
"""

import importlib.util
import sys
from contextlib import contextmanager
from importlib import metadata
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from made_context import made_context

from rtxscale.devices.inventory import Gpu, Inventory, Node
from rtxscale.plan.site import site_of
from rtxscale.plan.training_rules import precision_exists
from rtxscale.spec.cell import Cell
from rtxscale.spec.workload import LanguageWorkload
from rtxscale.workloads.language import Language
from rtxscale.workloads.networks import float8
from rtxscale.workloads.registry import complaints

TINY = {"kind": "language", "size": "tiny", "context": 32, "batch_per_gpu": 4}
torchao = pytest.mark.skipif(
    importlib.util.find_spec("torchao") is None, reason="needs torchao: pip install 'rtxscale[fp8]'"
)


def prepared(precision, group=None, **fields):
    context = made_context(LanguageWorkload.model_validate(TINY | {"precision": precision} | fields), group=group)
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
    version = metadata.version("torchao")
    assert (row.observed, str(row.verdict)) == (f"14 of 15 matrices multiply in fp8 by torchao {version}", "honoured")
    running.close()


@torchao
def test_fp8_converges_as_bf16_does():
    low, half = losses(prepared("fp8")), losses(prepared("bf16"))
    assert low != half, "it is another arithmetic"
    assert low == pytest.approx(half, rel=0.02)
    assert low[-1] < low[0] - 0.05


@torchao
def test_a_sharded_step_in_fp8_computes_what_a_whole_one_does(tmp_path):
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        found = {}
        for parallel in ("ddp", "zero1", "fsdp", "zero2"):
            running = prepared("fp8", dist.new_group(backend="gloo"), parallel=parallel, checkpointing="on")
            (row,) = [row for row in running.attest() if row.subject == "workload.precision"]
            assert row.observed.startswith("14 of 15 matrices multiply in fp8 by torchao")
            found[parallel] = losses(running, 8)
    finally:
        dist.destroy_process_group()
    assert found["zero1"] == pytest.approx(found["ddp"], rel=1e-6)
    # Gathered weights are rounded to bf16 before they are rounded to FP8.
    assert found["fsdp"] == pytest.approx(found["ddp"], rel=1e-3)
    assert found["zero2"] == pytest.approx(found["fsdp"], rel=1e-6)


class Engine:
    """Stands in for transformer_engine.pytorch: linear layers that note whether its autocast is on."""

    def __init__(self):
        self.depth, self.passes, self.recipes = 0, [], set()
        engine = self

        class Linear(torch.nn.Module):
            def __init__(self, in_features, out_features, *, bias, params_dtype, device):
                super().__init__()
                self.weight = torch.nn.Parameter(
                    torch.empty(out_features, in_features, dtype=params_dtype, device=device)
                )
                assert not bias

            def forward(self, values):
                engine.passes.append(engine.depth)
                return torch.nn.functional.linear(values, self.weight)

        Linear.__module__ = "transformer_engine.pytorch.module.linear"
        self.Linear = Linear

    @contextmanager
    def autocast(self, recipe):
        self.depth += 1
        self.recipes.add(recipe)
        try:
            yield
        finally:
            self.depth -= 1


@pytest.fixture
def engine(monkeypatch):
    made = Engine()
    recipe = SimpleNamespace(Float8CurrentScaling=lambda: "current scaling")
    for name, module in {
        "transformer_engine": SimpleNamespace(pytorch=made),
        "transformer_engine.pytorch": made,
        "transformer_engine.common": SimpleNamespace(recipe=recipe),
        "transformer_engine.common.recipe": recipe,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(float8, "missing_library", lambda library: "")
    monkeypatch.setattr(metadata, "version", lambda name: "2.11.0")
    return made


@pytest.mark.parametrize(("checkpointing", "passes"), [("off", 14), ("on", 28)])
def test_transformer_engines_layers_run_inside_its_autocast_also_when_recomputed(checkpointing, passes, engine):
    running = prepared("fp8", fp8_library="transformer_engine", checkpointing=checkpointing)
    (row,) = [row for row in running.attest() if row.subject == "workload.precision"]
    assert row.observed == "14 of 15 matrices multiply in fp8 by transformer_engine 2.11.0"
    running.step()
    assert engine.passes == [1] * passes
    assert engine.recipes == {"current scaling"}
    first = running.loss()
    assert losses(running, 10)[-1] < first


def test_the_autocast_goes_by_its_older_name_too():
    entered = []

    @contextmanager
    def fp8_autocast(fp8_recipe):
        entered.append(fp8_recipe)
        yield

    forward = float8._inside_autocast(SimpleNamespace(fp8_autocast=fp8_autocast), "recipe", lambda value: value + 1)
    assert forward(1) == 2
    assert entered == ["recipe"]


def test_a_model_without_converted_matrices_is_refuted():
    assert str(float8.attest_float8(torch.nn.Linear(16, 16), "torchao").verdict) == "refuted"


@pytest.mark.parametrize(
    ("version", "enough"), [("0.7.0", False), ("0.8.0", True), ("0.18.0+cu130", True), ("1.0", True)]
)
def test_an_old_torchao_is_not_enough(version, enough, monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: version)
    assert (float8.missing_library("torchao") == "") is enough


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
    monkeypatch.setattr("rtxscale.plan.site._lowest_capability", lambda inventory: (8, 6))
    assert refusal(("A card", 1000)).startswith("precision fp8 needs torchao >= 0.8 and a compute capability >= 8.9")
    assert "the GPU has 8.6" in refusal(("A card", 1000))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"parallel": "zero3"}, None),
        ({"fp8_library": "transformer_engine"}, None),
        ({"tuning": "lora"}, "gradients of frozen weights too, which is what LoRA saves; use precision bf16, or"),
        ({"tuning": "qlora"}, "the base has four bits already; use precision bf16"),
        (
            {"fp8_library": "transformer_engine", "parallel": "fsdp"},
            "was never tried: use fp8_library torchao, or parallel ddp or zero1",
        ),
        ({"context": 33}, "needs a multiple of 16 tokens in a micro-step: found 132; use another context"),
    ],
)
def test_fp8_works_with_a_setting_or_says_what_to_do_instead(fields, said):
    found = refusal(("NVIDIA GeForce RTX 5090", 32607), **fields)
    assert said in found if said else found is None


def test_transformer_engine_says_what_it_needs(monkeypatch):
    assert "found fp8 by transformer_engine without transformer_engine, which needs transformer_engine >= 2.5" in (
        float8.missing_library("transformer_engine")
    )
    monkeypatch.setattr(metadata, "version", lambda name: "2.4.1")
    assert "with transformer_engine 2.4.1; needs transformer_engine >= 2.5" in (
        float8.missing_library("transformer_engine")
    )
    monkeypatch.setattr(metadata, "version", lambda name: "2.11.0")
    assert "without its part for PyTorch" in float8.missing_library("transformer_engine")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert float8.missing_library("transformer_engine") == ""
    monkeypatch.setattr("rtxscale.plan.site._lowest_capability", lambda inventory: (8, 6))
    said = refusal(("A card", 1000), fp8_library="transformer_engine")
    assert said.startswith("precision fp8 needs transformer_engine >= 2.5 and a compute capability >= 8.9: the GPU has")


def test_fp4_is_refused_everywhere_with_the_reason():
    assert "precision fp4 is refused" in refusal(("NVIDIA GeForce RTX 5090", 32607), precision="fp4")
    assert "precision fp4 is refused" in refusal(precision="fp4")
