"""What the doctor found before the sweep, as the run keeps it: findings as a table, what the tools printed as texts.

Nothing is judged again here. Called by `sections`.
"""

from __future__ import annotations

import re
from collections import Counter

import polars as pl

from rtxscale.report.numbers import NOTHING
from rtxscale.report.tables.conclusions import Table
from rtxscale.results.read import Run

SUBJECT = "doctor"
TEXT = "text of "
NONE = "findings"
"""Name of the row that says that nothing was found."""
ORDER = ("error", "warning", "note")
VALUE = re.compile(
    r"(?P<severity>error|warning|note)(?P<ignored> \(ignored by the user\))?: (?P<found>.*?)"
    r"(?:; needed: (?P<needed>.*?))?(?:; fix: (?P<fix>.*))?",
    re.DOTALL,
)
TEXT_LIMIT = 20_000
"""Most characters shown of what one tool printed."""


def findings_table(run: Run) -> Table | None:
    """Every finding, worst first; None where the doctor has not looked."""
    rows = _rows(run).filter(~pl.col("name").str.starts_with(TEXT))
    if rows.is_empty():
        return None
    found = [_finding(name, value or "", nodes) for name, value, nodes in rows.iter_rows()]
    found.sort(key=lambda row: (*ORDER, NOTHING).index(row[0].partition(" ")[0]))
    several = len({nodes for *_, nodes in found}) > 1
    columns = ("severity", "rule", "found", "needed", "fix", *(("machine",) if several else ()))
    return Table(
        key="doctor",
        title="What the doctor found before the sweep",
        columns=columns,
        rows=[row if several else row[:-1] for row in found],
    )


def findings_words(table: Table | None) -> str:
    """How many findings of each severity, such as `1 warning, 2 notes.`; empty without a table."""
    if table is None:
        return ""
    counts = Counter(row[0].partition(" ")[0] for row in table.rows if row[1] != "all")
    parts = [f"{counts[word]} {word}{'s' * (counts[word] != 1)}" for word in ORDER if counts[word]]
    return f"{', '.join(parts) or 'Nothing found'}."


def tool_texts(run: Run) -> list[tuple[str, str]]:
    """What tools printed, each different text once: command and text."""
    rows = _rows(run).filter(pl.col("name").str.starts_with(TEXT))
    return [
        (name.removeprefix(TEXT), (value or "").replace("\\t", "\t")[:TEXT_LIMIT])
        for name, value, _ in rows.iter_rows()
    ]


def _rows(run: Run) -> pl.DataFrame:
    """Name, value and the machines that say so, in order."""
    frame = run.frame("environment").filter(pl.col("subject") == SUBJECT)
    nodes = pl.col("node").unique().sort().str.slice(0, 12).str.join(", ")
    return frame.group_by("name", "value", maintain_order=True).agg(nodes).collect()


def _finding(name: str, value: str, nodes: str) -> tuple[str, ...]:
    if name == NONE:
        return ("note", "all", "nothing", NOTHING, NOTHING, nodes)
    match = VALUE.fullmatch(value)
    if match is None:
        return (NOTHING, name, value, NOTHING, NOTHING, nodes)
    severity = match["severity"] + (match["ignored"] or "")
    return (severity, name, match["found"], match["needed"] or NOTHING, match["fix"] or NOTHING, nodes)
