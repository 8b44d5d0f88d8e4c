"""How many bytes of tensors are alive after each operation: from a storage's first tensor to the end of its last.

What PyTorch's allocator would have given out, in its unit; what kernels take for themselves is not seen. Works on fake
tensors and on real ones. Caller: `counting.footprint`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

BLOCK = 512
"""Bytes that CUDA's caching allocator rounds up to (torch, c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize)."""


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]  # untyped in torch
    """While active, notes the bytes of all tensors made since, after each operation.

    `known` tensors were there before and do not count, nor do views of them. `history` holds, of each operation, its
    name, the bytes beside gradients that were kept, and how many numbers those gradients have.
    """

    def __init__(self, known: Iterable[torch.Tensor]) -> None:
        """Begin at nothing."""
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.history: list[tuple[str, int, int]] = []
        self._known = {_storage_of(tensor): tensor for tensor in known}
        self._alive: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._bytes = self._gradient_bytes = self._gradients = 0

    def __torch_dispatch__(
        self, func: Callable[..., Any], _: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation and look at what it returned."""
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                self._note(tensor)
        self.history.append((str(func), self._bytes - self._gradient_bytes, self._gradients))
        return made

    def keep_gradient(self, gradient: torch.Tensor) -> None:
        """Count this tensor among the gradients from now on."""
        self._gradient_bytes += _rounded(gradient.untyped_storage().nbytes())
        self._gradients += gradient.numel()

    def _note(self, tensor: torch.Tensor) -> None:
        key = _storage_of(tensor)
        if key in self._alive or key in self._known:
            return
        storage = tensor.untyped_storage()
        size = _rounded(storage.nbytes())

        def gone(_: Any) -> None:
            self._bytes -= size
            del self._alive[key]

        self._alive[key] = weakref.ref(storage, gone)
        self._bytes += size


def _storage_of(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _rounded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK
