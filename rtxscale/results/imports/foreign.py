"""Tables that other programs wrote, as rows of text and numbers: CSV of any separator, and JSON.

Knows nothing of what the columns mean. Every row keeps its number, so that a message can name it. Called by
`imports.run`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rtxscale.errors import BadInput

MAX_BYTES = 64 * 1024 * 1024
"""A table of results is small; a larger file is something else."""
SEPARATORS = ",;\t|"


@dataclass(frozen=True, kw_only=True)
class ForeignTable:
    """Rows as they are in the file: `numbers` holds the line (CSV) or place (JSON, from 1) of each."""

    file: str
    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]
    numbers: tuple[int, ...]


def read_foreign_text(path: Path) -> str:
    """The text of a file that somebody wants to import.

    Raises:
        BadInput: it is missing, no regular file, too large or not UTF-8.
    """
    try:
        if not path.is_file():
            what = "a directory" if path.is_dir() else "something that is no file" if path.exists() else "no such file"
            raise BadInput(f"{path}: found {what}; expected a CSV or JSON table, or an output of nccl-tests")
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: found a file that cannot be read ({error}); expected one that can") from error
    if len(content) > MAX_BYTES:
        raise BadInput(f"{path}: found more than {MAX_BYTES // 2**20} MiB; expected a table of results")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{path}:{line}: found the byte 0x{content[error.start]:02x}; expected UTF-8 text") from error


def parse_foreign(text: str, file: str) -> ForeignTable:
    """The rows of a CSV or JSON text; `file` is its name in messages.

    Raises:
        BadInput: it is neither, or holds no row.
    """
    table = _from_json(text, file) if text.lstrip()[:1] in ("{", "[") else _from_csv(text, file)
    if not table.rows:
        raise BadInput(f"{file}: found no row; expected a header and at least one row of results")
    return table


def _from_csv(text: str, file: str) -> ForeignTable:
    header = next((line for line in io.StringIO(text, newline="") if line.strip()), "")
    separator = max(SEPARATORS, key=header.count)
    # Not splitlines(), which would also cut within quotes and at characters that are no line ends of CSV.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    columns: list[str] = []
    rows, numbers = [], []
    try:
        for words in reader:
            if not any(word.strip() for word in words):
                continue
            if not columns:
                columns = _header(words, file)
            elif len(words) != len(columns):
                raise BadInput(
                    f"{file}:{reader.line_num}: found {len(words)} values; expected {len(columns)}, one for each column"
                )
            else:
                rows.append(dict(zip(columns, (word.strip() for word in words), strict=True)))
                numbers.append(reader.line_num)
    except csv.Error as error:
        raise BadInput(f"{file}:{reader.line_num}: found broken CSV ({error}); expected one row a line") from error
    return ForeignTable(file=file, columns=tuple(columns), rows=tuple(rows), numbers=tuple(numbers))


def _header(words: Sequence[str], file: str) -> list[str]:
    names = [word.strip() for word in words]
    again = sorted({name for name in names if names.count(name) > 1})
    if again or "" in names:
        found = f"the column {again[0]} more than once" if again and again[0] else "a column without a name"
        raise BadInput(f"{file}: found {found}; expected a header with a name for each column")
    return names


def _from_json(text: str, file: str) -> ForeignTable:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{file}: found broken JSON ({error}); expected a list of objects, one for each row") from error
    rows = _objects(data)
    if rows is None:
        raise BadInput(
            f"{file}: found JSON that holds no list of objects, or more than one; expected a list of objects, one for "
            "each row"
        )
    nested = next((f"row {n}: {key}" for n, row in enumerate(rows, 1) for key, v in row.items() if _is_nested(v)), None)
    if nested:
        raise BadInput(f"{file}: found a list or object at {nested}; expected text or a number in each field")
    columns = tuple(dict.fromkeys(key for row in rows for key in row))
    filled = tuple({name: row.get(name) for name in columns} for row in rows)
    return ForeignTable(file=file, columns=columns, rows=filled, numbers=tuple(range(1, len(rows) + 1)))


def _objects(data: Any) -> list[dict[str, Any]] | None:
    """A list of objects, at the top or as the only one of an object's values."""
    if isinstance(data, dict):
        lists = [value for value in data.values() if isinstance(value, list) and value and isinstance(value[0], dict)]
        data = lists[0] if len(lists) == 1 else None
    if isinstance(data, list) and all(isinstance(row, dict) for row in data):
        return data
    return None


def _is_nested(value: Any) -> bool:
    return isinstance(value, list | dict)
