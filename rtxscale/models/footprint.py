"""What one training step of a model keeps in memory, counted tensor by tensor: lines in the batch.

For models whose activations no formula tells: timm's, and the UNets. `workloads.counting.footprint` counts,
`models.counted` knows what has been counted, `models.training` adds what the settings alone tell. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from rtxscale.models.decoder_settings import FULL


@dataclass(frozen=True, kw_only=True, order=True)
class Subject:
    """What is counted by itself: everything else about the memory follows from these counts.

    `low`: matrices are multiplied in fp16 or bf16. `gathered`: blocks come in that precision from other GPUs (FSDP).
    """

    kind: str
    model: str
    image_size: int
    low: bool = True
    checkpointing: bool = False
    gathered: bool = False


@dataclass(frozen=True, kw_only=True)
class Moment:
    """Bytes that a step holds at one moment beside weights and gradients, and how many gradients there are by then.

    `fixed` bytes and `per_sample` bytes for each sample of the micro-step; `gradients` counts numbers.
    """

    fixed: float
    per_sample: float
    gradients: int


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """Counts of one model in training: `buffers` in bytes, `sample` the bytes of one sample's inputs."""

    parameters: int
    buffers: int
    sample: int
    moments: tuple[Moment, ...]
    gathered: int = 0
    """Parameters of the two neighbouring blocks that FSDP holds whole at a time, of all such the most."""

    def scaled(self, ratio: float) -> Footprint:
        """The same with so many times the pixels: activations are taken to follow them, weights stay."""
        moments = tuple(replace(moment, per_sample=moment.per_sample * ratio) for moment in self.moments)
        return replace(self, sample=round(self.sample * ratio), moments=moments)


Start = Callable[[Moment], float]


def envelope(moments: Iterable[Moment], parameters: int) -> tuple[Moment, ...]:
    """Those moments that are the worst for some number of samples, with earlier micro-steps' gradients or without.

    >>> early, late = Moment(fixed=0, per_sample=9, gradients=0), Moment(fixed=10, per_sample=2, gradients=5)
    >>> never = Moment(fixed=1, per_sample=3, gradients=2)
    >>> envelope([early, never, late], 5) == (late, early)
    True
    """
    every = list(dict.fromkeys(moments))
    alone = _upper(every, lambda moment: moment.fixed + FULL * moment.gradients)
    beside = _upper(every, lambda moment: moment.fixed + FULL * parameters)
    return tuple(dict.fromkeys([*alone, *beside]))


def _upper(moments: list[Moment], start: Start) -> list[Moment]:
    """The upper envelope of lines `start + per_sample x`, for x of one and more, by rising slope."""
    kept: list[Moment] = []
    for moment in sorted(moments, key=lambda one: (one.per_sample, start(one))):
        while kept and _passes(kept, moment, start):
            kept.pop()
        kept.append(moment)
    return kept


def _passes(kept: list[Moment], steeper: Moment, start: Start) -> bool:
    """Whether the last line kept is nowhere above both its neighbours once a steeper one has come."""
    last = kept[-1]
    if start(steeper) + steeper.per_sample >= start(last) + last.per_sample:
        return True  # higher at one sample already, and steeper
    if len(kept) == 1:
        return False
    before = kept[-2]
    crossing = (start(last) - start(steeper)) * (last.per_sample - before.per_sample)
    return bool(crossing <= (start(before) - start(last)) * (steeper.per_sample - last.per_sample))
