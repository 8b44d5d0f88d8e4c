"""The lines of a power meter's log as readings: CSV of any separator, times as Unix seconds or ISO 8601. Pure.

A line that holds no reading, such as a repeated head or a gap, is left out. Caller: `telemetry.meters`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

SEPARATORS = (",", ";", "\t")
LATEST_S = 1e11
"""Larger numbers are not seconds, but milliseconds or less."""


@dataclass(frozen=True, kw_only=True)
class LogColumns:
    """The names of the two columns that count."""

    time: str = "time"
    power: str = "power_w"


def read_log_lines(head: str, lines: Iterable[str], columns: LogColumns) -> list[tuple[int, float]]:
    """(Unix time in ns, W) of each line that holds both.

    Raises:
        ValueError: the head has not both columns.

    >>> read_log_lines("time;power_w", ["2026-11-30T12:00:00+00:00;412,5", "gap;"], LogColumns())
    [(1796040000000000000, 412.5)]
    """
    separator = max(SEPARATORS, key=head.count)
    names = [_bare(name) for name in head.split(separator)]
    if missing := [name for name in (columns.time, columns.power) if name not in names]:
        raise ValueError(f"no column {' and no column '.join(missing)} among {', '.join(names)[:200]}")
    at_time, at_power = names.index(columns.time), names.index(columns.power)
    found = []
    for line in lines:
        cells = [_bare(cell) for cell in line.split(separator)]
        if len(cells) != len(names):
            continue
        t_ns, power_w = time_ns(cells[at_time]), number(cells[at_power])
        if t_ns is not None and power_w is not None:
            found.append((t_ns, power_w))
    return found


def time_ns(text: str) -> int | None:
    """A time in ns since 1970; one without a zone is local time; None for what is no time.

    >>> time_ns("1796040000.25"), time_ns("yesterday")
    (1796040000250000000, None)
    """
    seconds = number(text)
    if seconds is None:
        try:
            seconds = datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError, OSError):
            return None
    # In steps of a microsecond, which a float of today's seconds still holds.
    return round(seconds * 1e6) * 1000 if 0 < seconds < LATEST_S else None


def number(text: str) -> float | None:
    """A finite number, with a decimal point or comma; None for anything else.

    >>> number("412,5"), number("nan"), number("")
    (412.5, None, None)
    """
    try:
        value = float(text.replace(",", "."))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _bare(cell: str) -> str:
    return cell.strip().strip('"').lstrip("\ufeff").strip('"')
