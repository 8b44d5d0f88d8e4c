"""Errors that the cards themselves reported while the run went on: Xid messages of the driver, links, memory.

Counters since the driver was loaded are taken as last minus first of the run. Called by `sections`.
"""

from __future__ import annotations

import polars as pl

from rtxscale.report.numbers import NOTHING
from rtxscale.report.tables.conclusions import Table
from rtxscale.results.read import Run

COUNTERS = ("pcie_replays", "ecc_corrected", "ecc_uncorrected", "remapped_rows")
GROWN = COUNTERS[:3]
"""Counters of which only the growth during the run says something."""


def card_errors_table(run: Run) -> Table | None:
    """One row per GPU that reports any of them; None where no GPU does."""
    grown = [(pl.col(name).max() - pl.col(name).min()).alias(name) for name in GROWN]
    cards = (
        run.frame("telemetry")
        .filter(pl.col("uuid").is_not_null())
        .group_by("uuid")
        .agg(*grown, pl.col("remapped_rows").max(), pl.col("xids").explode().drop_nulls().sort())
        .sort("uuid")
        .collect()
    )
    known = cards.filter(pl.any_horizontal(pl.col(COUNTERS).is_not_null(), pl.col("xids").list.len() > 0))
    if known.is_empty():
        return None
    columns = (
        *("card", "Xid errors", "PCIe packets sent again", "memory errors corrected", "uncorrected", "rows replaced"),
    )
    rows = [
        (row["uuid"], _xids(row["xids"]), *(NOTHING if row[name] is None else f"{row[name]:,}" for name in COUNTERS))
        for row in known.iter_rows(named=True)
    ]
    return Table(
        key="card-errors",
        title="Errors that the cards reported",
        columns=columns,
        rows=rows,
        right=frozenset(columns[2:]),
        note="During the run; replaced rows of memory: ever. NVIDIA's list of Xid errors says what each number means.",
    )


def _xids(found: list[int]) -> str:
    """How often each was reported.

    >>> _xids([31, 79, 31]), _xids([])
    ('2x 31, 1x 79', 'none')
    """
    return ", ".join(f"{found.count(xid)}x {xid}" for xid in dict.fromkeys(found)) or "none"
