"""Every workload keeps the protocol's promises, on CPU and on a GPU where there is one; one worker of a group."""

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import get_args

import numpy as np
import pytest
import torch
import torch.distributed as dist
from pydantic import TypeAdapter
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from rtxscale.models.shapes import SIZES
from rtxscale.nccl.attest import Verdict
from rtxscale.spec.workload import CollectivesProbe, CollectivesWorkload, VisionWorkload, Workload
from rtxscale.workloads.files.script import DIRECTORY_VARIABLE
from rtxscale.workloads.links.timing import Request, time_collectives
from rtxscale.workloads.protocol import Context
from rtxscale.workloads.registry import IMPLEMENTATIONS

SMALL = {"model": "test_resnet", "image_size": 32, "classes": 10, "batch_per_gpu": 2}
TINY = {"size": "tiny", "context": 16, "batch_per_gpu": 2, "precision": "fp32"}
LATENTS = {"model": "tiny", "image_size": 32, "batch_per_gpu": 2, "precision": "fp32"}
OWN = {"directory": "scripts", "batch_per_gpu": 2}
WORKLOADS = {
    "vision fp32": {"kind": "vision", "precision": "fp32", **SMALL},
    "vision tf32": {"kind": "vision", "precision": "tf32", **SMALL},
    "vision bf16": {"kind": "vision", "precision": "bf16", **SMALL},
    "vision fp16": {"kind": "vision", "precision": "fp16", **SMALL},
    "vision contiguous": {"kind": "vision", "precision": "fp32", "channels_last": False, **SMALL},
    "vision global": {"kind": "vision", "precision": "fp32", **SMALL, "batch_per_gpu": None, "global_batch": 2},
    "vision accumulated": {"kind": "vision", "precision": "fp16", **SMALL, "accumulation": 2},
    "vision adamw": {"kind": "vision", "precision": "fp32", **SMALL, "optimizer": "adamw", "checkpointing": "on"},
    "transformer": {"kind": "vision", "precision": "fp32", **SMALL, "model": "test_vit", "image_size": 64},
    "language": {"kind": "language", **TINY},
    "language bf16": {"kind": "language", **TINY, "precision": "bf16"},
    "language fp16": {"kind": "language", **TINY, "precision": "fp16"},
    "language compiled": {"kind": "language", **TINY, "compile": "default", "checkpointing": "on"},
    "language fsdp": {"kind": "language", **TINY, "parallel": "fsdp"},
    "language zero1": {"kind": "language", **TINY, "parallel": "zero1", "precision": "fp16"},
    "language zero2": {"kind": "language", **TINY, "parallel": "zero2"},
    "language zero3": {"kind": "language", **TINY, "parallel": "zero3"},
    "language lora": {"kind": "language", **TINY, "tuning": "lora", "precision": "bf16"},
    "language lora fp16": {"kind": "language", **TINY, "tuning": "lora", "precision": "fp16"},
    "language qlora": {"kind": "language", **TINY, "tuning": "qlora", "precision": "bf16"},
    "language scheduled": {"kind": "language", **TINY, "schedule": "cosine", "schedule_warmup_steps": 2},
    "language own": {"kind": "language", **TINY, "size": "125m", "path": "model"},
    "language fp8": {"kind": "language", **TINY, "precision": "fp8"},
    "language fp8 fsdp": {"kind": "language", **TINY, "precision": "fp8", "parallel": "fsdp"},
    "language all": {
        "kind": "language",
        **TINY,
        "precision": "bf16",
        "accumulation": 2,
        "checkpointing": "on",
        "attention": "flash",
    },
    "diffusion": {"kind": "diffusion", **LATENTS},
    "diffusion bf16": {"kind": "diffusion", **LATENTS, "precision": "bf16", "checkpointing": "on"},
    "diffusion fsdp": {"kind": "diffusion", **LATENTS, "parallel": "fsdp"},
    "diffusion fp16": {"kind": "diffusion", **LATENTS, "precision": "fp16", "channels_last": False},
    "diffusion latents": {"kind": "diffusion", **LATENTS, "data": "latents", "data_path": "l", "loader_workers": 0},
    "script": {"kind": "script", **OWN, "entry": "tiny_entry:build"},
    "script loop": {"kind": "script", **OWN, "path": "tiny_loop.py"},
    "collectives": {"kind": "collectives", "sizes_mib": [0.01], "operations": ["all_reduce"]},
    "collectives buckets": {"kind": "collectives", "buckets_of": "test_resnet"},
}


TRAINED = [name for name in WORKLOADS if name.startswith(("vision", "transformer", "language", "diffusion"))]


WORK = {"language all": 64, "vision accumulated": 4}
"""Tokens or images per step where they are not those of one batch: 32 tokens, two images of the others."""


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    """The directory of a sweep file with scripts, latents and a model in it."""
    place = tmp_path_factory.mktemp("sweep")
    (place / "scripts").symlink_to(Path(__file__).parent / "scripts")
    (place / "l").mkdir()
    for name, shape in {"latents": (4, 4, 4), "prompt_embeds": (8, 32), "pooled_prompt_embeds": (32,)}.items():
        np.save(place / "l" / f"{name}.npy", np.random.default_rng(1).standard_normal((20, *shape)).astype(np.float16))
    (place / "model").mkdir()
    shape = SIZES["tiny"]
    config = {
        "model_type": "qwen2",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "tie_word_embeddings": True,
    }
    (place / "model" / "config.json").write_text(json.dumps(config))
    return place


@pytest.fixture(autouse=True)
def files_beside_the_sweep(monkeypatch, beside):
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(beside))


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU, found none")
    return torch.device("cuda", 0) if request.param == "cuda" else torch.device("cpu")


@pytest.fixture(scope="module")
def group(tmp_path_factory, device):
    backend = "gloo" if device.type == "cpu" else "nccl"
    store = dist.FileStore(str(tmp_path_factory.mktemp("store") / "store"), 1)
    dist.init_process_group(backend, store=store, rank=0, world_size=1)
    yield dist.new_group(backend=backend)
    dist.destroy_process_group()


@pytest.fixture
def context(device):
    def make(fields, group=None, kept=None):
        return Context(
            workload=TypeAdapter(Workload).validate_python(fields),
            bucket_mib=None,
            device=device,
            rank=0,
            world=1,
            group=group,
            exchange=lambda value: [value],
            kept={} if kept is None else kept,
        )

    return make


@pytest.fixture
def prepared(context):
    def prepare(fields, group=None, kept=None):
        return IMPLEMENTATIONS[fields["kind"]].prepare(context(fields, group, kept))

    return prepare


def test_every_kind_of_the_spec_is_implemented():
    union = get_args(Workload)[0]
    kinds = {get_args(model.model_fields["kind"].annotation)[0] for model in get_args(union)}
    assert kinds == {*IMPLEMENTATIONS, "simulated"}  # which no rank runs


OPTIONAL = {"fp8": ("torchao", "fp8"), "qlora": ("bitsandbytes", "finetune")}
"""Words in names of workloads: the package that they need, and the extra that installs it."""


def named(names):
    """Names of workloads, those skipped whose package is missing."""
    return [pytest.param(name, marks=missing(name)) for name in names]


def missing(name):
    """What makes a workload impossible here."""
    without = [pytest.mark.skipif(which("c++") is None, reason="needs a C++ compiler, found none")]
    return without * ("compiled" in name) + [
        pytest.mark.skipif(find_spec(package) is None, reason=f"needs {package}: pip install 'rtxscale[{extra}]'")
        for word, (package, extra) in OPTIONAL.items()
        if word in name
    ]


@pytest.mark.parametrize("name", named(WORKLOADS))
def test_it_steps_tells_its_loss_and_can_be_closed_twice(name, group, prepared):
    running = prepared(WORKLOADS[name], group)
    waits = [running.step() for _ in range(3)]
    assert all(wait >= 0 for wait in waits)
    loss = running.loss()
    assert loss is None or 0 < loss < 20
    work = WORK.get(name, 32 if name.startswith("language") else 2)
    assert running.work_per_step is None or running.work_per_step == work
    assert running.unit
    assert isinstance(running.buckets(), tuple)
    verdicts = {row.subject: row.verdict for row in running.attest()}
    assert set(verdicts.values()) <= set(Verdict)
    for subject in ("workload.checkpointing", "workload.attention"):
        assert verdicts.get(subject, Verdict.HONOURED) == Verdict.HONOURED, subject
    assert ("workload.checkpointing" in verdicts) == (name in TRAINED)
    assert ("workload.attention" in verdicts) == name.startswith("language")
    running.close()
    running.close()


@pytest.mark.parametrize("name", named(one for one in WORKLOADS if not one.startswith(("collectives", "diffusion"))))
def test_it_trains(name, prepared):
    running = prepared(WORKLOADS[name])
    running.step()
    before = running.loss()
    for _ in range(15):
        running.step()
    assert running.loss() < before
    running.close()


@pytest.mark.parametrize("precision", ["fp32", "bf16", "tf32"])
def test_the_precision_really_used_is_attested(precision, prepared, device):
    verdict = "not applicable" if (precision, device.type) == ("tf32", "cpu") else "honoured"
    running = prepared(WORKLOADS[f"vision {precision}"])
    assert running.attest()[0].verdict == Verdict.NOT_ATTESTED or precision == "tf32"
    running.step()
    row = running.attest()[0]
    assert (row.subject, row.requested, str(row.verdict)) == ("workload.precision", precision, verdict)
    running.close()


def test_every_trial_starts_from_the_same_state_without_building_anew(prepared):
    kept = {}
    first = prepared(WORKLOADS["vision fp32"], kept=kept)
    losses = []
    for _ in range(3):
        first.step()
        losses.append(first.loss())
    first.close()
    model = kept["vision"].model
    assert all(parameter.grad is None for parameter in model.parameters())
    second = prepared(WORKLOADS["vision contiguous"], kept=kept)
    second.close()
    third = prepared(WORKLOADS["vision fp32"], kept=kept)
    third.step()
    assert kept["vision"].model is model
    assert third.loss() == pytest.approx(losses[0], rel=1e-5)
    assert losses[2] != losses[0]
    third.close()


def losses_of(running, steps=3):
    """Losses of the next steps."""
    found = []
    for _ in range(steps):
        running.step()
        found.append(running.loss())
    return found


@pytest.mark.parametrize("name", named(TRAINED))
def test_what_restarts_trains_as_what_is_newly_prepared(name, group, context, device):
    """Whatever was trained before, with the wraps and graphs that are there; bit by bit where kernels sum in order."""
    implementation = IMPLEMENTATIONS[WORKLOADS[name]["kind"]]
    new = implementation.prepare(replace(context(WORKLOADS[name], group), seed=7))
    expected = losses_of(new)
    new.close()
    running = implementation.prepare(context(WORKLOADS[name], group))
    others, graphs = losses_of(running, 4), torch._dynamo.utils.counters["stats"]["unique_graphs"]
    running.restart(7)
    rounding = 1e-3 if device.type == "cuda" else 0.0
    assert losses_of(running) == pytest.approx(expected, rel=rounding, abs=0.0)
    assert expected != pytest.approx(others[:3], rel=rounding, abs=0.0)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs
    assert all(row.verdict is not Verdict.REFUTED for row in running.attest())
    running.close()


@pytest.mark.parametrize(
    "name", ["vision fp32", "language", "language all", "language own", "diffusion", "diffusion latents"]
)
def test_steps_apart_reduce_no_gradient_and_the_ranks_are_equal_afterwards(name, group, prepared):
    running = prepared(WORKLOADS[name], group)
    running.step()
    apart, reduced = running.apart(), []

    def reduce(state, bucket):
        reduced.append(bucket.index())
        return allreduce_hook(state, bucket)

    apart.wrapped.register_comm_hook(group, reduce)
    with apart.steps():
        running.step()
        running.step()
    assert reduced == []
    assert apart.rejoin()
    running.step()
    assert reduced, "steps reduce again"
    assert not replace(apart, exchange=lambda sums: [sums, [*sums[:-1], sums[-1] + 1]]).rejoin()
    running.close()


@pytest.mark.parametrize("name", ["vision fp32", "language"])
def test_a_single_worker_has_nobody_to_step_apart_from(name, prepared):
    running = prepared(WORKLOADS[name])
    assert running.apart() is None
    running.close()


@pytest.mark.parametrize("name", ["language fsdp", "collectives", "collectives buckets"])
def test_what_cannot_compute_without_the_others_cannot_step_apart(name, group, prepared):
    running = prepared(WORKLOADS[name], group)
    assert running.apart() is None
    running.close()


def test_another_model_takes_the_place_of_the_first(prepared):
    kept = {}
    prepared(WORKLOADS["vision fp32"], kept=kept).close()
    prepared(WORKLOADS["vision fp32"] | {"classes": 7}, kept=kept).close()
    assert list(kept) == ["vision"]
    assert kept["vision"].identity[-1] == "7"


def test_collectives_need_a_second_worker(prepared, context):
    with pytest.raises(ValueError, match="needs at least 2 workers"):
        prepared(WORKLOADS["collectives"])
    request = Request(operations=("all_reduce",), sizes_mib=(1.0,))
    with pytest.raises(ValueError, match="need at least 2 workers"):
        time_collectives(request, context(WORKLOADS["collectives"]))


def test_every_operation_of_the_spec_can_be_timed(group, context):
    operations = get_args(get_args(CollectivesProbe.model_fields["operations"].annotation)[0])
    workload = CollectivesWorkload(kind="collectives", operations=operations, sizes_mib=(0.01,))
    request = Request(operations=workload.operations, sizes_mib=workload.sizes_mib)
    timings = time_collectives(request, context(workload.model_dump(), group))
    assert [timing.operation for timing in timings] == list(operations)
    assert all(timing.data_ok and timing.time_mean_s > 0 for timing in timings)


def test_an_implementation_refuses_anothers_workload(context):
    stranger = context(WORKLOADS["collectives"])
    with pytest.raises(TypeError, match="found workload collectives, expected vision"):
        IMPLEMENTATIONS["vision"].prepare(stranger)
    assert isinstance(context(WORKLOADS["vision fp32"]).workload, VisionWorkload)
