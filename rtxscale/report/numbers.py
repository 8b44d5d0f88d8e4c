"""How numbers are written for people: three or four significant digits, intervals in brackets, units beside them.

Pure text; no charts, no colour. Called by the terminal tables, the page and the tooltips, so that the same number reads
the same everywhere. A missing or non-finite number is written as a dash, never as `nan`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from rtxscale.spec.printable import printable
from rtxscale.stats.rounding import WIDEST, fixed, places, rounded

NOTHING = "–"  # noqa: RUF001  an en dash is what tables show for "no value"
MOST = 7
"""An interval narrower than seven significant digits is not shown with more."""
TOO_WIDE = f"(wider than x{WIDEST})"
"""What stands in place of an interval that says nothing: short, for columns."""
UNITS = {"image": "images/s", "token": "tokens/s", "sample": "samples/s"}


def finite(value: Any) -> Any:
    """`value`, or None where it is NaN or infinite, so that it can go into strict JSON."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with every NaN and infinity replaced by None."""
    return {name: finite(value) for name, value in row.items()}


def number(value: float | None, digits: int = 4) -> str:
    """`value` with that many significant digits.

    >>> number(12345.6), number(0.93149, 3), number(0.99996), number(float("nan"))
    ('12,350', '0.931', '1.000', '–')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    return rounded(value, digits)


def interval(
    value: float | None, low: float | None, high: float | None, least: int = 3, *, additive: bool = False
) -> str:
    """`value (low-high)` with as few significant digits, `least` or more, as still show the interval.

    Without an interval, `value` alone. One of a factor of more than ten says nothing of what is compared by ratios,
    and is not written out; `additive` is for what may lie near zero, such as a latency.

    >>> interval(0.9, 0.05, 17.0), interval(0.9, 0.05, 17.0, additive=True)
    ('0.900 (wider than x10)', '0.900 (0.050-17.000)')
    >>> interval(0.9312, 0.912, 0.9444, 2), interval(0.9312, 0.9301, 0.9322, 2), interval(1510.2, None, None)
    ('0.93 (0.91-0.94)', '0.931 (0.930-0.932)', '1,510')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return number(value, max(least, 3))
    if not additive and says_nothing(low, high):
        return f"{number(value, max(least, 3))} {TOO_WIDE}"
    enough = (digits for digits in range(least, MOST) if high - low >= 1.999 * 10.0 ** -places(value, digits))
    shown = places(value, next(enough, 4))
    middle, left, right = (fixed(item, shown) for item in (value, low, high))
    return f"{middle} ({left}{' to ' if low < 0 else '-'}{right})"


def how_many(count: int, things: str) -> str:
    """So many of them.

    >>> how_many(1, "GPUs"), how_many(4, "CPU workers")
    ('1 GPU', '4 CPU workers')
    """
    return f"{count} {things.removesuffix('s') if count == 1 else things}"


def says_nothing(low: float, high: float) -> bool:
    """Whether the ends of an interval of a positive quantity differ by more than a factor of `WIDEST`.

    >>> says_nothing(0.9, 1.0), says_nothing(0.0, 1.0), says_nothing(-1.0, 1.0)
    (False, True, False)
    """
    return low >= 0 and high > WIDEST * low


def telling(low: float | None, high: float | None) -> tuple[float | None, float | None]:
    """Both ends of an interval of a positive quantity as a chart may draw them; none where it says nothing.

    >>> telling(0.9, 1.0), telling(0.0, 1e9), telling(None, None)
    ((0.9, 1.0), (None, None), (None, None))
    """
    if low is None or high is None or not math.isfinite(high) or says_nothing(low, high):
        return None, None
    return low, high


def no_bar(texts: Iterable[str]) -> str:
    """What a caption adds of points that have no bar, by the texts of their numbers; empty without any.

    >>> no_bar(["0.9 (wider than x10)"]), no_bar(["0.9 (wider than x10)", "0.8"]), no_bar([])
    (' No bar: interval wider than x10.', ' No bar: interval wider than x10 or no interval.', '')
    """
    kinds = {TOO_WIDE in text for text in texts}
    words = [f"interval wider than x{WIDEST}"] * (True in kinds) + ["no interval"] * (False in kinds)
    return f" No bar: {' or '.join(words)}." if words else ""


def gain(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """A relative change in percent, with sign.

    An interval of more than a factor of ten says nothing and is not written out.

    >>> gain(0.0412, 0.031, 0.052), gain(-0.0004), gain(None), gain(0.18, -0.99, 1e9)
    ('+4.1 % (+3.1 to +5.2)', '0.0 %', '–', '+18.0 % (wider than x10)')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    text = f"{_signed(value)} %"
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return text
    if high + 1 > WIDEST * max(low + 1, 0.0):
        return f"{text} {TOO_WIDE}"
    return f"{text} ({_signed(low)} to {_signed(high)})"


def percent(value: float | None) -> str:
    """A share in percent, without sign.

    >>> percent(0.0412), percent(0.05), percent(1.5), percent(None)
    ('4.1 %', '5.0 %', '150 %', '–')
    """
    return NOTHING if value is None or not math.isfinite(value) else f"{_signed(value).removeprefix('+')} %"


def duration(seconds: float | None) -> str:
    """A length of time.

    >>> duration(3.04), duration(75), duration(8000), duration(None)
    ('3.0 s', '1 min 15 s', '2 h 13 min', '–')
    """
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def throughput_unit(work_unit: str | None) -> str:
    """`images/s` for `image`; `work/s` where the unit is not known."""
    if not work_unit:
        return "work/s"
    return UNITS.get(work_unit, f"{work_unit}s/s")


def worker_word(device: str) -> str:
    """What counts of workers are called: `GPUs`, `CPU workers` on a machine without, or `simulated GPUs`."""
    return {"cpu": "CPU workers", "simulated": "simulated GPUs"}.get(device, "GPUs")


def short(text: str, limit: int = 80) -> str:
    r"""At most `limit` characters on one line, the middle left out, between words where there are any; safe to print.

    >>> short("a" * 50 + "b" * 50, 11), short("two\nlines"), short("twelve is 12 and more is 1234.5 in all", 21)
    ('aaaaa…bbbbb', 'two lines', 'twelve is…in all')
    """
    line = printable(" ".join(text.split()))
    if len(line) <= limit:
        return line
    half = (limit - 1) // 2
    head, tail = line[: limit - 1 - half], line[len(line) - half :]
    if line[len(head)] != " " and len(word := head.rpartition(" ")[2]) < len(head) / 2:
        head = head[: len(head) - len(word)]
    if line[len(line) - half - 1] != " " and len(word := tail.partition(" ")[0]) < len(tail) / 2:
        tail = tail[len(word) :]
    return f"{head.rstrip()}…{tail.lstrip()}"


def _signed(value: float) -> str:
    """Percent with one decimal, none from 100 on, and its sign; zero has none."""
    percent = round(100 * value, 1)
    if abs(percent) >= 100:
        return f"{percent:+,.0f}"
    return f"{percent:+.1f}" if percent else "0.0"
