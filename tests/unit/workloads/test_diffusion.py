"""The SDXL workload: its size, its objective, and that it learns."""

import importlib.util

import pytest
import torch
import torch.distributed as dist
from made_context import made_context
from pydantic import TypeAdapter

from rtxscale.models.shapes import UNET_PARAMETERS
from rtxscale.models.unets import UNETS
from rtxscale.nccl.attest import Verdict
from rtxscale.spec.workload import Workload
from rtxscale.workloads import diffusion
from rtxscale.workloads.diffusion import Diffusion
from rtxscale.workloads.networks import unet
from rtxscale.workloads.networks.noise import noised, signal_shares
from rtxscale.workloads.networks.unet import blocks_of, build_unet, draw_batch
from rtxscale.workloads.registry import complaints

CPU = torch.device("cpu")
TINY = {"kind": "diffusion", "model": "tiny", "image_size": 32, "batch_per_gpu": 2, "precision": "fp32"}


def declared(**changes):
    return TypeAdapter(Workload).validate_python({**TINY, **changes})


def prepared(kept=None, group=None, **changes):
    return Diffusion().prepare(made_context(declared(**changes), group=group, kept={} if kept is None else kept))


def test_it_is_as_large_as_the_published_model():
    for name, shape in UNETS.items():
        with torch.device("meta"):
            model = build_unet(shape)
        assert sum(parameter.numel() for parameter in model.parameters()) == UNET_PARAMETERS[name]
    assert UNET_PARAMETERS["sdxl"] == 2_567_463_684


def test_no_part_that_is_gathered_at_once_is_large():
    with torch.device("meta"):
        model = build_unet(UNETS["sdxl"])
    sizes = [sum(parameter.numel() for parameter in block.parameters()) for block in blocks_of(model)]
    assert len(sizes) == 17 + 70
    assert max(sizes) < 0.02 * UNET_PARAMETERS["sdxl"]
    assert sum(sizes) > 0.9 * UNET_PARAMETERS["sdxl"]


def test_the_schedule_is_the_one_diffusers_computes_from_the_published_settings():
    from diffusers import DDPMScheduler

    scheduler = DDPMScheduler(
        num_train_timesteps=1000, beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear"
    )
    ours = signal_shares(CPU)
    torch.testing.assert_close(ours, scheduler.alphas_cumprod, rtol=1e-4, atol=1e-6)
    latents, noise = torch.randn(3, 4, 2, 2), torch.randn(3, 4, 2, 2)
    times = torch.tensor([0, 500, 999])
    theirs = scheduler.add_noise(latents, noise, times)
    torch.testing.assert_close(noised(latents, noise, ours[times]), theirs, rtol=1e-3, atol=1e-4)


def test_it_learns_to_predict_the_noise(monkeypatch):
    monkeypatch.setattr(diffusion, "LEARNING_RATE", 3e-3)
    running = prepared()
    losses = []
    for _ in range(40):
        running.step()
        losses.append(running.loss())
    running.close()
    assert sum(losses[-10:]) < 0.97 * sum(losses[:10])


def test_every_trial_starts_from_the_same_weights_and_noise_whatever_ran_before():
    kept = {}
    losses = []
    for changes in ({}, {"checkpointing": "on", "channels_last": False}, {}):
        running = prepared(kept, **changes)
        first = running.step() or running.loss()
        running.step()
        losses.append((first, running.loss()))
        running.close()
    assert losses[0][0] == pytest.approx(losses[1][0], rel=1e-3)
    assert losses[0] == pytest.approx(losses[2], rel=1e-6)
    assert list(kept) == ["diffusion"]


@pytest.mark.parametrize("checkpointing", ["off", "on"])
def test_a_sharded_step_computes_what_a_whole_one_does(checkpointing, tmp_path):
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        losses = {}
        for parallel in ("ddp", "fsdp"):
            running = prepared(
                group=dist.new_group(backend="gloo"),
                parallel=parallel,
                checkpointing=checkpointing,
                channels_last=False,
            )
            losses[parallel] = [running.step() or running.loss() for _ in range(3)]
            assert bool(running.buckets()) == (parallel == "ddp")
            running.close()
    finally:
        dist.destroy_process_group()
    # AdamW's first update is the gradient's sign, which rounding turns where there is next to none: later losses part.
    assert losses["ddp"][0] == pytest.approx(losses["fsdp"][0], rel=1e-6)
    assert losses["ddp"][1] == pytest.approx(losses["fsdp"][1], rel=1e-3)


def checkpointing_of(running):
    (row,) = [row for row in running.attest() if row.subject == "workload.checkpointing"]
    return row


@pytest.mark.parametrize("wanted", ["off", "on"])
def test_checkpointing_is_attested_from_what_ran_again(wanted):
    running = prepared(checkpointing=wanted)
    assert checkpointing_of(running).verdict == Verdict.NOT_ATTESTED
    running.step()
    row = checkpointing_of(running)
    assert row.verdict == Verdict.HONOURED
    assert row.observed.startswith(wanted)
    running.close()


@pytest.mark.parametrize("wanted", ["off", "on"])
def test_blocks_that_are_set_otherwise_than_was_asked_for_are_refuted(wanted):
    running = prepared(checkpointing=wanted)
    unet = running._bare
    unet.enable_gradient_checkpointing() if wanted == "off" else unet.disable_gradient_checkpointing()
    running.step()
    assert checkpointing_of(running).verdict == Verdict.REFUTED
    running.close()


def test_latents_are_an_eighth_of_the_image():
    batch = draw_batch(UNETS["sdxl"], 2, 1024, CPU, seed=1)
    assert batch["latents"].shape == (2, 4, 128, 128)
    assert batch["text"].shape == (2, 77, 2048)
    assert batch["times"].tolist() == [[1024, 1024, 0, 0, 1024, 1024]] * 2


def test_without_the_library_the_plan_says_what_to_install(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(unet.importlib.util, "find_spec", lambda name: None if name == "diffusers" else find(name))
    assert complaints([declared()]) == [unet.MISSING]
    with pytest.raises(RuntimeError, match="rtxscale\\[diffusion\\]"):
        build_unet(UNETS["tiny"])


def test_an_image_that_the_unet_cannot_halve_often_enough_is_refused():
    with pytest.raises(ValueError, match="multiple of 32"):
        declared(image_size=100)
