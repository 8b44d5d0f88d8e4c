"""What a compiled step calls is counted, and says which attention ran and whether activations were recomputed."""

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from rtxscale.nccl.attest import Verdict
from rtxscale.workloads.training.operators import Operators, attention_kernels, repeated_calls
from rtxscale.workloads.training.recomputation import attest_checkpointing


class Block(nn.Module):
    """Attention over the rows of an image and a convolution, whose results are both needed in backward."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Conv2d(2, 2, 3, padding=1)

    def forward(self, images):
        return self.mix(scaled_dot_product_attention(images, images, images)).sin()


class Model(nn.Module):
    def __init__(self, *, checkpointing):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.checkpointing = checkpointing

    def forward(self, images):
        for block in self.blocks:
            images = checkpoint(block, images, use_reentrant=False) if self.checkpointing else block(images)
        return images.square().mean()


def watched(model, *, steps=3, compiled=True, images=None):
    """The calls of a model's steps, compiled as far as autograd goes and no further, which takes no compiler."""
    torch._dynamo.reset()
    run = torch.compile(model, backend="aot_eager")
    images = torch.randn(2, 2, 8, 8, requires_grad=True) if images is None else images
    found = Operators(compiled=compiled)
    for _ in range(steps):
        with found.step():
            loss = run(images)
            with found.backward():
                loss.backward()
    torch._dynamo.reset()
    return found


@pytest.mark.parametrize(("checkpointing", "again"), [(False, 0), (True, 6)])
def test_recomputation_shows_in_the_calls_of_a_compiled_step(checkpointing, again):
    found = watched(Model(checkpointing=checkpointing))
    assert attention_kernels(found.calls) == ("flash",)
    assert repeated_calls(found.calls, found.in_backward) == (again, 6), "three attentions and three convolutions"


def test_frozen_layers_that_nothing_is_learnt_before_are_no_recomputation():
    model = Model(checkpointing=False)
    for block in model.blocks[:2]:
        block.requires_grad_(requires_grad=False)
    found = watched(model, images=torch.randn(2, 2, 8, 8))
    assert repeated_calls(found.calls, found.in_backward) == (0, 6)


def test_only_the_second_step_is_watched():
    assert not watched(Model(checkpointing=False), steps=1).calls
    often, twice = (watched(Model(checkpointing=False), steps=steps) for steps in (5, 2))
    assert often.calls == twice.calls
    assert often.in_backward == twice.in_backward


def test_eager_steps_are_not_watched():
    assert not watched(Model(checkpointing=False), compiled=False).calls


def test_a_step_that_fails_leaves_no_profiler_behind():
    found = Operators(compiled=True)
    for _ in range(2):
        with pytest.raises(ValueError, match="too large"), found.step():
            raise ValueError("too large")
    assert not torch.autograd._profiler_enabled()


@pytest.mark.parametrize(
    ("calls", "in_backward", "found"),
    [
        ({}, {}, None),
        ({"aten::mm": 4}, {"aten::mm": 2}, None),
        ({"aten::convolution": 4}, {}, (0, 4)),
        ({"aten::convolution": 7}, {"aten::convolution": 3}, (3, 4)),
        ({"aten::convolution": 3}, {"aten::convolution": 3}, None),
    ],
)
def test_only_calls_in_forward_can_be_made_again(calls, in_backward, found):
    assert repeated_calls(calls, in_backward) == found


@pytest.mark.parametrize(
    ("requested", "layers", "calls", "verdict", "observed"),
    [
        ("on", (3, 5), None, Verdict.HONOURED, "on, 3 of 5 layers"),
        ("on", (0, 5), None, Verdict.REFUTED, "off"),
        ("off", (3, 5), None, Verdict.REFUTED, "on, 3 of 5 layers"),
        ("off", (0, 5), None, Verdict.HONOURED, "off"),
        ("on", None, (2, 3), Verdict.HONOURED, "on, 2 of 3 calls"),
        ("on", None, (0, 3), Verdict.NOT_ATTESTED, None),
        ("off", None, (2, 3), Verdict.REFUTED, "on, 2 of 3 calls"),
        ("off", None, (0, 3), Verdict.HONOURED, "off"),
        ("off", None, None, Verdict.NOT_ATTESTED, None),
    ],
)
def test_verdicts(requested, layers, calls, verdict, observed):
    row = attest_checkpointing(requested, layers, calls)
    assert (row.verdict, row.observed) == (verdict, observed)


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("aten::_scaled_dot_product_flash_attention", "flash"),
        ("aten::_scaled_dot_product_efficient_attention", "efficient"),
        ("aten::_scaled_dot_product_cudnn_attention", "cudnn"),
    ],
)
def test_the_operators_are_pytorchs(name, kernel):
    assert attention_kernels({name: 1, f"{name}_backward": 1}) == (kernel,)
    for word in (name, f"{name}_backward"):
        assert hasattr(torch.ops.aten, word.removeprefix("aten::")), word
