"""Graphs compiled for one attention kernel are not taken for another, whatever lies in Inductor's cache."""

from shutil import which

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from rtxscale.workloads.networks.attention import attention_kernel
from rtxscale.workloads.training.compilation import CACHE_TAG, forget_compiled, tell_caches
from rtxscale.workloads.training.operators import Operators, attention_kernels


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    yield
    torch.compiler.config.cache_key_tag = CACHE_TAG
    forget_compiled()


def kernels_called(requested):
    """Kernels in the second step of attention that is compiled with one kernel allowed."""
    forget_compiled()
    tell_caches(f"attention={requested}")
    attend = torch.compile(lambda rows: scaled_dot_product_attention(rows, rows, rows).sum())
    rows, found = torch.randn(1, 2, 8, 16, requires_grad=True), Operators(compiled=True)
    for _ in range(2):
        with found.step(), attention_kernel(requested):
            attend(rows).backward()
    return attention_kernels(found.calls)


@pytest.mark.skipif(which("c++") is None, reason="needs a C++ compiler, found none")
def test_the_kernel_that_is_allowed_is_the_one_that_is_compiled():
    assert [kernels_called(kernel) for kernel in ("math", "flash", "math")] == [(), ("flash",), ()]


def test_the_users_own_tag_is_kept():
    tell_caches("attention=math")
    assert torch.compiler.config.cache_key_tag == f"{CACHE_TAG} attention=math".strip()
