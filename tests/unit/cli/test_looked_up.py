"""What `rtxscale plan` asks libraries of, in a process of its own, and what it need not ask."""

import json
import subprocess

import pytest
import typer
from typer.testing import CliRunner

from rtxscale.cli import looked_up
from rtxscale.cli.plan import register
from rtxscale.errors import BadInput
from rtxscale.spec.workload import CollectivesWorkload, LanguageWorkload, VisionWorkload

SWEEP = """\
name: asked
question: Is there such a model?
study: weak
workload: {WORKLOAD}
axes: {gpus: [AXIS]}
"""


def planned(place, workload, *arguments, axis="1"):
    file = place / "asked.yaml"
    file.write_text(SWEEP.replace("WORKLOAD", workload).replace("AXIS", axis))
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    return CliRunner().invoke(app, ["plan", str(file), *arguments])


@pytest.fixture
def no_process(monkeypatch):
    def run(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "run", run)


def test_models_that_are_known_need_no_process(no_process, tmp_path):
    done = planned(tmp_path, "kind: vision, model: resnet50, batch_per_gpu: 8", "--assume", "1x RTX 5090")
    assert done.exit_code == 0, done.output
    known = [CollectivesWorkload(kind="collectives", buckets_of=name) for name in ("1b", "sdxl", "resnet50")]
    assert looked_up.unknown_names([*known, CollectivesWorkload(kind="collectives")]) == []
    named = LanguageWorkload.model_validate({"kind": "language", "size": "7b"})
    assert looked_up.untrainable([named], tmp_path) == []


def test_an_unknown_model_is_named_with_its_nearest_also_for_another_machine(tmp_path):
    done = planned(tmp_path, "kind: vision, model: resnte50, batch_per_gpu: 8", "--assume", "4x RTX 5090")
    assert isinstance(done.exception, BadInput)
    assert "workload.model: found 'resnte50', which timm " in str(done.exception)
    assert ", such as resnet50" in str(done.exception)


def test_a_model_that_cannot_be_checkpointed_is_an_error_of_the_plan(tmp_path):
    done = planned(tmp_path, "kind: vision, model: vgg11, batch_per_gpu: 8, checkpointing: 'on'")
    assert "workload.checkpointing: found on, which timm " in str(done.exception)
    assert "does not have for vgg11; expected off" in str(done.exception)


def test_adapters_beside_matrices_that_a_model_has_not_are_an_error_of_the_plan(tmp_path):
    config = {"model_type": "phi3", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "pad_token_id": 0}
    config |= {"num_hidden_layers": 1, "num_attention_heads": 4, "max_position_embeddings": 64}
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    own = "kind: language, path: m, context: 32, batch_per_gpu: 1, precision: fp32"
    done = planned(tmp_path, f"{own}, tuning: lora")
    assert "workload.lora_targets: found q_proj, v_proj, which no block of m has" in str(done.exception)
    assert planned(tmp_path, f"{own}, tuning: lora", "--assume", "1x RTX 5090").exit_code == 0


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("path: train.py", None),
        ("path: nowhere.py", "workload.path: found no file nowhere.py in"),
        ("entry: 'train:biuld'", "workload.entry: found no biuld in"),
        ("path: train.py, directory: away", "workload.directory: found no directory"),
        (f"path: {'x' * 300}.py", "workload.path: cannot be read ("),
    ],
)
def test_code_that_a_sweep_names_is_looked_for_where_it_will_run(named, said, no_process, tmp_path):
    (tmp_path / "train.py").write_text("def build(job): ...\n")
    workload = f"kind: script, batch_per_gpu: 1, {named}"
    done = planned(tmp_path, workload)
    assert done.exit_code == (said is not None), done.output
    assert said is None or said in str(done.exception)
    assert planned(tmp_path, workload, "--assume", "1x RTX 5090").exit_code == 0


def test_libraries_that_cannot_be_asked_say_nothing(monkeypatch):
    asked = [VisionWorkload.model_validate({"kind": "vision", "model": "nobody_knows_this"})]
    monkeypatch.setattr(looked_up, "PROGRAM", "rtxscale.nothing")
    assert looked_up.unknown_names(asked) == []
