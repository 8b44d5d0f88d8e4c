"""Which attention kernel may be used, and which one was.

`scaled_dot_product_attention` chooses among PyTorch's kernels; `attention_kernel` leaves it one. The flash-attn package
is called by transformers itself. What ran is read from the autograd graph of a real step, or from the operators that a
compiled one calls. Callers: `workloads.language`, and `registry` for the package that is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.autograd.graph import Node
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from rtxscale.nccl.attest import Attested, Verdict
from rtxscale.workloads.optional import lacking
from rtxscale.workloads.training.operators import attention_kernels

FLASH_2 = "flash_attention_2"
"""The flash-attn package instead of PyTorch's kernels: the name that transformers has for it."""
BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
BACKWARD_NODES = {
    "ScaledDotProductFlashAttention": "flash",
    "ScaledDotProductEfficientAttention": "efficient",
    "ScaledDotProductCudnnAttention": "cudnn",
    "SafeSoftmax": "math",
    "Softmax": "math",
    "FlashAttnFunc": FLASH_2,
    "FlashAttnVarlenFunc": FLASH_2,
}
"""How the backward nodes of each kernel begin; `math` is a softmax of its own between matrix products."""
CAUSAL, REPEATED_HEADS = "causal", "repeated_heads"
"""Names under which transformers calls PyTorch's attention, as it is or with keys and values repeated."""


LEAST_VERSION = (2, 3)
NEEDED = (
    "flash-attn >= 2.3 and, of a GPU, a compute capability >= 8.0; install it as its own documentation says, or use "
    "attention flash, which is the same algorithm in PyTorch"
)


def missing_library() -> str:
    """What to install for flash_attention_2, in words; empty when it is there."""
    return lacking("flash-attn", LEAST_VERSION, f"workload.attention: found {FLASH_2}", NEEDED)


def attention_kernel(requested: str) -> AbstractContextManager[Any]:
    """Allow this kernel only; PyTorch raises where it cannot run. Must span backward too, which may recompute."""
    return sdpa_kernel(BACKENDS[requested]) if requested in BACKENDS else nullcontext()


def repeated_heads(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: Any, **options: Any
) -> tuple[torch.Tensor, None]:
    """Attention of transformers for the kernel that knows no grouped heads: keys and values repeated beforehand.

    Tensors are (batch, head, token, width), the result (batch, token, head, width).
    """
    groups = query.shape[1] // key.shape[1]
    output = scaled_dot_product_attention(
        query,
        key.repeat_interleave(groups, dim=1),
        value.repeat_interleave(groups, dim=1),
        attn_mask=attention_mask,
        is_causal=attention_mask is None,
        scale=options.get("scaling"),
    )
    return output.transpose(1, 2).contiguous(), None


def kernels_in(loss: torch.Tensor) -> tuple[str, ...]:
    """Attention kernels that backward from `loss` will run through, sorted; a compiled graph does not name them."""
    starts = tuple(f"{name}{end}" for name in BACKWARD_NODES for end in ("Backward", "ForCpuBackward"))
    found = set()
    for name in _names(loss):
        if name.startswith(starts):
            found.add(BACKWARD_NODES[name.partition("Backward")[0].removesuffix("ForCpu")])
    return tuple(sorted(found))


def _names(loss: torch.Tensor) -> Iterator[str]:
    """Names of all nodes of the graph."""
    waiting: list[Node | None] = [loss.grad_fn]
    seen = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node.name()
        waiting.extend(following for following, _ in node.next_functions)


def attest_attention(requested: str, kernels: tuple[str, ...], calls: Mapping[str, int]) -> Attested:
    """The kernel asked for against those seen in the graph, or else among the operators that a compiled step called.

    `math` has no operator of its own: it is what is left where every other kernel was forbidden, and none was called.
    """
    evidence = "backward nodes of the first micro-step"
    if not kernels and calls:
        kernels, evidence = attention_kernels(calls), "operators that a compiled step called"
        if not kernels and requested == "math":
            kernels, evidence = ("math",), f"{evidence}: no other kernel, all of which were forbidden"
    if kernels:
        right = requested == "auto" or kernels == (requested,)
        verdict = Verdict.HONOURED if right else Verdict.REFUTED
    else:
        verdict, evidence = Verdict.NOT_ATTESTED, f"{evidence}: none can be told apart"
    return Attested(
        subject="workload.attention",
        requested=requested,
        observed=", ".join(kernels) or None,
        verdict=verdict,
        evidence=evidence,
    )
