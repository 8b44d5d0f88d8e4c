"""How a rank gets its trials and hands its rows over, whoever started it.

A `Channel` joins one rank to whoever gives out the work: Ray's hub (`run.hub`), a directory (`rank.mailbox`, for
torchrun) or the command line (`rank.__main__`). No collective is used to wait for work, so idle GPUs stay idle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from rtxscale.spec.cell import Trial


@dataclass(frozen=True, kw_only=True)
class Order:
    """One trial to run. `attempt` is 1 for the first try."""

    trial: Trial
    trial_id: str
    attempt: int = 1


@dataclass(frozen=True, kw_only=True)
class RankReport:
    """What one rank says about one order.

    `outcome` is a value of `results.outcomes.Outcome` as this rank saw it. `facts` are values for columns of the
    `trials` table whose writer is `rank`; facts that only rank 0 knows come from rank 0 alone. `tables` are built by
    `results.schema.table`.
    """

    rank: int
    outcome: str
    message: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, pa.Table] = field(default_factory=dict)


class Channel(Protocol):
    """One rank's line to the giver of work."""

    def take(self) -> Order | None:
        """Wait for the next order; None ends the session."""

    def finish(self, order: Order, report: RankReport) -> None:
        """Hand over what this rank measured."""
