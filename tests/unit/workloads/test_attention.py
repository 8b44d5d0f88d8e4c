from importlib import metadata

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from rtxscale.models.shapes import SIZES
from rtxscale.nccl.attest import Verdict
from rtxscale.spec.workload import LanguageWorkload
from rtxscale.workloads.networks.attention import attention_kernel, attest_attention, kernels_in, repeated_heads
from rtxscale.workloads.networks.decoder import build_decoder, set_attention
from rtxscale.workloads.registry import complaints


def loss_with(kernel):
    query, key, value = (torch.randn(1, 2, 8, 8, requires_grad=True) for _ in range(3))
    with attention_kernel(kernel):
        return scaled_dot_product_attention(query, key, value, is_causal=True).square().sum()


@pytest.mark.parametrize("kernel", ["flash", "math"])
def test_the_graph_names_the_kernel(kernel):
    assert kernels_in(loss_with(kernel)) == (kernel,)


def test_a_loss_over_classes_is_no_attention():
    logits = torch.randn(4, 8, requires_grad=True)
    assert kernels_in(torch.nn.functional.cross_entropy(logits, torch.zeros(4, dtype=torch.long))) == ()


def test_two_kernels_in_one_graph_are_both_named():
    assert kernels_in(loss_with("flash") + loss_with("math")) == ("flash", "math")


CUDNN = {"aten::_scaled_dot_product_cudnn_attention": 2}


@pytest.mark.parametrize(
    ("requested", "kernels", "calls", "verdict", "observed"),
    [
        ("flash", ("flash",), {}, Verdict.HONOURED, "flash"),
        ("flash", ("math",), {}, Verdict.REFUTED, "math"),
        ("flash", ("flash", "math"), {}, Verdict.REFUTED, "flash, math"),
        ("auto", ("efficient",), {}, Verdict.HONOURED, "efficient"),
        ("auto", (), CUDNN, Verdict.HONOURED, "cudnn"),
        ("cudnn", (), CUDNN, Verdict.HONOURED, "cudnn"),
        ("flash", (), CUDNN, Verdict.REFUTED, "cudnn"),
        ("math", (), CUDNN, Verdict.REFUTED, "cudnn"),
        ("math", (), {"aten::mm": 2}, Verdict.HONOURED, "math"),
        ("flash", (), {"aten::mm": 2}, Verdict.NOT_ATTESTED, None),
        ("auto", (), {"aten::mm": 2}, Verdict.NOT_ATTESTED, None),
        ("math", (), {}, Verdict.NOT_ATTESTED, None),
        ("flash", (), {}, Verdict.NOT_ATTESTED, None),
    ],
)
def test_verdicts(requested, kernels, calls, verdict, observed):
    row = attest_attention(requested, kernels, calls)
    assert (row.verdict, row.observed) == (verdict, observed)


def test_repeated_heads_are_grouped_heads():
    query, key, value = torch.randn(2, 4, 8, 16), torch.randn(2, 2, 8, 16), torch.randn(2, 2, 8, 16)
    output, weights = repeated_heads(None, query, key, value, None, scaling=0.25)
    grouped = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True, scale=0.25)
    assert weights is None
    torch.testing.assert_close(output, grouped.transpose(1, 2))


def test_the_flash_attn_package_is_seen_in_the_graph():
    class FlashAttnFunc(torch.autograd.Function):
        @staticmethod
        def forward(ctx, query):
            return query * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    loss = FlashAttnFunc.apply(torch.ones(2, requires_grad=True)).sum()
    assert kernels_in(loss) == ("flash_attention_2",)
    with attention_kernel("flash_attention_2"):
        assert kernels_in(loss_with("flash")) == ("flash",), "PyTorch's own kernels are left alone"


def test_without_the_flash_attn_package_the_plan_says_what_to_use_instead(monkeypatch):
    asked = LanguageWorkload.model_validate({"kind": "language", "size": "tiny", "attention": "flash_attention_2"})
    (said,) = complaints([asked])
    assert said.startswith(
        "workload.attention: found flash_attention_2 without flash-attn, which needs flash-attn >= 2.3"
    )
    assert "or use attention flash" in said
    monkeypatch.setattr(metadata, "version", lambda name: "2.8.3")
    assert complaints([asked]) == []


def test_transformers_is_told_of_the_package_by_its_own_name():
    model = build_decoder(SIZES["tiny"])
    set_attention(model, "flash_attention_2")
    assert model.config._attn_implementation == "flash_attention_2"
