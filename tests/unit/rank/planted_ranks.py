"""Ranks whose vision workload fails in ways that the batch size chooses; started by torchrun from the tests."""

import math
import sys

import torch

from rtxscale.rank.__main__ import main
from rtxscale.workloads import registry

NAN_ON_RANK_1, OUT_OF_MEMORY, RAISE_ON_RANK_1 = 3, 5, 6


class Planted:
    """A prepared workload with a fault in it."""

    def __init__(self, running, context):
        self._running = running
        self._rank = context.rank
        self._steps = 0
        self._batch = context.workload.batch_per_gpu

    def __getattr__(self, name):
        return getattr(self._running, name)

    def step(self):
        self._steps += 1
        if self._batch == OUT_OF_MEMORY and self._steps == 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        if self._batch == RAISE_ON_RANK_1 and self._steps == 3 and self._rank == 1:
            raise ValueError("planted")
        return self._running.step()

    def loss(self):
        if self._batch == NAN_ON_RANK_1 and self._rank == 1 and self._steps > 2:
            return math.nan
        return self._running.loss()


class PlantedVision:
    """Vision with faults."""

    def __init__(self, vision):
        self._vision = vision

    def prepare(self, context):
        return Planted(self._vision.prepare(context), context)


registry.IMPLEMENTATIONS["vision"] = PlantedVision(registry.IMPLEMENTATIONS["vision"])

if __name__ == "__main__":
    sys.exit(main())
