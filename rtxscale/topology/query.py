"""CSV that `nvidia-smi --query-gpu` and `--query-compute-apps` print: numbers by unit, "no value" in every spelling.

A cell that is neither is an error with its row and column; nothing becomes 0. Callers: imports of captures.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass

from rtxscale.errors import Problem
from rtxscale.topology.matrix import clean_lines
from rtxscale.topology.null_words import null_reason, read_number

QUERY_COMMAND = "nvidia-smi --query"
_TITLE = re.compile(r"([^\[\]]{1,200}?)\s*(?:\[([^\[\]]{1,20})\])?", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Query:
    """Rows of cells as printed; `columns` are names without units, `units` has "" for none.

    `lines` has the line number of each row. `problems` are lines whose cells do not fit the columns.
    """

    columns: tuple[str, ...]
    units: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...]
    problems: tuple[Problem, ...]

    def texts(self, column: str) -> list[str | None]:
        """The column as text; None where there is no value.

        Raises:
            KeyError: There is no such column.
        """
        at = self._at(column)
        return [None if null_reason(row[at]) is not None else row[at] for row in self.rows]

    def numbers(self, column: str) -> tuple[list[int | float | None], list[Problem]]:
        """The column as numbers in its unit, None for no value, and every cell that is neither.

        Raises:
            KeyError: There is no such column.
        """
        at = self._at(column)
        unit = self.units[at]
        numbers: list[int | float | None] = []
        problems: list[Problem] = []
        for line, row in zip(self.lines, self.rows, strict=True):
            try:
                numbers.append(read_number(row[at], unit))
            except ValueError:
                numbers.append(None)
                expected = f"a number in {unit}, or N/A" if unit else "a number without a unit, or N/A"
                problems.append(
                    Problem(file=QUERY_COMMAND, line=line, path=column, found=repr(row[at]), expected=expected)
                )
        return numbers, problems

    def _at(self, column: str) -> int:
        if column not in self.columns:
            raise KeyError(column)
        return self.columns.index(column)


def parse_query(text: str) -> Query:
    r"""The table of the text, whose first line names the columns; never raises.

    >>> parse_query("power.draw [W], pstate\r\n84.24 W, P2\r\n[N/A], P8").numbers("power.draw")
    ([84.24, None], [])
    """
    lines = [(number, line) for number, line in clean_lines(text) if line.strip()]
    if not lines:
        return Query(columns=(), units=(), rows=(), lines=(), problems=())
    titles = [_TITLE.fullmatch(cell) for cell in _cells(lines[0][1])]
    columns = tuple(match[1] if match else "" for match in titles)
    units = tuple((match[2] or "") if match else "" for match in titles)
    rows: list[tuple[str, ...]] = []
    numbers: list[int] = []
    problems: list[Problem] = []
    for number, line in lines[1:]:
        cells = _cells(line)
        if len(cells) == len(columns):
            rows.append(cells)
            numbers.append(number)
        else:
            found, expected = f"{len(cells)} cells", f"{len(columns)}, one for each column"
            problems.append(Problem(file=QUERY_COMMAND, line=number, path="", found=found, expected=expected))
    return Query(columns=columns, units=units, rows=tuple(rows), lines=tuple(numbers), problems=tuple(problems))


def _cells(line: str) -> tuple[str, ...]:
    try:
        return tuple(cell.strip() for cell in next(csv.reader([line], skipinitialspace=True)))
    except csv.Error:
        return ()
