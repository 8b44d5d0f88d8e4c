"""What a compiled step calls is counted, and says which attention ran and whether activations were recomputed."""

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from rtxscale.workloads.training.operators import Operators, attention_kernels, repeated_calls


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


def watched(model, *, steps=3, compiled=True):
    """The calls of a model's steps, compiled as far as autograd goes and no further, which takes no compiler."""
    torch._dynamo.reset()
    run = torch.compile(model, backend="aot_eager")
    images = torch.randn(2, 2, 8, 8, requires_grad=True)
    found = Operators(compiled=compiled)
    for _ in range(steps):
        with found.step():
            run(images).backward()
    torch._dynamo.reset()
    return found.calls


@pytest.mark.parametrize(("checkpointing", "again"), [(False, 0), (True, 6)])
def test_recomputation_shows_in_the_calls_of_a_compiled_step(checkpointing, again):
    calls = watched(Model(checkpointing=checkpointing))
    assert attention_kernels(calls) == ("flash",)
    assert repeated_calls(calls) == (again, 6), "three attentions and three convolutions"


def test_only_the_second_step_is_watched():
    assert not watched(Model(checkpointing=False), steps=1)
    assert watched(Model(checkpointing=False), steps=2) == watched(Model(checkpointing=False), steps=5)


def test_eager_steps_are_not_watched():
    assert not watched(Model(checkpointing=False), compiled=False)


def test_a_step_that_fails_leaves_no_profiler_behind():
    found = Operators(compiled=True)
    for _ in range(2):
        with pytest.raises(ValueError, match="too large"), found.step():
            raise ValueError("too large")
    assert not torch.autograd._profiler_enabled()


@pytest.mark.parametrize(
    ("calls", "found"),
    [
        ({}, None),
        ({"aten::mm": 4}, None),
        ({"aten::convolution": 4}, None),
        ({"aten::convolution": 4, "aten::convolution_backward": 4}, (0, 4)),
        ({"aten::convolution": 7, "aten::convolution_backward": 4}, (3, 4)),
        (
            {
                "aten::convolution": 3,
                "aten::convolution_backward": 4,
                "aten::_scaled_dot_product_cudnn_attention": 4,
                "aten::_scaled_dot_product_cudnn_attention_backward": 2,
            },
            None,
        ),
    ],
)
def test_calls_that_do_not_add_up_prove_nothing(calls, found):
    assert repeated_calls(calls) == found


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
