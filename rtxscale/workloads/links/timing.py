"""Bandwidth of raw collectives, timed as nccl-tests does: in place, back to back, sizes counted its way.

The mean comes from a batch of operations timed together, percentiles from operations timed one by one; the slowest
rank's figure counts. Each size's result is checked once. Callers: `links.collectives`, `bucket_replay`.

Source: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist

from rtxscale.workloads.links.stopwatch import stopwatch
from rtxscale.workloads.protocol import Bucket, Context

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
PATTERN = 4
"""Values repeat every four elements; all sums stay integers that bf16 holds exactly."""
MIB = 1024 * 1024
BATCH_S = 0.08
FEWEST, MOST, MOST_SINGLE = 5, 400, 100
WARM_UP = 3
REPLAY = "all_reduce_buckets"
"""All buckets of a model, all-reduced one after the other, as one operation."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Which collectives to time, over which message sizes and element type; or the buckets of a model, in order."""

    operations: tuple[str, ...] = ()
    sizes_mib: tuple[float, ...] = ()
    dtype: str = "fp32"
    buckets: tuple[Bucket, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Timing:
    """One collective at one size; times in seconds of one operation on the slowest rank."""

    operation: str
    size_bytes: int
    dtype: str
    iterations: int
    time_mean_s: float
    time_p50_s: float
    time_p95_s: float
    data_ok: bool
    world: int

    @property
    def algbw_gb_s(self) -> float:
        """Algorithm bandwidth: size over mean time, in 10^9 bytes per second."""
        return self.size_bytes / self.time_mean_s / 1e9

    @property
    def busbw_gb_s(self) -> float:
        """Bus bandwidth in 10^9 bytes per second."""
        return self.algbw_gb_s * bus_factor(self.operation, self.world)


def bus_factor(operation: str, world: int) -> float:
    """Bus bandwidth over algorithm bandwidth; makes collectives comparable with the links' speed.

    Source: nccl-tests, doc/PERFORMANCE.md, with n ranks: all-reduce 2(n-1)/n; reduce-scatter, all-gather and
    all-to-all (n-1)/n; broadcast 1. A replay of buckets is made of all-reduces.

    >>> [bus_factor(name, 4) for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")]
    [1.5, 0.75, 0.75, 0.75, 1.0]
    """
    if operation == "broadcast":
        return 1.0
    share = (world - 1) / world
    return 2 * share if operation in ("all_reduce", REPLAY) else share


def message_bytes(size_mib: float, world: int, item_bytes: int) -> int:
    """Bytes of the message: the size asked for, rounded up to whole patterns on every rank.

    The size is that of the larger buffer: all-gather's output, reduce-scatter's input, all ranks' parts of all-to-all.

    >>> message_bytes(1, 2, 4), message_bytes(1, 3, 2)
    (1048576, 1048584)
    """
    unit = world * PATTERN * item_bytes
    return math.ceil(size_mib * MIB / unit) * unit


class Message:
    """One collective on buffers of one size; calling it enqueues one operation."""

    def __init__(self, operation: str, size_mib: float, dtype: str, context: Context) -> None:
        """Allocate the buffer, and a second one for all-to-all, which cannot work in place."""
        item = DTYPES[dtype]
        self.operation = operation
        self.size_bytes = message_bytes(size_mib, context.world, item.itemsize)
        self._context = context
        self._buffer = torch.zeros(self.size_bytes // item.itemsize, dtype=item, device=context.device)
        self._mine = self._buffer.view(context.world, -1)[context.rank]
        self._result = torch.zeros_like(self._buffer) if operation == "all_to_all" else self._buffer

    def __call__(self) -> None:
        """Enqueue one operation."""
        group = self._context.group
        if self.operation == "all_reduce":
            dist.all_reduce(self._buffer, group=group)
        elif self.operation == "broadcast":
            dist.broadcast(self._buffer, src=0, group=group)
        elif self.operation == "all_gather":
            _gather(self._buffer, self._mine, group=group)
        elif self.operation == "reduce_scatter":
            _scatter(self._mine, self._buffer, group=group)
        else:
            dist.all_to_all_single(self._result, self._buffer, group=group)

    def check(self) -> bool:
        """Run once on known data; whether this rank's result is right."""
        rank, world = self._context.rank, self._context.world
        self._parts(self._buffer).copy_(self._pattern(*sent(self.operation, rank, world)))
        self()
        right = self._parts(self._result) == self._pattern(*expected(self.operation, rank, world))
        return bool(right[rank].all() if self.operation == "reduce_scatter" else right.all())

    def randomise(self) -> None:
        """Fill with random values: transfers of zeros need less power than real ones."""
        self._buffer.normal_()

    def _parts(self, buffer: torch.Tensor) -> torch.Tensor:
        """View as (rank, repetition, pattern)."""
        return buffer.view(self._context.world, -1, PATTERN)

    def _pattern(self, scale: int, offsets: Sequence[int]) -> torch.Tensor:
        """Values as (rank, 1, pattern), to be broadcast over the repetitions."""
        row = torch.arange(PATTERN, device=self._buffer.device) * scale
        column = torch.tensor(offsets, device=self._buffer.device)
        return (row[None, None, :] + column[:, None, None]).to(self._buffer.dtype)


def sent(operation: str, rank: int, world: int) -> tuple[int, list[int]]:
    """Scale and per-part offsets of the data that `rank` puts in.

    >>> sent("all_gather", 1, 3)
    (1, [-9, 1, -9])
    """
    offsets = {
        "all_gather": [part if part == rank else -9 for part in range(world)],
        "broadcast": [7 if rank == 0 else 0] * world,
        "all_to_all": [(3 * rank + part) % 100 for part in range(world)],
    }
    return 1, offsets.get(operation, [rank % 2] * world)


def expected(operation: str, rank: int, world: int) -> tuple[int, list[int]]:
    """Scale and per-part offsets of the right result on `rank`.

    >>> expected("all_reduce", 0, 3)
    (3, [1, 1, 1])
    """
    offsets = {
        "all_gather": list(range(world)),
        "broadcast": [7] * world,
        "all_to_all": [(3 * part + rank) % 100 for part in range(world)],
    }
    if operation in offsets:
        return 1, offsets[operation]
    return world, [world // 2] * world


def time_collectives(request: Request, context: Context) -> list[Timing]:
    """Time every operation at every size; all ranks must call it together.

    Raises:
        ValueError: there is only one worker.
    """
    if context.group is None:
        raise ValueError(f"found {context.world} worker; collectives need at least 2 workers")
    return [_time_message(message, request.dtype, context) for message in _messages(request, context)]


def _messages(request: Request, context: Context) -> Iterator[Message]:
    """One message at a time, so that only one size is in memory."""
    for operation in request.operations:
        for size_mib in request.sizes_mib:
            yield Message(operation, size_mib, request.dtype, context)


def _time_message(message: Message, dtype: str, context: Context) -> Timing:
    """Check, warm up, choose the iterations on rank 0, then time together and one by one."""
    right = message.check()
    message.randomise()
    for _ in range(WARM_UP):
        message()
    guess = seconds_of(message, 2, context.device)[-1]
    answers = context.exchange((right, iterations_for(guess)))
    iterations = answers[0][1]
    mean = sum(seconds_of(message, iterations, context.device, each=False)) / iterations
    single = seconds_of(message, min(iterations, MOST_SINGLE), context.device)
    worst = np.max(context.exchange((mean, *np.percentile(single, (50, 95)).tolist())), axis=0)
    return Timing(
        operation=message.operation,
        size_bytes=message.size_bytes,
        dtype=dtype,
        iterations=iterations,
        time_mean_s=float(worst[0]),
        time_p50_s=float(worst[1]),
        time_p95_s=float(worst[2]),
        data_ok=all(answer[0] for answer in answers),
        world=context.world,
    )


def iterations_for(seconds: float) -> int:
    """How many operations fill a batch of `BATCH_S` seconds, within limits.

    >>> iterations_for(0.001), iterations_for(1.0), iterations_for(0.0)
    (80, 5, 400)
    """
    wanted = math.ceil(BATCH_S / seconds) if seconds > 0 else MOST
    return max(FEWEST, min(MOST, wanted))


def seconds_of(call: Callable[[], None], times: int, device: torch.device, *, each: bool = True) -> list[float]:
    """Seconds of each call, or of all calls together as one item, without waiting for the device in between."""
    watch = stopwatch(device)
    watch.mark()
    for _ in range(times):
        call()
        if each:
            watch.mark()
    if not each:
        watch.mark()
    return watch.intervals()


# Renamed in torch 2.14, where the old names warn.
_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
