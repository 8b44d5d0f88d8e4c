"""What nccl-tests printed or wrote, as rows of bandwidths: its text since 2.0, its JSON, and a fork's JSON.

Columns are found by their names in the header, never by their place: they moved between versions. A row that log lines
have broken up is refused and counted, never mended. The `env` of the JSON, which holds the writer's whole environment,
is not read. Pure; running the binary is the caller's business. Called by `cli` and by the bench of budgets.

Source: the output of https://github.com/NVIDIA/nccl-tests (`src/util.cu`, before 2.17 `src/common.cu`), 2.0 to 2.19.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rtxscale.nccl.lines import bare_text
from rtxscale.nccl.nccl_tests_json import json_object, read_json
from rtxscale.nccl.nccl_tests_rows import NcclTests, Row, Side, number, operation_of, version_text

TIMES = ("time", "cputime")
NOT_KNOWN = ("N/A", "nan", "-nan")
TIMESTAMP_WORDS = 2
"""A timestamp is a date and a time: two words in one column."""

_RANK_TAG = re.compile(r"^\[\d+\] ")
_LOG = re.compile(r" NCCL (?:INFO|WARN|TRACE) ")
_VERSION = re.compile(r"nccl-tests version (\S+)(?: nccl-headers=(\d+) nccl-library=(\d+))?")
_PROGRAM = re.compile(r"Collective test starting: (\S+)")
_SETTINGS = re.compile(r"warmup iters: (\d+) iters: (\d+)")
_DEVICE = re.compile(r"^#\s+Rank\s+(\d+) .*\bdevice\s+\d+ \[[^\]]*\]")
_WRONG_VALUES = re.compile(r"Out of bounds values\s*:\s*(\d+)")
_AVERAGE = re.compile(r"Avg bus bandwidth\s*:\s*(\S+)")
_JSON_FILE = re.compile(r"# Writing JSON output to (.+)")


def read_nccl_tests(text: str) -> NcclTests:
    """Read one output of nccl-tests, whichever form it has.

    Raises:
        ValueError: it is neither a table nor JSON of nccl-tests.
    """
    found = json_object(text)
    return _read_text(text) if found is None else read_json(found)


def bus_bandwidths(output: NcclTests) -> dict[int, float]:
    """In-place bus bandwidth in GB/s by message size in bytes, of the rows that are evidence.

    A row with wrong data is none, nor is one of a single GPU, where nothing crosses a bus and nccl-tests prints 0.
    """
    if output.ranks == 1 or output.out_of_bounds:
        return {}
    return {
        row.size_bytes: row.in_place.busbw_gb_s
        for row in output.rows
        if row.in_place and row.in_place.busbw_gb_s and not row.in_place.wrong
    }


def all_reduce_argv(binary: str, gpus: int, least_mib: int, most_mib: int) -> list[str]:
    """The command that times all-reduce in one process, over sizes from least to most, doubling.

    >>> " ".join(all_reduce_argv("all_reduce_perf", 2, 64, 512))
    'all_reduce_perf -b 64M -e 512M -f 2 -g 2'
    """
    return [binary, "-b", f"{least_mib}M", "-e", f"{most_mib}M", "-f", "2", "-g", str(gpus)]


@dataclass(frozen=True)
class Columns:
    """The header: names of the shared columns, of the columns of a side, and how many words follow behind."""

    shared: tuple[str, ...]
    side: tuple[str, ...]
    trailing: int

    @property
    def words(self) -> int:
        """Words in a row."""
        return len(self.shared) + 2 * len(self.side) + self.trailing


@dataclass
class Reader:
    """What has been read of a text so far. `broken` is true while the rest of a refused row may still come."""

    columns: Columns | None = None
    rows: list[Row] = field(default_factory=list)
    refused: int = 0
    broken: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    ranks: set[int] = field(default_factory=set)

    def take(self, raw: str) -> None:
        """Read one line."""
        line = _RANK_TAG.sub("", bare_text(raw))
        header = _header(line)
        if header is not None:
            self.columns = header
        elif line.lstrip().startswith("#"):
            self._comment(line)
        elif self.columns is not None:
            self._row(line, self.columns)

    def _row(self, line: str, columns: Columns) -> None:
        words = line.split()
        log = _LOG.search(line)
        starts = len(words) > 1 and words[0].isdigit() and words[1].isdigit()
        row = None if log else _row(words, columns)
        if row is not None:
            self.rows.append(row)
            self.broken = False
        elif starts:
            self.refused += 1
            self.broken = True
        elif words and not log and not self.broken and all(_is_value(word) for word in words):
            self.refused += 1  # the end of a row whose beginning is lost

    def _comment(self, line: str) -> None:
        if device := _DEVICE.match(line):
            self.ranks.add(int(device[1]))
        for pattern, read in _COMMENTS:
            if match := pattern.search(line):
                self.facts |= read(match)


_COMMENTS = (
    (_VERSION, lambda match: {"version": match[1], "nccl_version": match[3] and version_text(int(match[3]))}),
    (_PROGRAM, lambda match: {"operation": operation_of(match[1])}),
    (_SETTINGS, lambda match: {"warmup_iterations": int(match[1]), "iterations": int(match[2])}),
    (_WRONG_VALUES, lambda match: {"out_of_bounds": int(match[1])}),
    (_AVERAGE, lambda match: {"average_busbw_gb_s": number(match[1])}),
    (_JSON_FILE, lambda match: {"json_file": match[1].strip()}),
)


def _read_text(text: str) -> NcclTests:
    reader = Reader()
    for raw in text.splitlines():
        reader.take(raw)
    if reader.columns is None:
        raise ValueError("found no header with the columns size, time, algbw and busbw; expected nccl-tests' table")
    return NcclTests(rows=tuple(reader.rows), refused=reader.refused, ranks=len(reader.ranks) or None, **reader.facts)


def _header(line: str) -> Columns | None:
    """The columns that a line names, or None if it is no header."""
    names = line.strip().removeprefix("#").split()
    starts = [place for place, name in enumerate(names) if name in TIMES]
    if names[:1] != ["size"] or len(starts) != 2:
        return None
    first, second = starts
    side = tuple(names[first:second])
    if not {"algbw", "busbw"} <= set(side) or tuple(names[second : second + len(side)]) != side:
        return None
    behind = names[second + len(side) :]
    trailing = sum(TIMESTAMP_WORDS if name == "timestamp" else 1 for name in behind)
    return Columns(tuple(names[:first]), side, trailing)


def _row(words: Sequence[str], columns: Columns) -> Row | None:
    """A row from exactly as many words as the header asks for; None if one of them cannot stand there."""
    if len(words) != columns.words:
        return None
    split = len(columns.shared)
    shared = dict(zip(columns.shared, words, strict=False))
    width = len(columns.side)
    sides = [words[start : start + width] for start in (split, split + width)]
    if not all(_is_value(word) for side in sides for word in side):
        return None
    try:
        return Row(
            size_bytes=int(shared["size"]),
            count=int(shared["count"]),
            dtype=shared["type"],
            redop=shared.get("redop"),
            root=int(shared["root"]) if "root" in shared else None,
            out_of_place=_side(dict(zip(columns.side, sides[0], strict=True))),
            in_place=_side(dict(zip(columns.side, sides[1], strict=True))),
        )
    except (KeyError, ValueError):
        return None


def _side(values: Mapping[str, str]) -> Side:
    """One side of a row of text. `error`, the largest deviation up to 2.11, is no count of wrong values."""
    wrong = number(values["#wrong"]) if "#wrong" in values else None
    return Side(
        time_us=number(next(values[name] for name in TIMES if name in values)),
        algbw_gb_s=number(values["algbw"]),
        busbw_gb_s=number(values["busbw"]),
        wrong=wrong,
    )


def _is_value(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return word in NOT_KNOWN
    return True
