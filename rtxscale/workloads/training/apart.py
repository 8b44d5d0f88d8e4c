"""Ranks of a model under DDP that train apart for a while: steps without gradient synchronisation, then equal again.

Not for FSDP, whose ranks hold a part of the model each and cannot compute without the others, nor for anything else
that communicates outside DDP's backward pass. Optimizer states stay as they are: whoever trains on afterwards trains
from equal parameters with unequal momenta. Callers: the workloads that train a model under DDP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from rtxscale.workloads.protocol import Context


@dataclass(frozen=True, kw_only=True)
class DdpApart:
    """A model under DDP whose ranks can train apart; see `protocol.Apart`."""

    wrapped: DistributedDataParallel
    group: dist.ProcessGroup
    exchange: Callable[[Any], list[Any]]

    def steps(self) -> AbstractContextManager[Any]:
        """DDP's `no_sync`. The first forward pass inside still hands rank 0's buffers round, the later ones do not."""
        silent: Callable[[], AbstractContextManager[Any]] = self.wrapped.no_sync
        return silent()

    @torch.no_grad()
    def rejoin(self) -> bool:
        """Give every rank the parameters and buffers of rank 0; whether all ranks then hold the same bytes.

        The bytes are summed up on each device and compared over `exchange`, not over the transport that brought them.
        """
        for tensor in self._tensors():
            dist.broadcast(tensor, src=0, group=self.group)
        sums = [checksum(tensor) for tensor in self._tensors()]
        own = torch.cat(sums).tolist() if sums else []
        return all(other == own for other in self.exchange(own))

    def _tensors(self) -> Iterator[torch.Tensor]:
        for tensor in (*self.wrapped.module.parameters(), *self.wrapped.module.buffers()):
            yield tensor.detach()


def apart(model: Any, context: Context) -> DdpApart | None:
    """How the ranks of this model train apart, compiled or not; None where it is not under DDP."""
    wrapped = getattr(model, "_orig_mod", model)
    if context.group is None or not isinstance(wrapped, DistributedDataParallel):
        return None
    return DdpApart(wrapped=wrapped, group=context.group, exchange=context.exchange)


def checksum(tensor: torch.Tensor) -> torch.Tensor:
    """Sums over all elements of each byte that an element has, (bytes,).

    >>> checksum(torch.tensor([1, 256, 3], dtype=torch.int16)).tolist()
    [4, 1]
    """
    size = tensor.element_size()
    return tensor.reshape(-1).view(torch.uint8).view(-1, size).sum(0, dtype=torch.int64)
