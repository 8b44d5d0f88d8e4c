"""Text that came from a file or a device, made safe for a terminal.

A question in a sweep or a name in a result may hold anything; what a terminal would obey instead of show is written as
its escape. Loads nothing. Called by whatever prints: `cli`, `report.numbers`, `run`.
"""

from __future__ import annotations

import re

OBEYED = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except the line feed, marks that turn the direction of text, and what is no character at all."""


def printable(text: str) -> str:
    r"""`text` with what a terminal would obey written as its escape; line feeds stay, and doing it twice is once.

    >>> print(printable("a\x1b[31mred\x07\u202e, done"))
    a\x1b[31mred\x07\u202e, done
    """
    return OBEYED.sub(lambda found: found.group().encode("unicode_escape").decode("ascii"), text)


def one_line(text: str) -> str:
    r"""`printable` for a field of a line: a line feed, which could pretend to begin another line, is escaped as well.

    >>> print(one_line("a name\nok: all is well"))
    a name\nok: all is well
    """
    return printable(text).replace("\n", r"\n")
