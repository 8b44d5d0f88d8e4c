"""How far another node's clock is from this one's, from a few questions and answers: pure.

Cristian's algorithm: an answer is made half a round trip after its question, give or take the other half; the quickest
exchange says most. Source: F. Cristian, Probabilistic clock synchronization, Distributed Computing 3 (1989). Whoever
asks sends the questions (`run.watchers`, `run.examination`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One question: when it was sent and answered by our clock, and what the other clock showed between; ns."""

    sent_ns: int
    there_ns: int
    received_ns: int


@dataclass(frozen=True, kw_only=True)
class ClockOffset:
    """The other clock minus ours, s, right to within `error_s`."""

    offset_s: float
    error_s: float

    @property
    def certain_s(self) -> float:
        """How far the clocks are apart at least, s; 0.0 where they may agree."""
        return max(0.0, abs(self.offset_s) - self.error_s)


SAME_CLOCK = ClockOffset(offset_s=0.0, error_s=0.0)
"""Two processes of one running kernel read one clock."""


def clock_offset(exchanges: Iterable[Exchange]) -> ClockOffset | None:
    """The offset by the quickest exchange; None without one. One that our clock was set back in says nothing.

    >>> clock_offset([Exchange(sent_ns=0, there_ns=5_000_000_000, received_ns=2_000_000)])
    ClockOffset(offset_s=4.999, error_s=0.001)
    """
    forward = (one for one in exchanges if one.received_ns >= one.sent_ns)
    best = min(forward, key=lambda one: one.received_ns - one.sent_ns, default=None)
    if best is None:
        return None
    half_ns = (best.received_ns - best.sent_ns) / 2
    return ClockOffset(offset_s=(best.there_ns - best.sent_ns - half_ns) / 1e9, error_s=half_ns / 1e9)


def running_kernel() -> str:
    """What tells this running kernel from every other, also from inside a container; empty where nothing does."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def on_our_clock(samples: pa.Table, offsets: Mapping[str, ClockOffset]) -> pa.Table:
    """Samples of several nodes with their Unix times by our clock, and what was taken off; of unknown nodes as is."""
    nodes = samples["node"].to_pylist()
    known = [offsets.get(node) for node in nodes]
    shift_ns = pa.array([0 if one is None else round(one.offset_s * 1e9) for one in known], pa.int64())
    columns = {
        "t_ns": pc.subtract(samples["t_ns"], shift_ns),
        "clock_offset_s": pa.array([None if one is None else one.offset_s for one in known], pa.float64()),
        "clock_error_s": pa.array([None if one is None else one.error_s for one in known], pa.float64()),
    }
    for name, values in columns.items():
        samples = samples.set_column(samples.column_names.index(name), name, values)
    return samples
