"""A model's gradient buckets all-reduced one after the other, as DDP does without the model: each timed, and all.

Gradients take up the memory of the largest bucket only: all buckets are parts of one buffer. Nothing is computed beside
them, so this is what the links need for a model's gradients; training hides a part of it behind backward. Caller:
`links.collectives`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.distributed as dist

from rtxscale.workloads.links.stopwatch import stopwatch
from rtxscale.workloads.links.timing import MOST_SINGLE, REPLAY, WARM_UP, Timing, iterations_for, seconds_of
from rtxscale.workloads.protocol import Bucket, Context

DTYPE = "fp32"
"""Gradients of a model under autocast are in fp32."""
ITEM = torch.float32.itemsize


class Replay:
    """All buckets in order; calling it enqueues one all-reduce of each."""

    def __init__(self, buckets: Sequence[Bucket], context: Context) -> None:
        """Allocate a buffer of the largest bucket."""
        self.sizes = [bucket.size_bytes for bucket in buckets]
        self._group, self._world = context.group, context.world
        self._rank, self.device = context.rank, context.device
        self._buffer = torch.zeros(max(self.sizes) // ITEM, dtype=torch.float32, device=context.device)
        self._parts = [self._buffer[: size // ITEM] for size in self.sizes]

    def __call__(self) -> None:
        """Enqueue one all-reduce of each bucket."""
        for part in self._parts:
            dist.all_reduce(part, group=self._group)

    def check(self) -> bool:
        """Reduce known values in each bucket once; whether this rank's results are right."""
        right = []
        for part in self._parts:
            part.fill_(float(self._rank + 1))
            dist.all_reduce(part, group=self._group)
            right.append((part == self._world * (self._world + 1) / 2).all())
        return bool(torch.stack(right).all())

    def randomise(self) -> None:
        """Fill with random values: transfers of zeros need less power than real ones."""
        self._buffer.normal_()

    def seconds(self, times: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        """Seconds of each bucket, (replay, bucket), without waiting for the device in between."""
        watch = stopwatch(self.device)
        watch.mark()
        for _ in range(times):
            for part in self._parts:
                dist.all_reduce(part, group=self._group)
                watch.mark()
        return np.asarray(watch.intervals()).reshape(times, len(self._parts))


def time_replay(buckets: Sequence[Bucket], context: Context) -> list[Timing]:
    """Time the buckets, those of equal size as one, and the whole replay; all ranks must call it together.

    Raises:
        ValueError: there is only one worker.
    """
    if context.group is None:
        raise ValueError(f"found {context.world} worker; collectives need at least 2 workers")
    replay = Replay(buckets, context)
    right = replay.check()
    replay.randomise()
    for _ in range(WARM_UP):
        replay()
    answers = context.exchange((right, iterations_for(seconds_of(replay, 2, context.device)[-1])))
    iterations = answers[0][1]
    whole = sum(seconds_of(replay, iterations, context.device, each=False)) / iterations
    each = replay.seconds(min(iterations, MOST_SINGLE))
    own = [(whole, *_percentiles(each.sum(axis=1)))]
    sizes = sorted(set(replay.sizes))
    for size in sizes:
        times = each[:, [place for place, one in enumerate(replay.sizes) if one == size]].ravel()
        own.append((float(times.mean()), *_percentiles(times)))
    worst = np.max(context.exchange(own), axis=0)
    counts = [iterations, *(len(each) * replay.sizes.count(size) for size in sizes)]
    named = [(REPLAY, sum(replay.sizes)), *(("all_reduce", size) for size in sizes)]
    return [
        Timing(
            operation=operation,
            size_bytes=size,
            dtype=DTYPE,
            iterations=count,
            time_mean_s=float(mean),
            time_p50_s=float(p50),
            time_p95_s=float(p95),
            data_ok=all(answer[0] for answer in answers),
            world=context.world,
        )
        for (operation, size), count, (mean, p50, p95) in zip(named, counts, worst, strict=True)
    ]


def _percentiles(seconds: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> tuple[float, float]:
    p50, p95 = np.percentile(seconds, (50, 95)).tolist()
    return p50, p95
