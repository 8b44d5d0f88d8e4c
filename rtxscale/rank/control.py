"""How ranks agree: one kind of exchange over the default Gloo group, and what ends a trial on all of them alike.

Never NCCL: control traffic must not create communicators or wait on a GPU. A rank that fails enters one exchange with
its failure, so the others, whatever they were about to agree on, learn of it instead of waiting. Callers: `rank.trial`
and `rank.loop`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch.distributed as dist


@dataclass(frozen=True)
class Failure:
    """What a rank that failed tells the others."""

    rank: int
    outcome: str
    message: str


class Stopped(Exception):  # noqa: N818 - an ending that every rank knows of, not an error of this rank
    """The trial is over on every rank; nobody needs to be told."""

    def __init__(self, outcome: str, message: str) -> None:
        """Keep the outcome beside the message."""
        super().__init__(message)
        self.outcome = outcome


class Control:
    """The ranks' conversation. At one worker every exchange is with itself."""

    def __init__(self, rank: int, world: int) -> None:
        """Talk over the default process group, which the launcher has made."""
        self._rank = rank
        self._world = world

    def exchange(self, value: Any) -> list[Any]:
        """One value of each rank, in rank order; doubles as a barrier.

        Raises:
            Stopped: another rank failed.
        """
        values = self._gather(value)
        failures = [found for found in values if isinstance(found, Failure)]
        if failures:
            first = failures[0]
            raise Stopped(first.outcome, f"rank {first.rank} failed: {first.message}")
        return values

    def tell(self, failure: Failure) -> None:
        """Let the others know of this rank's failure; blocks until they listen."""
        self._gather(failure)

    def _gather(self, value: Any) -> list[Any]:
        if self._world == 1:
            return [value]
        values: list[Any] = [None] * self._world
        dist.all_gather_object(values, value)
        return values
