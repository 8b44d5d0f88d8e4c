"""Ranks whose vision workload fails in ways that the batch size chooses; started by torchrun from the tests.

The time base of the slopes chooses what the card of each rank shows, though there is none.
"""

import math
import os
import sys

import torch

from rtxscale.rank.__main__ import main
from rtxscale.rank.vitals import Vitals
from rtxscale.stats.steady import GpuTrends, Trend
from rtxscale.workloads import registry

NAN_ON_RANK_1, OUT_OF_MEMORY, RAISE_ON_RANK_1 = 3, 5, 6
HEATING_ON_RANK_1_S, STILL_S = 33.0, 34.0


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


def planted_trends(vitals, base_s, real=Vitals.trends):
    """What a card would show."""
    if base_s not in (HEATING_ON_RANK_1_S, STILL_S):
        return real(vitals, base_s)
    heating = base_s == HEATING_ON_RANK_1_S and os.environ["RANK"] == "1"
    still = Trend(per_minute=-0.001, span_s=base_s, whole=True)
    return GpuTrends(temperature=Trend(per_minute=2.0 if heating else 0.1, span_s=base_s, whole=True), clock=still)


Vitals.trends = planted_trends
registry.IMPLEMENTATIONS["vision"] = PlantedVision(registry.IMPLEMENTATIONS["vision"])

if __name__ == "__main__":
    sys.exit(main())
