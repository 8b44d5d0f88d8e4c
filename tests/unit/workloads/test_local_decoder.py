"""Language models of one's own: built from a directory, with its weights or random ones, and what cannot be trained."""

import json
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from made_context import made_context
from safetensors.torch import save_file

from rtxscale.models.flops import training_flops_per_token
from rtxscale.models.shapes import SIZES
from rtxscale.nccl.attest import Verdict
from rtxscale.spec.cell import Cell
from rtxscale.spec.workload import LanguageWorkload
from rtxscale.workloads import inputs
from rtxscale.workloads.files.model import local_model, shape_of, vocab_of
from rtxscale.workloads.files.script import DIRECTORY_VARIABLE
from rtxscale.workloads.language import Language
from rtxscale.workloads.networks.decoder import build_decoder
from rtxscale.workloads.networks.flops import training_flops
from rtxscale.workloads.registry import complaints

SMALL = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 176,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
"""Numbers of the named size `tiny`."""


def declared(**fields):
    given = {"kind": "language", "path": "m", "context": 16, "batch_per_gpu": 2, "precision": "fp32"}
    return LanguageWorkload.model_validate(given | fields)


def context(group=None, **fields):
    return made_context(declared(**fields), group=group)


def losses(running, steps=3):
    found = [running.step() or running.loss() for _ in range(steps)]
    running.close()
    return found


@pytest.fixture(autouse=True)
def beside(tmp_path, monkeypatch):
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    (tmp_path / "m").mkdir()
    return tmp_path


def configured(place, model_type="llama", **changes):
    """A directory with the configuration alone, as transformers writes it."""
    from transformers import AutoConfig

    AutoConfig.for_model(model_type, **(SMALL | changes)).save_pretrained(place / "m")


def saved(place, model_type="llama", **changes):
    """A directory with weights too; the model itself."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **(SMALL | changes)))
    model.save_pretrained(place / "m")
    return model


def test_a_llama_without_weights_is_the_named_shape(beside):
    configured(beside)
    assert complaints([declared()], str(beside)) == []
    named = losses(Language().prepare(replace(context(), workload=declared(path="", size="tiny"))))
    running = Language().prepare(context())
    (row,) = [row for row in running.attest() if row.subject == "workload.model"]
    assert losses(running) == pytest.approx(named, rel=1e-6)
    assert (row.requested, str(row.verdict)) == ("m", "honoured")
    assert row.observed.startswith("llama, config.json SHA-256 ")
    assert row.observed.endswith("; random weights: no model*.safetensors")
    assert vocab_of(declared()) == 256


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [
        ("llama", {"tie_word_embeddings": True}),
        ("qwen2", {"tie_word_embeddings": False}),
        ("mistral", {"sliding_window": 64, "head_dim": 16}),
        ("qwen3", {"head_dim": 32}),
    ],
)
def test_weights_in_the_directory_are_those_that_training_begins_with(model_type, changes, beside):
    model = saved(beside, model_type, **changes)
    assert complaints([declared()], str(beside)) == []
    running = Language().prepare(context())
    tokens = running._batches.take()
    theirs = float(model(input_ids=tokens, labels=tokens).loss.detach())
    (row,) = [row for row in running.attest() if row.subject == "workload.model"]
    assert "weights of 1 .safetensors, SHA-256 " in row.observed
    found = losses(running)
    assert found[0] == pytest.approx(theirs, rel=1e-5)
    assert found[2] < found[0]


def test_shared_embeddings_stay_shared_however_the_model_is_spread(beside, tmp_path):
    saved(beside, "llama", tie_word_embeddings=True)
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        found = {}
        for parallel in ("ddp", "fsdp", "zero2"):
            running = Language().prepare(context(dist.new_group(backend="gloo"), parallel=parallel))
            bare = getattr(running._wrapped, "module", running._wrapped)
            assert bare.lm_head.weight is bare.model.embed_tokens.weight
            assert sum(row.verdict is Verdict.REFUTED for row in running.attest()) == 0
            found[parallel] = losses(running)
    finally:
        dist.destroy_process_group()
    assert found["fsdp"] == pytest.approx(found["ddp"], rel=1e-5)
    assert found["zero2"] == pytest.approx(found["ddp"], rel=1e-5)


@pytest.mark.parametrize("tuning", ["lora", "qlora"])
def test_adapters_start_from_the_models_own_weights(tuning, beside):
    model = saved(beside, "qwen2")
    asked = {"tuning": tuning, "precision": "bf16", "lora_targets": ("q_proj", "down_proj")}
    running = Language().prepare(context(**asked))
    tokens = running._batches.take()
    theirs = float(model(input_ids=tokens, labels=tokens).loss.detach())
    (row,) = [row for row in running.attest() if row.subject == "workload.tuning"]
    assert row.observed.startswith(f"{tuning}, ")
    assert str(row.verdict) == "honoured"
    assert losses(running, 1)[0] == pytest.approx(theirs, rel=0.02)


def test_adapters_stand_beside_fused_matrices_where_a_model_has_them(beside):
    (beside / "m" / "config.json").write_text(json.dumps({"model_type": "phi3", **SMALL, "pad_token_id": 0}))
    asked = {"tuning": "lora", "lora_targets": ("qkv_proj", "gate_up_proj")}
    assert complaints([declared(**asked)], str(beside)) == []
    running = Language().prepare(context(**asked))
    (row,) = [row for row in running.attest() if row.subject == "workload.tuning"]
    assert row.observed.startswith("lora, ")
    assert losses(running, 2)


def test_flops_are_those_of_the_shape_or_not_known(beside):
    cell = Cell(workload=declared())
    configured(beside)
    assert training_flops(cell.workload) == training_flops_per_token(SIZES["tiny"], 16)
    configured(beside, "qwen3", head_dim=32)
    assert training_flops(cell.workload) is None
    assert shape_of(declared()) is None
    told = local_model(declared(), beside).identity()
    assert told.endswith("FLOPs not known: its heads are not a share of its width")
    configured(beside, "olmo2")
    assert local_model(declared(), beside).shape() == "model type olmo2 is not Llama-shaped"


def config(place, **changes):
    (place / "m" / "config.json").write_text(json.dumps({"model_type": "llama", **SMALL, **changes}))


@pytest.mark.parametrize(
    ("changes", "fields", "said"),
    [
        ({}, {"context": 65}, "workload.context: found 65, and max_position_embeddings 64 in config.json of m"),
        ({"sliding_window": 8}, {}, "workload.context: found 16, and sliding_window 8"),
        ({"auto_map": {"AutoConfig": "own.Own"}}, {}, "found auto_map in config.json of m, code of its own"),
        ({"quantization_config": {"bits": 4}}, {}, "found quantization_config"),
        ({"layer_types": ["full_attention", "linear_attention"]}, {}, "found layers of linear_attention in m"),
        ({"vocab_size": "many"}, {}, "found a config.json in m that is no JSON object with a vocab_size"),
        ({}, {"data": "stdlib", "context": 60}, ""),
        ({"vocab_size": 100}, {"data": "stdlib"}, "and a vocabulary of 100 in language/m"),
    ],
)
def test_a_configuration_that_cannot_be_trained_is_named_without_torch(changes, fields, said, beside):
    config(beside, **changes)
    found = inputs.complaint(declared(**fields), beside)
    assert said in found
    assert bool(said) == bool(found)


@pytest.mark.parametrize(
    ("path", "said"),
    [("none", "found nothing at none beside the sweep file"), ("m", "found a directory without config.json at m")],
)
def test_a_directory_that_holds_no_model_is_named(path, said, beside):
    assert said in inputs.complaint(declared(path=path), beside)
    (beside / "m" / "config.json").write_text("{" * 2000)
    assert "that is no JSON object" in inputs.complaint(declared(), beside)


@pytest.mark.parametrize(
    ("model_type", "changes", "fields", "said"),
    [
        ("gpt2", {"n_embd": 64, "n_head": 4, "n_layer": 2}, {}, "found GPT2LMHeadModel in m; expected a decoder whose"),
        ("gemma", {"head_dim": 16}, {}, "which is not known how to fill"),
        ("bert", {}, {}, "found BertLMHeadModel in m; expected a decoder whose"),
        ("nothing_known", {}, {}, "that transformers cannot build"),
        ("llama", {"num_attention_heads": 0}, {}, "that transformers cannot build (ZeroDivisionError: "),
        ("llama", {"num_hidden_layers": "2"}, {}, "that transformers cannot build ("),
        ("llama", {"num_hidden_layers": 10**9}, {}, "found num_hidden_layers 1,000,000,000 in config.json of m"),
        ("llama", {"num_key_value_heads": 3}, {}, "found a model in m that cannot run (RuntimeError: "),
        (
            "phi3",
            {"pad_token_id": 0},
            {"tuning": "lora"},
            "found q_proj, v_proj, which no block of m has; expected some",
        ),
    ],
)
def test_an_architecture_that_cannot_be_trained_is_named_before_anything_runs(
    model_type, changes, fields, said, beside
):
    (beside / "m" / "config.json").write_text(json.dumps({"model_type": model_type, **SMALL, **changes}))
    (found,) = complaints([declared(**fields)], str(beside))
    assert said in found
    assert len(found) < 400


@pytest.mark.parametrize("scaling", [{"rope_type": "dynamic", "factor": 2.0}, {"rope_type": "linear", "factor": 2.0}])
def test_positions_that_depend_on_the_sequence_are_no_fault(scaling, beside):
    configured(beside, rope_scaling=scaling)
    assert complaints([declared()], str(beside)) == []


def test_weights_that_are_not_the_models_are_named(beside):
    configured(beside)
    whole = build_decoder(SIZES["tiny"]).state_dict()
    some = {name: tensor for name, tensor in whole.items() if "norm" not in name}
    save_file(some, beside / "m" / "model.safetensors")
    (found,) = complaints([declared()], str(beside))
    assert "workload.path: found no model.layers.0.input_layernorm.weight in m" in found
    changed = whole | {"model.norm.weight": torch.ones(3)}
    save_file(changed, beside / "m" / "model.safetensors")
    (found,) = complaints([declared()], str(beside))
    assert "found model.norm.weight of shape (3,) in m; expected a shape of (64,)" in found
    (beside / "m" / "model.safetensors").write_bytes(b"PK" * 40)
    (found,) = complaints([declared()], str(beside))
    assert "found model.safetensors, which is no .safetensors file" in found
    (beside / "m" / "model.safetensors").unlink()
    (beside / "m" / "model.safetensors").symlink_to(beside)
    (found,) = complaints([declared()], str(beside))
    assert "found model.safetensors, which is no .safetensors file" in found
