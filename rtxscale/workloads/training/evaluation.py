"""How good a model is on samples that it is not trained on: each rank's part, to be added up over the ranks.

Outside every window. Callers: the workloads that train on data, and `rank.target`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch.utils.data import Dataset, default_collate

from rtxscale.workloads.protocol import Context


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Sums over samples: of the loss, and of those whose class was named first; `correct` is None without classes."""

    samples: float
    loss: float
    correct: float | None = None

    def __add__(self, other: Evaluation) -> Evaluation:
        """Both parts together."""
        known = self.correct is not None and other.correct is not None
        return Evaluation(
            samples=self.samples + other.samples,
            loss=self.loss + other.loss,
            correct=(self.correct or 0.0) + (other.correct or 0.0) if known else None,
        )


@runtime_checkable
class Evaluated(Protocol):
    """What a prepared workload has besides, if it can be evaluated on samples that are held out."""

    def evaluate(self, samples: int) -> Evaluation:
        """This rank's part of at most so many held-out samples; every rank must call it, training goes on after it."""


def places_of(samples: int, rank: int, world: int) -> list[int | None]:
    """Which samples a rank evaluates: equally many places on each, None where there is no sample left.

    Ranks that gather weights from each other must all run forward equally often.

    >>> places_of(5, 0, 2), places_of(5, 1, 2)
    ([0, 2, 4], [1, 3, None])
    """
    rounds = -(-samples // world)
    places = [rank + world * number for number in range(rounds)]
    return [place if place < samples else None for place in places]


def evaluated(
    held_out: Dataset[Any],
    context: Context,
    *,
    samples: int,
    batch: int,
    score: Callable[[Any, torch.Tensor], Evaluation],
) -> Evaluation:
    """This rank's part of `samples` held-out samples, spread evenly over the set.

    `score` gets a batch on the CPU and a weight for each of its samples (sample,): one, or zero for what only fills up.
    """
    every = len(held_out)  # type: ignore[arg-type]  # every set of ours has a length
    count = min(samples, every)
    places = [
        None if place is None else place * every // count for place in places_of(count, context.rank, context.world)
    ]
    whole = Evaluation(samples=0.0, loss=0.0, correct=0.0)
    for some in _cut(places, batch):
        items = [held_out[place or 0] for place in some]
        weights = torch.tensor([float(place is not None) for place in some], device=context.device)
        whole = whole + score(default_collate(items), weights)
    return whole


def _cut(places: list[int | None], batch: int) -> Iterator[list[int | None]]:
    return (places[start : start + batch] for start in range(0, len(places), batch))
