"""Which of PyTorch's operators a step of compiled code calls: it has no layers to watch and no backward nodes to read.

What Inductor does not generate itself, attention and convolutions as a rule, it calls through the dispatcher, where
PyTorch's profiler sees it. Of the host alone: CUPTI is not loaded into the process that is measured. Callers:
`workloads.model_training`, and whoever reads evidence out of the calls.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch.profiler import ProfilerActivity, profile

os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # it tells stderr of every start, and of GPUs that a CPU worker lacks

WATCHED = 2
"""The first step compiles, and CUDA graphs replay from the third one on without calling anything."""

ATTENTION = {
    "aten::_scaled_dot_product_flash_attention": "flash",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "flash",
    "aten::_scaled_dot_product_efficient_attention": "efficient",
    "aten::_scaled_dot_product_cudnn_attention": "cudnn",
    "flash_attn::_flash_attn_forward": "flash_attention_2",
}
"""Operators that are an attention kernel's forward pass; `math` is none, but many that Inductor fuses with others."""

BACKWARD = {
    **{name: f"{name}_backward" for name in ATTENTION if name.startswith("aten::")},
    "flash_attn::_flash_attn_forward": "flash_attn::_flash_attn_backward",
    "aten::convolution": "aten::convolution_backward",
}
"""Operators of which each forward call has one backward call, unless activations are recomputed."""


class Operators:
    """Counts the operators of one step; none unless it is compiled."""

    def __init__(self, *, compiled: bool) -> None:
        """Count from now on."""
        self.calls: Counter[str] = Counter()
        self._steps_left = WATCHED if compiled else 0

    @contextmanager
    def step(self) -> Iterator[None]:
        """Spans the forward and backward passes of a step, of every one."""
        self._steps_left -= 1
        if self._steps_left != 0:
            yield
            return
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            yield
        self.calls.update(event.name for event in seen.events())


def attention_kernels(calls: Mapping[str, int]) -> tuple[str, ...]:
    """Attention kernels among the operators called, sorted.

    >>> attention_kernels({"aten::mm": 9, "aten::_scaled_dot_product_flash_attention": 3})
    ('flash',)
    """
    return tuple(sorted({ATTENTION[name] for name in calls if name in ATTENTION}))


def repeated_calls(calls: Mapping[str, int]) -> tuple[int, int] | None:
    """Forward calls that were made once more in backward, and how many there are without them; None if it is not seen.

    >>> repeated_calls({"aten::convolution": 5, "aten::convolution_backward": 3})
    (2, 3)
    >>> repeated_calls({"aten::convolution": 2, "aten::convolution_backward": 3}) is None  # one call was generated code
    True
    """
    pairs = [(calls.get(name, 0), calls.get(other, 0)) for name, other in BACKWARD.items()]
    once = sum(backward for _, backward in pairs)
    if once == 0 or any(forward < backward for forward, backward in pairs):
        return None
    return sum(forward for forward, _ in pairs) - once, once
