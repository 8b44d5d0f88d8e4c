"""What a reader must know of sessions that drift, in sentences. Called by `analysis.remarks` and the drift chart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from rtxscale.analysis.conclusions import DRIFTING, NEEDS_SENTINELS

SHOWN = 4
"""Sessions that are named; the rest is counted."""


def drift_remarks(drift: pl.DataFrame) -> Iterator[str]:
    """Which sessions drift, the one with the largest spread first, and of which that is not known."""
    drifting = drift.filter(pl.col("verdict") == DRIFTING).sort("spread", descending=True, maintain_order=True)
    if drifting.height:
        named = "; ".join(_first([_drifted(row) for row in drifting.iter_rows(named=True)]))
        yield (
            f"{drift_words(drift)}: {named}. Their trials are flagged and count; "
            "differences between cells of about this size may be the machine's."
        )
    unknown = drift.filter(pl.col("verdict") == NEEDS_SENTINELS)["session_id"].to_list()
    if unknown:
        sessions, owner = ("session", "its") if len(unknown) == 1 else ("sessions", "their")
        yield (
            f"The drift of {len(unknown)} {sessions} is not known: fewer than 2 of {owner} sentinels have a result "
            f"({', '.join(_first(unknown))})."
        )


def drift_words(drift: pl.DataFrame) -> str:
    """How many sessions drift, of those that can tell: the same count wherever it is said."""
    known = drift.filter(pl.col("spread").is_not_null()).height
    drifting = drift.filter(pl.col("verdict") == DRIFTING).height
    return (
        f"{drifting or 'None'} of {known} session{'s' * (known != 1)} with two or more sentinels "
        f"{'drifts' if drifting == 1 else 'drift'} by more than the threshold"
    )


def _first(words: list[str]) -> list[str]:
    """The first few, and how many more."""
    more = len(words) - SHOWN
    return [*words[:SHOWN], *([f"{more} more"] if more > 0 else [])]


def _drifted(row: Mapping[str, Any]) -> str:
    """A session's drift in words."""
    minutes = row["minutes"]
    length = "" if minutes is None else f" over {minutes:.3g} min" if minutes >= 1 else f" over {60 * minutes:.2g} s"
    return (
        f"{row['session_id']} by {100 * row['drift']:+.1f} %{length} (spread {100 * row['spread']:.1f} %, threshold "
        f"{100 * row['threshold']:g} %)"
    )
