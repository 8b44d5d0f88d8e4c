"""Two compared runs as small tables of text: what changed, and in what the runs differ.

Called by `cli.compare`.
"""

from __future__ import annotations

import polars as pl

from rtxscale.analysis.compare import NOT_COMPARABLE, Comparison
from rtxscale.report.numbers import NOTHING, interval, number
from rtxscale.report.tables.conclusions import Table

ROWS = 60
"""Most rows of a table in a terminal; `--json` has all."""
ALL = "--json has all"


def comparison_table(comparison: Comparison) -> Table:
    """The compared numbers, largest change first."""
    compared = comparison.compared.sort(pl.col("ratio").log().abs(), descending=True, maintain_order=True)
    columns = ("cell", "of", "A", "B", "B / A", "verdict")
    rows = [
        (
            row["label"] or row["cell_id"],
            f"{row['quantity']}, {row['unit']}",
            number(row["a"]),
            number(row["b"]),
            interval(row["ratio"], row["ratio_low"], row["ratio_high"]),
            row["verdict"],
        )
        for row in compared.head(ROWS).iter_rows(named=True)
    ]
    return Table(
        key="compared",
        title=f"B: {comparison.run_b}, against A: {comparison.run_a}",
        columns=columns,
        rows=rows,
        right=frozenset({"A", "B", "B / A"}),
        note=_left_out(compared.height),
    )


def uncompared_table(comparison: Comparison) -> Table:
    """What could not be compared, and why."""
    left = comparison.cells.filter(pl.col("ratio").is_null())
    rows = [
        (row["label"] or row["cell_id"], (row["verdict"] or NOTHING).removeprefix(f"{NOT_COMPARABLE}: "))
        for row in left.head(ROWS).iter_rows(named=True)
    ]
    note = _left_out(left.height)
    return Table(key="uncompared", title="Not comparable", columns=("cell", "why"), rows=rows, note=note)


def differences_table(comparison: Comparison) -> Table:
    """Field by field, what differs between the runs."""
    found = comparison.differences
    rows = [(f"{row['part']}: {row['field']}", row["a"], row["b"]) for row in found.head(ROWS).iter_rows(named=True)]
    return Table(
        key="differences", title="What differs", columns=("field", "A", "B"), rows=rows, note=_left_out(found.height)
    )


def _left_out(height: int) -> str:
    return f"{height - ROWS} more rows: {ALL}." if height > ROWS else ""
