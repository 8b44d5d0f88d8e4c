"""What was written while a trial ran, as rows of the logs table: NCCL's lines, and the trace of a failure.

Distinct lines with their counts, and only what tells something: rank 0's lines stand for all ranks that did well, whose
own warnings are kept. Nothing is judged here; that is `rank.evidence`. Callers: `rank.trial`, `rank.loop`.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence

import pyarrow as pa

from rtxscale.nccl.lines import condense
from rtxscale.rank.channel import Order
from rtxscale.rank.evidence import NcclLog
from rtxscale.rank.session import Session
from rtxscale.results.schema import table

LINES = 400
"""Most distinct lines kept of one writer and trial; what is left out is counted in a last line."""
LENGTH = 1000
"""Most characters kept of a line."""
WARNING = "NCCL WARN"

Counted = Sequence[tuple[str, int]]


def logs_table(order: Order, rank: int, written: Mapping[str, Counted]) -> pa.Table:
    """Rows of what each source has written: source -> lines with their counts, in order."""
    rows = [
        {
            "trial_id": order.trial_id,
            "attempt": order.attempt,
            "source": source,
            "rank": rank,
            "place": place,
            "line": line[:LENGTH],
            "count": count,
        }
        for source, lines in written.items()
        for place, (line, count) in enumerate(shortened(lines))
    ]
    return table("logs", rows)


def nccl_lines(log: NcclLog | None, rank: int, *, failed: bool = False) -> Counted:
    """NCCL's lines of the trial: all of rank 0's and of a rank that failed, else its warnings."""
    lines = [] if log is None else condense(log.text())
    return lines if rank == 0 or failed else [(line, count) for line, count in lines if WARNING in line]


def failure_logs(order: Order, session: Session, error: BaseException | None = None) -> dict[str, pa.Table]:
    """What is kept of a trial that did not come to its end; `error` is what this rank itself failed with."""
    rank = session.place.rank
    lines = nccl_lines(session.log, rank, failed=error is not None)
    return {"logs": logs_table(order, rank, {"nccl": lines, "trace": [] if error is None else trace_lines(error)})}


def trace_lines(error: BaseException) -> Counted:
    """An exception's traceback, a line each."""
    text = "".join(traceback.format_exception(error))
    return [(line, 1) for line in text.splitlines() if line.strip()]


def shortened(lines: Counted, most: int = LINES) -> Counted:
    """The first half and the last half of many lines, and how many lie between.

    >>> shortened([("a", 1), ("b", 1), ("c", 2), ("d", 1)], 2)
    [('a', 1), ('(2 more distinct lines)', 1), ('d', 1)]
    """
    if len(lines) <= most:
        return lines
    half = most // 2
    return [*lines[:half], (f"({len(lines) - 2 * half} more distinct lines)", 1), *lines[-half:]]
