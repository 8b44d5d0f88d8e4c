"""Counting memory on a GPU that is not there, against real tensors, PyTorch's own engine, and what has been counted."""

import io
import json
from importlib.metadata import version

import pytest
import timm
import torch

from rtxscale.models.counted import read_catalogue, shipped
from rtxscale.models.footprint import Subject
from rtxscale.models.unets import UNETS
from rtxscale.plan.feasibility import training_of
from rtxscale.spec.workload import VisionWorkload
from rtxscale.workloads.counting import footprint
from rtxscale.workloads.counting.fake_gpu import DEVICE, attention, fake_gpu, move_to_fake_gpu
from rtxscale.workloads.counting.live_bytes import BLOCK, LiveBytes
from rtxscale.workloads.counting.walked_backward import walk_backward
from rtxscale.workloads.networks.unet import build_unet

SIDES = {"test_resnet": 64, "test_vit": 64, "test_efficientnet": 64, "tiny": 64}
"""Small models of timm, and the small UNet; height and width in pixels."""
SAMPLES = 4
CASES = [(name, checkpointing) for name in SIDES for checkpointing in (False, True)]


def subject(name, *, checkpointing=False, low=False):
    kind = "diffusion" if name in UNETS else "vision"
    return Subject(kind=kind, model=name, image_size=SIDES[name], checkpointing=checkpointing, low=low)


def real(name, *, checkpointing=False):
    """The model with weights, and its inputs, on the CPU."""
    torch.manual_seed(1)
    side = SIDES[name]
    if name in UNETS:
        model, shape = build_unet(UNETS[name]), UNETS[name]
        if checkpointing:
            model.enable_gradient_checkpointing()
        sizes = {"latents": (4, side // 8, side // 8), "text": shape.text, "pooled": (shape.pooled,), "times": (6,)}
        return model.train(), {key: torch.randn(SAMPLES, *size) for key, size in sizes.items()}
    model = timm.create_model(name, num_classes=footprint.CLASSES, **({"img_size": side} if "vit" in name else {}))
    model.set_grad_checkpointing(checkpointing)
    labels = torch.arange(SAMPLES)
    return model.train(), {"images": torch.randn(SAMPLES, 3, side, side), "labels": labels}


def loss_of(name, model, inputs):
    task = footprint.TASKS[subject(name).kind](subject(name))
    torch.manual_seed(2)
    return task.loss(model, inputs)


def by_engine(losses):
    losses.pop().backward()


def by_walk(losses):
    """Checkpointing is told that a pass is under way, as on the fake GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch._C._current_graph_task_id", lambda: 1)
        walk_backward(losses)


@pytest.mark.parametrize(("name", "checkpointing"), CASES)
def test_the_walk_gives_the_gradients_of_the_engine(name, checkpointing):
    found = []
    for pass_back in (by_engine, by_walk):
        model, inputs = real(name, checkpointing=checkpointing)
        pass_back([loss_of(name, model, inputs)])
        found.append({key: parameter.grad for key, parameter in model.named_parameters()})
    for key, expected in found[0].items():
        if expected is None:
            assert found[1][key] is None, key
        else:
            torch.testing.assert_close(found[1][key], expected, msg=key)


@pytest.mark.parametrize(("name", "checkpointing"), CASES)
def test_tensors_live_as_long_in_the_walk_as_in_the_engine(name, checkpointing):
    peaks = []
    for pass_back in (by_engine, by_walk):
        model, inputs = real(name, checkpointing=checkpointing)
        live = LiveBytes([*model.parameters(), *model.buffers(), *inputs.values()])
        with live:
            losses = [loss_of(name, model, inputs)]
            pass_back(losses)
        peaks.append(max(held for _, held, _ in live.history))
    assert peaks[1] == pytest.approx(peaks[0], rel=0.02)


def saved_for_real(name, *, checkpointing):
    """Bytes that a real forward pass on the CPU keeps for backward, beside parameters, buffers and inputs."""
    model, inputs = real(name, checkpointing=checkpointing)
    known = {one.untyped_storage().data_ptr() for one in (*model.parameters(), *model.buffers(), *inputs.values())}
    kept = {}

    def note(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = loss_of(name, model, inputs)
    assert loss.isfinite()
    return sum(-(-storage.nbytes() // BLOCK) * BLOCK for storage in kept.values())


def counted_after_forward(name, *, checkpointing):
    """Bytes alive when the forward pass is over, on the GPU that is not there."""
    task = footprint.TASKS[subject(name).kind](subject(name, checkpointing=checkpointing))
    with fake_gpu():
        model = move_to_fake_gpu(task.model, channels_last=False).train()
        inputs = task.inputs(SAMPLES)
        live = LiveBytes([*model.parameters(), *model.buffers(), *inputs.values()])
        with live:
            loss = task.loss(model, inputs)
            torch.empty(1, device="cpu")  # one more operation, to look once more
    assert loss.requires_grad
    return live.history[-1][1]


@pytest.mark.parametrize(("name", "checkpointing"), CASES)
def test_what_is_counted_after_forward_is_what_a_real_pass_saves(name, checkpointing):
    saved, counted = (found(name, checkpointing=checkpointing) for found in (saved_for_real, counted_after_forward))
    # The GPU's attention kernels keep a few numbers more for each head, and where their random numbers begin.
    assert counted == pytest.approx(saved, rel=0.03)


@pytest.mark.parametrize(
    ("dtype", "masked", "kernel"),
    [
        (torch.bfloat16, False, "ScaledDotProductFlashAttentionBackward0"),
        (torch.float32, False, "ScaledDotProductEfficientAttentionBackward0"),
        (torch.bfloat16, True, "ScaledDotProductEfficientAttentionBackward0"),
    ],
)
def test_the_attention_kernel_is_the_one_of_gpus(dtype, masked, kernel):
    with fake_gpu():
        query = torch.empty(2, 3, 49, 32, dtype=dtype, device=DEVICE, requires_grad=True)
        mask = torch.ones(1, 3, 49, 49, dtype=torch.bool, device=DEVICE) if masked else None
        out = attention(query, query, query, attn_mask=mask)
    assert (out.shape, out.dtype, out.grad_fn.name()) == (query.shape, dtype, kernel)


def test_heads_that_are_no_multiple_of_eight_come_back_as_wide_as_they_were():
    with fake_gpu():
        query = torch.empty(2, 3, 10, 20, dtype=torch.float16, device=DEVICE, requires_grad=True)
        assert attention(query, query, query, is_causal=True).shape == query.shape


def test_autocast_works_on_the_gpu_that_is_not_there():
    with fake_gpu(), torch.autocast("cuda", dtype=torch.bfloat16):
        out = torch.nn.functional.linear(torch.empty(2, 8, device=DEVICE), torch.empty(4, 8, device=DEVICE))
    assert out.dtype == torch.bfloat16


@pytest.mark.parametrize(
    "one",
    [
        Subject(kind="vision", model="resnet18", image_size=224),
        Subject(kind="diffusion", model="tiny", image_size=64, checkpointing=True, gathered=True),
    ],
    ids=lambda one: one.model,
)
def test_counted_again_it_is_what_comes_with_rtxscale(one):
    known, again = shipped().find(one), footprint.footprint_of(one)
    if all(version(name) == counted for name, counted in shipped().versions.items()):
        assert again == known
    else:
        held = [max(m.fixed + 8 * m.per_sample for m in counts.moments) for counts in (known, again)]
        assert held[1] == pytest.approx(held[0], rel=0.05)


@pytest.mark.parametrize("model", ["resnet18", "deit_small_patch16_224"])
def test_activations_follow_the_pixels(model):
    """What comes with rtxscale was counted at one image size."""
    workload = VisionWorkload(kind="vision", model=model, image_size=320, batch_per_gpu=64)
    scaled = training_of(workload, 1)
    one = Subject(kind="vision", model=model, image_size=320)
    counts = footprint.footprint_of(one)
    held = [max(m.fixed + 64 * m.per_sample for m in known.moments) for known in (scaled.footprint, counts)]
    assert held[0] == pytest.approx(held[1], rel=0.02)


def test_what_cannot_be_counted_is_said_and_the_rest_is_counted(monkeypatch, capsys):
    asked = [{"kind": "vision", "model": name, "image_size": 64} for name in ("nonesuch", "test_vit")]
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(asked)))
    assert footprint.main([]) == 0
    found = read_catalogue(capsys.readouterr().out.splitlines())
    assert [subject.model for subject in found.counts] == ["test_vit"]
    assert list(found.problems.values()) == ["RuntimeError: Unknown model (nonesuch)"]
