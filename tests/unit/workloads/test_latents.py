"""Latents from files: what is read and held out, what is said of them, and files that cannot be trained on."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from made_context import made_context
from safetensors.numpy import save_file

from rtxscale.spec.workload import DiffusionWorkload
from rtxscale.workloads import inputs
from rtxscale.workloads.data.latents import attest_augmentations, latent_sets
from rtxscale.workloads.data.loading import Loaded
from rtxscale.workloads.diffusion import Diffusion
from rtxscale.workloads.files import data as data_files
from rtxscale.workloads.files.script import DIRECTORY_VARIABLE
from rtxscale.workloads.registry import complaints

COUNT = 20


def declared(**fields):
    given = {"kind": "diffusion", "model": "tiny", "image_size": 32, "batch_per_gpu": 2, "precision": "fp32"}
    return DiffusionWorkload.model_validate(given | {"data": "latents", "data_path": "l", "loader_workers": 0} | fields)


def context(workload, seed=0):
    return made_context(workload, seed=seed)


def arrays(count=COUNT, side=4, dtype=np.float16):
    """Sample i has i in every place."""
    shapes = {"latents": (4, side, side), "prompt_embeds": (8, 32), "pooled_prompt_embeds": (32,), "add_time_ids": (6,)}
    number = np.arange(count, dtype=dtype)
    return {
        name: np.broadcast_to(number.reshape(-1, *(1 for _ in shape)), (count, *shape)).copy()
        for name, shape in shapes.items()
    }


def as_directory(root, made, said=None):
    (root / "l").mkdir()
    for name, array in made.items():
        np.save(root / "l" / f"{name}.npy", array)
    if said is not None:
        (root / "l" / "metadata.json").write_text(said)


@pytest.fixture
def beside(tmp_path, monkeypatch):
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("form", ["l", "l.safetensors"])
def test_samples_are_read_where_they_lie_and_one_in_ten_is_held_out(form, beside):
    if form == "l":
        as_directory(beside, arrays())
    else:
        save_file(arrays(), beside / form)
    sets = latent_sets(declared(data_path=form))
    assert (len(sets.training), len(sets.held_out)) == (18, 2)
    sample = pickle.loads(pickle.dumps(sets.training))[9]  # noqa: S301 - our own, as a loader's worker gets it
    assert {name: tuple(part.shape) for name, part in sample.items()} == {
        "latents": (4, 4, 4),
        "text": (8, 32),
        "pooled": (32,),
        "times": (6,),
    }
    assert {float(part.mean()) for part in sample.values()} == {10.0}, "the ninth is held out"
    assert sets.identity.startswith("latents, 20 samples of 4 x 4 x 4, SHA-256 ")
    again = sets.held_out[1]
    assert float(again["latents"].mean()) == 19
    assert torch.equal(again["noise"], sets.held_out[1]["noise"])
    assert not torch.equal(again["noise"], sets.held_out[0]["noise"])


def test_what_is_open_does_not_travel_to_a_worker(beside):
    as_directory(beside, arrays(count=4000))
    sets = latent_sets(declared())
    sets.training[0]
    assert len(pickle.dumps(sets.training.dataset)) < 10_000
    loaded = Loaded(sets.training, declared(loader_workers=1), context(declared()), 2)
    assert loaded.take()["latents"].shape == (2, 4, 4, 4)
    loaded.close()


def test_without_time_ids_nothing_was_cropped(beside):
    made = arrays()
    del made["add_time_ids"]
    as_directory(beside, made)
    assert latent_sets(declared()).training[3]["times"].tolist() == [32, 32, 0, 0, 32, 32]


def test_bf16_is_read_from_safetensors(beside):
    from safetensors.torch import save_file as save_tensors

    save_tensors({name: torch.tensor(array).bfloat16() for name, array in arrays().items()}, beside / "l.safetensors")
    assert inputs.complaint(declared(data_path="l.safetensors"), beside) == ""
    assert latent_sets(declared(data_path="l.safetensors")).training[3]["latents"].dtype == torch.bfloat16


def test_another_content_is_another_identity_and_large_files_are_sampled(beside, monkeypatch):
    as_directory(beside, arrays())
    one = latent_sets(declared()).identity
    changed = arrays()
    changed["prompt_embeds"][7, 0, 0] += 1
    np.save(beside / "l" / "prompt_embeds.npy", changed["prompt_embeds"])
    other = latent_sets(declared()).identity
    assert one != other
    assert one.partition("SHA")[0] == other.partition("SHA")[0]
    (beside / "large").write_bytes(bytes(10) + b"x" * 90)
    monkeypatch.setattr(data_files, "PIECE_BYTES", 4)
    monkeypatch.setattr(data_files, "WHOLE_BYTES", 50)
    assert data_files.fingerprint([beside / "large"]).endswith(" of sizes and one in 2 MiB")


def test_it_learns_from_them_and_its_held_out_loss_falls(beside):
    chance = np.random.default_rng(1)
    made = {name: chance.standard_normal(array.shape).astype(np.float32) for name, array in arrays().items()}
    as_directory(beside, made)
    running = Diffusion().prepare(context(declared(learning_rate=0.003)))
    before = running.evaluate(2)
    assert running.evaluate(2).loss == before.loss, "a look changes nothing"
    waits = [running.step() for _ in range(20)]
    assert all(wait > 0 for wait in waits)
    after = running.evaluate(2)
    assert (before.samples, after.samples) == (2, 2)
    assert after.loss < before.loss
    (row,) = [row for row in running.attest() if row.subject == "workload.data"]
    assert row.observed.startswith("latents, 20 samples of 4 x 4 x 4, SHA-256 ")
    assert row.observed.endswith("one in 10 held out; no workers, memory not pinned")
    running.close()
    running.close()


def test_resident_latents_have_nothing_held_out():
    running = Diffusion().prepare(context(declared(data="resident")))
    with pytest.raises(ValueError, match="nothing is held out"):
        running.evaluate(2)
    running.close()


def test_another_seed_is_another_model_and_other_noise():
    kept, losses = {}, []
    for seed in (0, 1, 0):
        running = Diffusion().prepare(replace(context(declared(data="resident"), seed), kept=kept))
        running.step()
        losses.append(running.loss())
        running.close()
    assert losses[0] == losses[2] != losses[1]


def test_what_is_said_of_augmentations_is_told_with_the_latents(beside):
    as_directory(beside, arrays(), json.dumps({"augmentations": "flipped\nat random", "by": "me"}))
    row = attest_augmentations(declared())
    assert (row.observed, str(row.verdict)) == (r"flipped\nat random", "honoured")
    save_file(arrays(), beside / "l.safetensors", metadata={"augmentations": "none"})
    assert attest_augmentations(declared(data_path="l.safetensors")).observed == "none"
    (beside / "l" / "metadata.json").unlink()
    row = attest_augmentations(declared())
    assert (row.observed, str(row.verdict)) == (None, "not attested")
    assert str(attest_augmentations(declared(data="resident")).verdict) == "not applicable"


def changed(**arrays_changed):
    return {**arrays(), **arrays_changed}


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({}, "found no latents, prompt_embeds, pooled_prompt_embeds in l"),
        ({"latents": arrays()["latents"]}, "found no prompt_embeds, pooled_prompt_embeds in l"),
        (arrays(side=8), "found latents of shape (20, 4, 8, 8); expected (samples, 4, 4, 4) for model tiny"),
        (changed(prompt_embeds=np.zeros((20, 77, 32))), "found prompt_embeds of shape (20, 77, 32)"),
        (changed(pooled_prompt_embeds=np.zeros(20)), "found pooled_prompt_embeds of shape (20)"),
        (changed(latents=np.zeros((20, 4, 4, 4), np.int8)), "found latents of int8; expected fp32, fp16 or bf16"),
        (changed(latents=np.zeros((19, 4, 4, 4), np.float16)), "found 19 latents, 20 prompt_embeds"),
        (arrays(count=4), "found 4 samples in l; expected at least 10"),
        (arrays(count=0), "found 0 samples in l"),
        (changed(latents=np.array([{}], dtype=object)), "found latents.npy, which is no whole array of numbers"),
    ],
)
def test_latents_of_another_shape_are_named_before_anything_runs(made, said, tmp_path):
    as_directory(tmp_path, made)
    assert said in inputs.complaint(declared(), tmp_path)
    assert [text for text in complaints([declared()], str(tmp_path)) if said in text]


@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        ("l.npz", b"", "found the file l.npz; expected a directory with latents.npy"),
        ("l.safetensors", b"", "found l.safetensors, which is no .safetensors file"),
        ("l.safetensors", b"\xff" * 64, "which is no .safetensors file"),
        ("l/latents.npy", b"", "found latents.npy, which is no whole array of numbers"),
        ("l/latents.npy", b"PK\x03\x04" + bytes(90), "found latents.npy, which is no whole array of numbers"),
        ("l/metadata.json", b"[1]", "found a metadata.json that is no short JSON object"),
        ("l/metadata.json", b"{" * 70_000, "found a metadata.json that is no short JSON object"),
        ("l/metadata.json", b'{"augmentations": 3}', "found augmentations that are no text of up to 500 characters"),
        ("other", b"", "found no l beside the sweep file"),
    ],
)
def test_files_that_are_no_latents_are_named_too(path, content, said, tmp_path):
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_bytes(content)
    asked = path if path.startswith("l.") else "l"
    assert said in inputs.complaint(declared(data_path=asked), tmp_path)


def test_a_directory_of_latents_as_they_should_be_has_no_complaint(tmp_path):
    as_directory(tmp_path, arrays(), '{"augmentations": "none"}')
    assert inputs.complaint(declared(), tmp_path) == ""
