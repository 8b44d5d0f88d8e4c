"""Which of PyTorch's operators a step of compiled code calls: it has no layers to watch and no backward nodes to read.

What Inductor does not generate itself, attention and convolutions as a rule, it calls through the dispatcher, where
PyTorch's profiler sees it. Of the host alone: CUPTI is not loaded into the process that is measured. Callers:
`workloads.model_training`, and whoever reads evidence out of the calls.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch.profiler import ProfilerActivity, profile, record_function

os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # it tells stderr of every start, and of GPUs that a CPU worker lacks

WATCHED = 2
"""The first step compiles, and CUDA graphs replay from the third one on without calling anything."""
BACKWARD = "rtxscale backward"
"""What spans of a backward pass are called in the profile."""

ATTENTION = {
    "aten::_scaled_dot_product_flash_attention": "flash",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "flash",
    "aten::_scaled_dot_product_efficient_attention": "efficient",
    "aten::_scaled_dot_product_cudnn_attention": "cudnn",
    "flash_attn::_flash_attn_forward": "flash_attention_2",
}
"""Operators that are an attention kernel's forward pass; `math` is none, but many that Inductor fuses with others."""
FORWARD = frozenset({*ATTENTION, "aten::convolution"})
"""Operators that a backward pass calls only where it recomputes activations: their gradients have others."""


class Operators:
    """Counts the operators of one step; none unless it is compiled."""

    def __init__(self, *, compiled: bool) -> None:
        """Count from now on."""
        self.calls: Counter[str] = Counter()
        self.in_backward: Counter[str] = Counter()
        """Those of `calls` that began during a backward pass."""
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
        self._count(seen.events())

    @contextmanager
    def backward(self) -> Iterator[None]:
        """Spans a backward pass, of every one."""
        if self._steps_left != 0:
            yield
            return
        with record_function(BACKWARD):
            yield

    def _count(self, events: Iterable[Any]) -> None:
        """Backward runs in a thread of its own on GPUs, which the call waits for: times tell what belongs to it."""
        found = list(events)
        spans = [(event.time_range.start, event.time_range.end) for event in found if event.name == BACKWARD]
        for event in found:
            self.calls[event.name] += 1
            if any(start <= event.time_range.start <= end for start, end in spans):
                self.in_backward[event.name] += 1


def attention_kernels(calls: Mapping[str, int]) -> tuple[str, ...]:
    """Attention kernels among the operators called, sorted.

    >>> attention_kernels({"aten::mm": 9, "aten::_scaled_dot_product_flash_attention": 3})
    ('flash',)
    """
    return tuple(sorted({ATTENTION[name] for name in calls if name in ATTENTION}))


def repeated_calls(calls: Mapping[str, int], in_backward: Mapping[str, int]) -> tuple[int, int] | None:
    """Calls of `FORWARD` that backward made again, and those that forward made; None where it made none of them.

    >>> repeated_calls({"aten::convolution": 5, "aten::mm": 9}, {"aten::convolution": 2, "aten::mm": 6})
    (2, 3)
    >>> repeated_calls({"aten::mm": 9}, {"aten::mm": 6}) is None  # all of it was generated code
    True
    """
    again = sum(in_backward.get(name, 0) for name in FORWARD)
    once = sum(calls.get(name, 0) for name in FORWARD) - again
    return (again, once) if once > 0 else None
