"""What fits: predicted memory against the card's, for sweeps of every kind, and the command that prints it."""

import json

import pytest
import typer
from typer.testing import CliRunner

from rtxscale.cli.fit import register
from rtxscale.errors import BadInput
from rtxscale.plan.fit import NO_MODEL, STATES_ONLY, fits, memory_of_gpu
from rtxscale.spec.load import parse_sweep

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


def test_settings_that_need_the_same_memory_are_told_once():
    axes = "  nccl.algorithm: [auto, ring]\n  workload.checkpointing: [off, on]\n"
    found = told(fits(sweep(axes=axes), "RTX PRO 5000 72 GB"))
    assert list(found) == [(1, "off"), (1, "on"), (2, "off"), (2, "on"), (8, "off"), (8, "on")]
    assert found[(2, "on")].needs_gib < found[(2, "off")].needs_gib


def test_what_is_not_modelled_is_not_known():
    assert {one.verdict for one in fits(sweep("vision", ""), "RTX 5090")} == {"not known"}
    assert fits(sweep("vision", ""), "RTX 5090")[0].note == NO_MODEL
    alone, shared, _ = fits(sweep("diffusion", "parallel: fsdp, "), "RTX 5090")
    assert (alone.verdict, shared.verdict) == ("does not fit", "not known")
    assert shared.note == STATES_ONLY


def test_a_gpu_that_is_not_known_is_named_with_the_nearest():
    with pytest.raises(BadInput, match="nearest: RTX PRO 5000 48 GB, RTX PRO 5000 72 GB"):
        memory_of_gpu("RTX PRO 5000")


def printed(tmp_path, *arguments):
    (tmp_path / "fit.yaml").write_text(TEXT.format(kind="language", fields="size: 7b, ", axes="", batch=1))
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
