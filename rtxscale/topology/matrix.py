"""Matrices in nvidia-smi's text: found and cut into cells; a line whose cells could be in wrong columns is refused.

Copes with text before the header, ANSI underline, tabs or spaces, indentation, CRLF and cells glued together (cut with
the fixed vocabulary). Not what a label means. Caller: `topology.smi`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rtxscale.topology.affinity import TITLES

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
SELF = "X"
PEER_LABELS = ("OK", "CNS", "GNS", "TNS", "NS", "DR", "U")
# No word begins another, so a row of glued words can be cut in one way only; Digits behind `NV` could be
# its own or a CPU's, so `NV` with more than two is no word.
_WORD = re.compile(rf"X|SYS|SOC|NODE|PHB|PXB|PIX|NV[1-9]\d?(?!\d)|{'|'.join(PEER_LABELS)}", re.ASCII)
_NEW_WORD = re.compile(r"[A-Z]{2,6}\d{0,2}", re.ASCII)
_DEVICE = re.compile(r"(?:GPU|NIC)\d{1,4}", re.ASCII)
_OTHER_DEVICE = re.compile(r"(?!NV\d)[A-Za-z](?=[A-Za-z_.\-]{0,40}\d)[A-Za-z0-9_.\-]{1,60}", re.ASCII)
_NIC_NAME = re.compile(r"\s*(NIC\d{1,4}):\s+(\S+)\s*", re.ASCII)


class Row(NamedTuple):
    """One row: the device, its label for every column, and the cells behind, cut at tabs or at white space."""

    name: str
    labels: tuple[str, ...]
    behind: tuple[str, ...]
    by_position: bool


class Refused(NamedTuple):
    """Why a line is no row."""

    reason: str


@dataclass(kw_only=True)
class Table:
    """A header with the lines that belong to it: (line number, text). `unended` is a last line without its newline."""

    line: int
    names: tuple[str, ...]
    titles: tuple[str, ...]
    rows: list[tuple[int, str]] = field(default_factory=list)
    nic_names: dict[str, str] = field(default_factory=dict)
    unended: int | None = None


def clean_lines(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines without ANSI sequences, carriage returns, a byte order mark and spaces of web pages."""
    for number, line in enumerate(text.removeprefix("\ufeff").replace("\u00a0", " ").split("\n"), 1):
        yield number, ANSI.sub("", line).rstrip("\r")


def find_tables(text: str) -> list[Table]:
    """Every matrix of the text, in order."""
    tables: list[Table] = []
    unended = None if text.endswith("\n") else text.count("\n") + 1
    in_rows = False
    for number, line in clean_lines(text):
        header = read_header(line)
        if header is not None:
            names, titles = header
            tables.append(Table(line=number, names=names, titles=titles, unended=unended))
            in_rows = True
        elif tables:
            in_rows = in_rows and "Legend" not in line
            _sort(tables[-1], number, line, in_rows=in_rows)
    return tables


def _sort(table: Table, number: int, line: str, *, in_rows: bool) -> None:
    if in_rows and _looks_like_a_row(line, table.names):
        table.rows.append((number, line))
    elif match := _NIC_NAME.fullmatch(line):
        table.nic_names[match[1]] = match[2]


def _looks_like_a_row(line: str, names: Sequence[str]) -> bool:
    first = line.split(maxsplit=1)[:1]
    if not first:
        return False
    # A row that a narrow terminal has wrapped goes on with a label.
    return first[0] in names or (bool(_DEVICE.match(first[0])) and ":" not in first[0]) or not _lex(first[0])[1]


def read_header(line: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Device names and the titles behind them, or None if the line is no header.

    >>> read_header("  GPU0  NIC8NIC9  NIC11CPU Affinity  NUMA Affinity")
    (('GPU0', 'NIC8', 'NIC9', 'NIC11'), ('CPU Affinity', 'NUMA Affinity'))
    """
    rest = line.rstrip()
    titles: list[str] = []
    for title in reversed(TITLES):
        if rest.endswith(title):
            rest, titles = rest.removesuffix(title).rstrip(), [title, *titles]
    names: list[str] = []
    for token in rest.split():
        cut = _names(token)
        if cut is None:
            return None
        names += cut
    is_header = bool(names) and names[0].startswith("GPU") and len(set(names)) == len(names)
    return (tuple(names), tuple(titles)) if is_header else None


def _names(token: str) -> list[str] | None:
    names = _DEVICE.findall(token)
    if names and "".join(names) == token:
        return names
    is_name = _OTHER_DEVICE.fullmatch(token) and not _WORD.fullmatch(token) and not _DEVICE.match(token)
    return [token] if is_name else None


def read_row(line: str, names: Sequence[str]) -> Row | Refused:
    """The cells of one row, or why they cannot be told apart.

    >>> read_row("GPU1  NODEPXB  X  0-27", ["GPU0", "mlx5_0", "GPU1"]).labels
    ('NODE', 'PXB', 'X')
    """
    name, rest = _name_and_rest(line.lstrip(), names)
    if name is None:
        return Refused("no device of the header in front")
    row = _cut_at_tabs(name, rest, len(names)) or _cut_at_space(name, rest, len(names))
    if isinstance(row, Refused):
        return row
    selves = [column for column, label in enumerate(row.labels) if label == SELF]
    if selves != [list(names).index(name)]:
        return Refused("not exactly one X, in the device's own column")
    return row


def is_cut(row: Row) -> bool:
    """Whether a row that the text ends with may have lost a part of its last label: nothing stands behind it."""
    return row.labels[-1] != SELF and not any(cell.strip() for cell in row.behind)


def _name_and_rest(body: str, names: Sequence[str]) -> tuple[str | None, str]:
    first = body.split(maxsplit=1)[0] if body.split(maxsplit=1) else ""
    if first in names:
        return first, body[len(first) :]
    for name in sorted(names, key=len, reverse=True):
        tail = first.removeprefix(name)
        if tail != first and not _lex(tail)[1]:
            return name, body[len(name) :]
    return None, body


def _cut_at_tabs(name: str, rest: str, columns: int) -> Row | None:
    before, *cells = rest.split("\t")
    labels = tuple(cell.strip() for cell in cells[:columns])
    fits = len(labels) == columns and all(_is_label(label) for label in labels)
    if before.strip() or not fits or any(_is_label(cell.strip()) for cell in cells[columns:]):
        return None
    return Row(name, labels, tuple(cells[columns:]), by_position=True)


def _cut_at_space(name: str, rest: str, columns: int) -> Row | Refused:
    tokens = rest.split()
    labels: list[str] = []
    while tokens and len(labels) < columns:
        token = tokens.pop(0)
        words, tail = _lex(token)
        if tail and _is_label(token):
            words, tail = [token], ""
        labels += words
        if tail:
            if len(labels) != columns or not tail[0].isdecimal():
                return Refused(f"{token!r}, which is no label and no labels glued together")
            tokens.insert(0, tail)
    if len(labels) != columns or any(_is_label(token) for token in tokens):
        more = sum(_is_label(token) for token in tokens)
        return Refused(f"{len(labels) + more} labels")
    return Row(name, tuple(labels), tuple(tokens), by_position=False)


def _lex(token: str) -> tuple[list[str], str]:
    """Known words at the start of the token, and what is left."""
    words: list[str] = []
    at = 0
    while match := _WORD.match(token, at):
        words.append(match[0])
        at = match.end()
    return words, token[at:]


def _is_label(text: str) -> bool:
    """A known word, or one that could be a new one: it must not begin with a known word, which would be glue."""
    words, tail = _lex(text)
    if not tail:
        return len(words) == 1
    return not words and not text.startswith("NV") and bool(_NEW_WORD.fullmatch(text))
