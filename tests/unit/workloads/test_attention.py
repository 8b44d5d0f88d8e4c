import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from rtxscale.nccl.attest import Verdict
from rtxscale.workloads.attention import attention_kernel, attest_attention, kernels_in, repeated_heads


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


@pytest.mark.parametrize(
    ("requested", "kernels", "stepped", "verdict", "observed"),
    [
        ("flash", ("flash",), True, Verdict.HONOURED, "flash"),
        ("flash", ("math",), True, Verdict.REFUTED, "math"),
        ("flash", ("flash", "math"), True, Verdict.REFUTED, "flash, math"),
        ("auto", ("efficient",), True, Verdict.HONOURED, "efficient"),
        ("flash", (), True, Verdict.HONOURED, "flash"),
        ("flash", (), False, Verdict.NOT_ATTESTED, None),
        ("auto", (), True, Verdict.NOT_ATTESTED, None),
    ],
)
def test_verdicts(requested, kernels, stepped, verdict, observed):
    row = attest_attention(requested, kernels, stepped=stepped)
    assert (row.verdict, row.observed) == (verdict, observed)


def test_repeated_heads_are_grouped_heads():
    query, key, value = torch.randn(2, 4, 8, 16), torch.randn(2, 2, 8, 16), torch.randn(2, 2, 8, 16)
    output, weights = repeated_heads(None, query, key, value, None, scaling=0.25)
    grouped = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True, scale=0.25)
    assert weights is None
    torch.testing.assert_close(output, grouped.transpose(1, 2))
