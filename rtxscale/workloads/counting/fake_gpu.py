"""A GPU that is not there: code runs as it would on one, on tensors that have shapes and no numbers.

PyTorch's FakeTensorMode, with what it leaves out on a machine without a driver: autocast for CUDA, the choice of an
attention kernel, and recomputation outside the autograd engine. For a process of its own: while it lasts, PyTorch is
told what is not true. Caller: `counting.footprint`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.overrides import TorchFunctionMode

DEVICE = torch.device("cuda", 0)
FLASH_HEAD, FLASH_STEP = 256, 8
"""Flash attention takes heads up to this width, and of such multiples (torch, scaled_dot_product_attention)."""
GRAPH_TASK = 1
"""Number of the one backward pass that is under way; checkpointing recomputes once for each."""


@contextmanager
def fake_gpu() -> Iterator[None]:
    """Inside, tensors made on `DEVICE` are fake, and what is done to them is what a GPU would be asked to do."""
    with ExitStack() as stack:
        stack.enter_context(patch("torch.cuda.amp.common.amp_definitely_not_available", lambda: False))
        stack.enter_context(patch("torch.cuda.is_bf16_supported", lambda *_, **__: True))
        stack.enter_context(patch("torch._C._current_graph_task_id", lambda: GRAPH_TASK))
        stack.enter_context(FakeTensorMode())
        stack.enter_context(AttentionOfGpus())
        yield


class AttentionOfGpus(TorchFunctionMode):
    """Has attention computed by the kernel that PyTorch would choose on a GPU; without a driver it chooses none."""

    def __torch_function__(
        self, func: Callable[..., Any], _: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Replace one function, leave all others."""
        if func is functional.scaled_dot_product_attention:
            return attention(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # PyTorch's own signature
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Attention (batch, head, token, width) by the flash kernel in half precision without a mask, else the efficient.

    Source: torch, aten/src/ATen/native/transformers/attention.cpp and cuda/sdp_utils.cpp.
    """
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (part.repeat_interleave(groups, dim=-3) for part in (key, value))
    query, key, value = (_as_autocast(part) for part in (query, key, value))
    half, width = query.dtype in (torch.float16, torch.bfloat16), query.shape[-1]
    if not half or attn_mask is not None or width > FLASH_HEAD:
        mask = None if attn_mask is None else _bias(_as_autocast(attn_mask), query, key)
        efficient = torch.ops.aten._scaled_dot_product_efficient_attention
        out: torch.Tensor = efficient(query, key, value, mask, True, dropout_p, is_causal, scale=scale)[0]
        return out
    padding = -width % FLASH_STEP
    if padding:
        query, key, value = (functional.pad(part, (0, padding)) for part in (query, key, value))
        scale = width**-0.5 if scale is None else scale
    flash = torch.ops.aten._scaled_dot_product_flash_attention
    out = flash(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
    return out[..., :width] if padding else out


def _as_autocast(tensor: torch.Tensor) -> torch.Tensor:
    if not torch.is_autocast_enabled(DEVICE.type) or not tensor.is_floating_point():
        return tensor
    return tensor.to(torch.get_autocast_dtype(DEVICE.type))


def _bias(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """A mask as the efficient kernel wants it: numbers, rows of eight, the same shape for all heads."""
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(~mask, float("-inf"))
    tokens = mask.shape[-1]
    if padding := -tokens % FLASH_STEP:
        mask = functional.pad(mask, (0, padding))[..., :tokens]
    return mask.expand(*query.shape[:-1], key.shape[-2])


def move_to_fake_gpu(model: nn.Module, *, channels_last: bool) -> nn.Module:
    """Put fake parameters and buffers in the place of a model's own, in the memory format asked for; inside only."""
    made: dict[int, torch.Tensor] = {}

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in made:
            last = channels_last and tensor.ndim == 4
            layout = torch.channels_last if last else torch.contiguous_format
            empty = torch.empty(tensor.shape, dtype=tensor.dtype, device=DEVICE, memory_format=layout)
            own = isinstance(tensor, nn.Parameter)
            made[id(tensor)] = nn.Parameter(empty, requires_grad=tensor.requires_grad) if own else empty
        return made[id(tensor)]

    for module in model.modules():
        for kept in (module._parameters, module._buffers):
            kept.update({name: fake(tensor) for name, tensor in kept.items() if tensor is not None})  # type: ignore[misc]  # same types
    return model
