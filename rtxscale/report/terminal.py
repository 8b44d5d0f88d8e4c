"""Conclusions in a terminal: sentences and a few narrow tables, in 80 columns, without colour when piped.

No number and no column is ever cut: a table that is too wide for a narrow terminal is printed row by row instead.
The same texts as the page, fewer rows; what is left out is named with the command that shows it. Called by `cli.show`
and at the end of a sweep.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace
from typing import TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from rtxscale.analysis.conclusions import Conclusions
from rtxscale.report.numbers import how_many, short, worker_word
from rtxscale.report.tables.budget import budget_table
from rtxscale.report.tables.conclusions import (
    Table,
    bandwidth_tables,
    best_table,
    confirmed_table,
    drift_table,
    effects_table,
    outcomes_table,
    scaling_tables,
)
from rtxscale.report.tables.meaning import meaning_tables
from rtxscale.report.trial_counts import TrialCounts, counts_words

WIDTH = 80
WIDEST = 110
EFFECTS = 12
DRIFTS = 6
MESSAGE_LIMIT, REMARK_LIMIT = 200, 1000
"""Longest texts of others that are shown whole; our own sentences are shorter."""
WORD = 24
"""Longest word of a text that makes its column wider; a longer one, such as a path, is folded."""
GAP = 2
"""Characters between two columns."""


def show_conclusions(conclusions: Conclusions, *, stream: TextIO, counts: TrialCounts | None = None) -> None:
    """Print the headline, how far the run is, the remarks and the tables to `stream`."""
    console = _console(stream)
    with console.capture() as captured:
        console.print(Text(short(conclusions.headline, 600), style="bold"))
        if counts is not None:
            console.print(Text(counts_words(counts)))
        for remark in conclusions.remarks:
            console.print(Padding(Text(short(remark, REMARK_LIMIT), style="dim"), (0, 0, 0, 2)))
        for table in _tables(conclusions, worker_word(conclusions.device)):
            _print_table(console, table)
    _write(captured.get(), stream)


def show_table(table: Table, *, stream: TextIO) -> None:
    """Print one table to `stream`."""
    console = _console(stream)
    with console.capture() as captured:
        _print_table(console, table)
    _write(captured.get().lstrip("\n"), stream)


def _print_table(console: Console, table: Table) -> None:
    console.print()
    if table.title:
        console.print(Text(short(table.title, 400), style="bold"))
    columns = tuple(short(column) for column in table.columns)
    right = frozenset(short(column) for column in table.right)
    rows = [tuple(short(text, MESSAGE_LIMIT) for text in row) for row in table.rows]
    clean = replace(table, columns=columns, right=right, rows=rows)
    widths = _layout(clean, console.width)
    console.print(_stacked(clean, console.width) if widths is None else _rich_table(clean, widths))
    if table.note:
        console.print(Text(short(table.note, 400), style="dim"))


def _write(text: str, stream: TextIO) -> None:
    """Rich fills lines up with spaces; a pipe should not carry them."""
    stream.write("".join(f"{line.rstrip()}\n" for line in text.splitlines()))
    stream.flush()


def _console(stream: TextIO) -> Console:
    """A console that never guesses: 80 columns unless a terminal says more, no markup, no highlighting."""
    console = Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=False)
    console.width = min(console.width, WIDEST) if console.is_terminal else WIDTH
    return console


def _tables(conclusions: Conclusions, workers: str) -> Iterator[Table]:
    yield from scaling_tables(conclusions, workers)
    best, effects = best_table(conclusions, workers), effects_table(conclusions, workers)
    confirmed, outcomes = confirmed_table(conclusions, workers), outcomes_table(conclusions)
    if best is not None:
        yield best
    if confirmed is not None:
        yield confirmed
    if effects is not None:
        yield _largest(effects)
    yield from bandwidth_tables(conclusions, workers)
    yield from meaning_tables(conclusions, workers, brief=True)
    budget = budget_table(conclusions, workers, brief=True)
    if budget is not None:
        yield budget
    drift = drift_table(conclusions, workers)
    if drift is not None:
        yield _most_drifting(drift, workers)
    if outcomes is not None:
        yield outcomes


def _largest(effects: Table) -> Table:
    """The first `EFFECTS` rows without the p-value, whose verdict is enough in 80 columns."""
    left_out = len(effects.rows) - EFFECTS
    note = f"{left_out} smaller effects: rtxscale show --csv effects" if left_out > 0 else ""
    return _narrowed(effects, {"p (Holm)"}, EFFECTS, note)


def _most_drifting(drift: Table, workers: str) -> Table:
    """The first `DRIFTS` rows; worker count and visit are in a session's name, too few sentinels in the verdict."""
    left_out = len(drift.rows) - DRIFTS
    note = f"{how_many(left_out, 'more sessions')}: rtxscale show --csv drift" if left_out > 0 else ""
    return _narrowed(drift, {workers, "visit", "sentinels"}, DRIFTS, note)


def _narrowed(table: Table, without: Set[str], most: int, note: str) -> Table:
    """The first `most` rows, without some columns."""
    kept = [place for place, column in enumerate(table.columns) if column not in without]
    rows = [tuple(row[place] for place in kept) for row in table.rows[:most]]
    notes = ". ".join(words.removesuffix(".") for words in (table.note, note) if words)
    return replace(table, columns=tuple(table.columns[place] for place in kept), rows=rows, note=notes)


def _layout(table: Table, width: int) -> list[int] | None:
    """The width of each column, numbers and words whole; None where the table does not fit.

    What is set flush right is never broken; of the others no word is, up to `WORD` characters. Space that is left goes
    to the narrowest column that still wraps.
    """
    texts = list(zip(table.columns, *table.rows, strict=True))
    natural = [max(map(cell_len, column)) for column in texts]
    needed = [
        longest if name in table.right else max(min(WORD, cell_len(word)) for text in column for word in _words(text))
        for name, column, longest in zip(table.columns, texts, natural, strict=True)
    ]
    spare = width - sum(needed) - GAP * (len(needed) - 1)
    if spare < 0:
        return None
    for _ in range(spare):
        wrapped = [place for place, width in enumerate(needed) if width < natural[place]]
        if wrapped:
            needed[min(wrapped, key=needed.__getitem__)] += 1
    return needed


def _words(text: str) -> list[str]:
    return text.split() or [""]


def _rich_table(table: Table, widths: list[int]) -> RichTable:
    """Only a rule under the headings; long texts fold inside their column."""
    shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False, header_style="dim")
    for column, width in zip(table.columns, widths, strict=True):
        right = column in table.right
        shown.add_column(
            Text(column), justify="right" if right else "left", overflow="fold", no_wrap=right, width=max(1, width)
        )
    for row in table.rows:
        shown.add_row(*map(Text, row))
    return shown


def _stacked(table: Table, width: int) -> Text:
    """One block per row, a line per column, where the columns do not fit side by side."""
    blocks = (
        "\n".join(
            f"{name}: {_breakable(text, width) if name in table.right else text}"
            for name, text in zip(table.columns, row, strict=True)
        )
        for row in table.rows
    )
    return Text("\n\n".join(blocks))


def _breakable(text: str, width: int) -> str:
    """Numbers that may wrap: an interval longer than a line breaks between its ends, never inside one."""
    return " ".join(word.replace("-", "- ") if cell_len(word) > width else word for word in text.split())
