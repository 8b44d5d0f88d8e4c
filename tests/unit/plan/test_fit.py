"""What fits: predicted memory against the card's, for sweeps of every kind, and the command that prints it."""

import json
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

from rtxscale.cli.fit import register
from rtxscale.errors import BadInput
from rtxscale.models.counted import Catalogue, shipped
from rtxscale.models.memory import GIB
from rtxscale.models.shapes import SIZES
from rtxscale.plan.feasibility import MARGIN
from rtxscale.plan.fit import COMPILED, NO_MODEL, UNKNOWN, fits, memory_of_gpu, uncounted
from rtxscale.spec.load import parse_sweep
from rtxscale.workloads.files.model import NAMES

TEXT = """\
name: fit
question: What fits?
study: weak
workload: {{kind: {kind}, {fields}batch_per_gpu: {batch}}}
axes:
  gpus: [1, 2, 8]
{axes}"""


def sweep(kind="language", fields="size: 7b, ", axes="", batch=1):
    return parse_sweep(TEXT.format(kind=kind, fields=fields, axes=axes, batch=batch), "fit.yaml")


def told(found):
    return {(one.gpus, *one.settings.values()): one for one in found}


def test_a_7b_needs_sixteen_bytes_a_parameter_on_one_gpu_and_a_share_of_them_on_eight():
    found = told(fits(sweep(fields="size: 7b, checkpointing: on, parallel: fsdp, "), "RTX 5090"))
    states = 16 * 6_738_415_616 / 2**30
    assert found[(1,)].verdict == found[(2,)].verdict == "does not fit"
    assert states <= found[(1,)].needs_gib * (1 + 1e-9)
    assert found[(1,)].needs_gib < 1.2 * states
    assert found[(8,)].needs_gib == pytest.approx(states / 8, rel=0.35)
    assert found[(8,)].verdict == "fits"
    assert found[(8,)].largest_batch >= 1
    assert found[(1,)].largest_batch == 0
    assert "fits from 4 GPUs with fsdp" in found[(1,)].note


def test_the_largest_batch_is_one_that_fits_and_the_next_is_none():
    (one, *_) = fits(sweep(fields="size: 1b, "), "RTX 5090")
    most = one.largest_batch
    assert most > 1
    at, beyond = (fits(sweep(fields="size: 1b, ", batch=batch), "RTX 5090")[0] for batch in (most, most + 1))
    assert (at.verdict, beyond.verdict) == ("fits", "tight")
    assert at.needs_gib <= 0.9 * 32 < beyond.needs_gib


def test_a_lower_figure_that_is_clearly_more_than_the_memory_does_not_fit():
    """35.4 GiB are no tight fit in 32."""
    (one, *_) = fits(sweep(fields="size: 1b, context: 8192, "), "RTX 5090")
    assert one.needs_gib == pytest.approx(35.4, abs=0.1)
    assert (one.verdict, one.note) == ("does not fit", "fits from 2 GPUs with fsdp or 1 GPU with checkpointing")
    (near, *_) = fits(sweep(fields="size: 1b, context: 7104, "), "RTX 5090")
    assert 32 < near.needs_gib < MARGIN * 32
    assert near.verdict == "tight"


def test_settings_that_need_the_same_memory_are_told_once():
    axes = "  nccl.algorithm: [auto, ring]\n  workload.checkpointing: [off, on]\n"
    found = told(fits(sweep(axes=axes), "RTX PRO 5000 72 GB"))
    assert list(found) == [(1, "off"), (1, "on"), (2, "off"), (2, "on"), (8, "off"), (8, "on")]
    assert found[(2, "on")].needs_gib < found[(2, "off")].needs_gib


def test_what_is_not_modelled_is_not_known():
    (one, *_) = fits(sweep("script", "path: train.py, "), "RTX 5090")
    assert (one.verdict, one.needs_gib, one.note) == ("not known", None, NO_MODEL)


def test_images_fit_up_to_the_largest_batch():
    found = told(fits(sweep("vision", "model: resnet50, ", batch=256), "RTX 5080"))
    assert found[(1,)].verdict == found[(8,)].verdict == "fits"
    assert found[(8,)].needs_gib - found[(1,)].needs_gib == pytest.approx(25_557_032 * 4 / 2**30), "DDP's buckets"
    most = found[(1,)].largest_batch
    at, beyond = (fits(sweep("vision", "", batch=batch), "RTX 5080")[0] for batch in (most, most + 1))
    assert at.needs_gib <= 0.9 * 16 < beyond.needs_gib
    large = fits(sweep("vision", "precision: fp32, ", batch=1024), "RTX 5080")[0]
    assert (large.verdict, large.largest_batch) == ("does not fit", 174)
    assert large.note == "would fit with batch_per_gpu 174 instead of 1024"


def test_checkpointing_is_named_where_it_makes_images_fit():
    (one, *_) = fits(sweep("vision", "model: vit_large_patch16_224, ", batch=256), "RTX 5090")
    assert (one.verdict, one.needs_gib > 46) == ("does not fit", True)
    assert one.note.endswith("or checkpointing")


def test_the_unet_needs_shards_on_small_cards():
    alone, two, eight = fits(sweep("diffusion", "parallel: fsdp, checkpointing: on, "), "RTX 5090")
    assert alone.verdict == "does not fit"
    assert alone.note == "fits from 2 GPUs with fsdp"
    assert alone.needs_gib > 2_567_463_684 * 16 / 2**30
    assert two.needs_gib > eight.needs_gib
    assert (two.verdict, eight.verdict) == ("fits", "fits")
    assert eight.largest_batch > two.largest_batch >= 1


def test_a_compiled_model_is_counted_without_the_compiler_and_never_surely_too_large_for_its_activations():
    axes = "  workload.compile: [off, default]\n"
    eager, compiled, *_ = fits(sweep("vision", "", axes=axes, batch=2048), "RTX 5090")
    assert (eager.verdict, compiled.verdict) == ("does not fit", "not known")
    assert compiled.note == COMPILED
    assert compiled.needs_gib == eager.needs_gib


def test_what_does_not_come_with_rtxscale_has_to_be_counted():
    axes = "  workload.model: [resnet50, test_resnet]\n  workload.precision: [bf16, fp32, fp16]\n"
    asked = uncounted(sweep("vision", "image_size: 64, ", axes=axes), "RTX 5090")
    assert [(one.model, one.low, one.checkpointing, one.image_size) for one in asked] == [
        ("test_resnet", True, False, 64),
        ("test_resnet", True, True, 64),
        ("test_resnet", False, False, 64),
        ("test_resnet", False, True, 64),
    ]
    (one, *_) = fits(sweep("vision", "model: test_resnet, "), "RTX 5090")
    assert (one.verdict, one.note) == ("not known", "workload.model test_resnet: not counted")
    subject = replace(asked[0], image_size=224)
    failed = Catalogue(problems={subject: "RuntimeError: why"})
    (one, *_) = fits(sweep("vision", "model: test_resnet, "), "RTX 5090", failed)
    assert one.note == "workload.model test_resnet: RuntimeError: why"
    known = Catalogue(counts={subject: shipped().find(replace(subject, model="resnet18"))})
    (one, *_) = fits(sweep("vision", "model: test_resnet, "), "RTX 5090", known)
    assert one.verdict == "fits"


def test_nothing_is_asked_of_other_workloads():
    assert uncounted(sweep(), "RTX 5090") == []
    assert uncounted(sweep("diffusion", ""), "RTX 5090") == []


def test_a_gpu_that_is_not_known_is_named_with_the_nearest():
    with pytest.raises(BadInput, match="nearest: RTX PRO 5000 48 GB, RTX PRO 5000 72 GB"):
        memory_of_gpu("RTX PRO 5000")


def printed(tmp_path, *arguments, kind="language", fields="size: 7b, "):
    (tmp_path / "fit.yaml").write_text(TEXT.format(kind=kind, fields=fields, axes="", batch=1))
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    done = CliRunner().invoke(app, ["fit", str(tmp_path / "fit.yaml"), *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_command_prints_eighty_columns_or_json(tmp_path):
    text = printed(tmp_path, "--gpu", "rtx 5090")
    assert text.startswith("fit on RTX 5090, 32 GiB, workload language/7b")
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("does not fit") == 3
    data = json.loads(printed(tmp_path, "--gpu", "rtx 5090", "--json"))
    assert (data["gpu"], data["memory_gib"], len(data["cells"])) == ("RTX 5090", 32, 3)
    assert data["cells"][0]["needs_gib"] > 100


def test_the_command_counts_what_it_has_to_in_a_process_that_may_fail(tmp_path, monkeypatch):
    monkeypatch.setattr("rtxscale.cli.counting.PROGRAM", "rtxscale.no_such_program")
    arguments = {"kind": "vision", "fields": "model: test_resnet, "}
    data = json.loads(printed(tmp_path, "--gpu", "rtx 5090", "--json", **arguments))
    assert {cell["verdict"] for cell in data["cells"]} == {"not known"}
    assert "could not be counted" in data["cells"][0]["note"]
    assert "No module named" in data["cells"][0]["note"]
    assert max(map(len, printed(tmp_path, "--gpu", "rtx 5090", **arguments).splitlines())) <= 80


def test_the_command_refuses_a_model_that_there_is_not_with_the_nearest(tmp_path):
    (tmp_path / "fit.yaml").write_text(TEXT.format(kind="vision", fields="model: resnte50, ", axes="", batch=1))
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    done = CliRunner().invoke(app, ["fit", str(tmp_path / "fit.yaml"), "--gpu", "rtx 5090"])
    assert isinstance(done.exception, BadInput)
    assert "workload.model: found 'resnte50', which timm " in str(done.exception)


def test_the_command_counts_a_model_that_does_not_come_with_it(tmp_path):
    data = json.loads(printed(tmp_path, "--gpu", "rtx 5090", "--json", kind="vision", fields="model: test_resnet, "))
    assert {cell["verdict"] for cell in data["cells"]} == {"fits"}
    assert 0 < data["cells"][0]["needs_gib"] < 0.1


def own_model(tmp_path, **fields):
    shape = SIZES["7b"]
    known = {theirs: getattr(shape, name) for name, theirs in NAMES.items()}
    (tmp_path / "mine").mkdir(exist_ok=True)
    (tmp_path / "mine" / "config.json").write_text(json.dumps({"model_type": "llama", **known, **fields}))


def test_a_model_of_ones_own_needs_what_a_named_one_of_its_shape_does_and_less_where_embeddings_are_tied(tmp_path):
    def needs(fields):
        return json.loads(printed(tmp_path, "--gpu", "rtx 5090", "--json", fields=fields))["cells"][0]["needs_gib"]

    own_model(tmp_path)
    assert needs("path: mine, ") == pytest.approx(needs("size: 7b, "))
    own_model(tmp_path, tie_word_embeddings=True)
    embedding = SIZES["7b"].vocab * SIZES["7b"].hidden
    weights_and_states = 12
    assert needs("size: 7b, ") - needs("path: mine, ") >= weights_and_states * embedding / GIB


def test_of_a_model_of_ones_own_that_is_no_llama_nothing_is_predicted(tmp_path):
    own_model(tmp_path, model_type="olmo2")
    cell = json.loads(printed(tmp_path, "--gpu", "rtx 5090", "--json", fields="path: mine, "))["cells"][0]
    assert (cell["needs_gib"], cell["verdict"], cell["note"]) == (None, UNKNOWN, NO_MODEL)
