"""The loss budget as a small table of text, shared by the terminal and the page; `brief` leaves the default cells.

Called by `terminal` and `page`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from rtxscale.analysis.conclusions import Conclusions
from rtxscale.report.numbers import interval, percent
from rtxscale.report.tables.conclusions import Table

MILLISECONDS = 1e3
ROWS = 200
"""Most rows of the table on the page."""
NOTES = 4
"""Most notes below it; all are in the CSV."""


def budget_table(conclusions: Conclusions, workers: str, *, brief: bool = False) -> Table | None:
    """What a step loses, part by part; None where no cell asked for a budget."""
    budget = conclusions.budget
    kept = budget.filter("is_default") if brief else budget
    shown = kept.filter(pl.col("seconds_per_step").is_not_null()).head(ROWS)
    if shown.is_empty():
        return None
    setting = () if brief else ("setting",)
    columns = ("curve", workers, *setting, "part", "ms per step", "of the step")
    rows = [
        (
            row["curve"],
            str(row["gpus"]),
            *((str(row["label"]),) if setting else ()),
            row["part"],
            milliseconds(row),
            percent(row["share"]),
        )
        for row in shown.iter_rows(named=True)
    ]
    left_out = budget.height - kept.height
    more = f"{left_out} more rows: rtxscale show --csv budget" if left_out else ""
    return Table(
        key="budget",
        title="Loss budget: from the ideal to the measured step",
        columns=columns,
        rows=rows,
        right=frozenset({workers, "ms per step", "of the step"}),
        note=". ".join(words for words in (*_notes(kept), more) if words),
    )


def milliseconds(row: Mapping[str, Any]) -> str:
    """A part's time with its interval, in ms.

    >>> milliseconds({"seconds_per_step": 0.0022, "low": 0.0020, "high": 0.0024})
    '2.20 (2.00-2.40)'
    """
    value, low, high = (
        None if row[name] is None else MILLISECONDS * row[name] for name in ("seconds_per_step", "low", "high")
    )
    return interval(value, low, high, additive=True)


def _notes(budget: pl.DataFrame) -> Iterator[str]:
    """What the analysis says of the parts, each sentence once, with the parts it is about."""
    said: dict[str, list[str]] = {}
    for row in budget.iter_rows(named=True):
        parts = said.setdefault(row["note"] or "", [])
        if row["part"] not in parts:
            parts.append(row["part"])
    said.pop("", None)
    for note, parts in list(said.items())[:NOTES]:
        yield f"{', '.join(parts)}: {note}"
