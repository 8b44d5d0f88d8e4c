"""Lists of CPU or NUMA node numbers, such as `0-23,48-71`, and the cut between such a list and a number glued to it.

Pure text and ranges; large ranges are never expanded. Caller: `topology.affinity`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_LIST = re.compile(r"\d{1,7}(-\d{1,7})?(,\d{1,7}(-\d{1,7})?)*", re.ASCII)


def read_id_list(text: str) -> tuple[range, ...] | None:
    """Ranges of the list, ascending and apart; None if the text is no such list.

    >>> read_id_list("0-23,48-71")
    (range(0, 24), range(48, 72))
    >>> read_id_list("168-22") is None
    True
    """
    if not _LIST.fullmatch(text):
        return None
    ranges: list[range] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        span = range(int(first), int(last or first) + 1)
        if not span or (ranges and span.start < ranges[-1].stop):
            return None
        ranges.append(span)
    return tuple(ranges)


def fits(ids: tuple[range, ...], count: int | None) -> bool:
    """Whether all numbers are below `count`; true where the count is unknown."""
    return count is None or not ids or ids[-1].stop <= count


def cuts(text: str) -> Iterator[tuple[str, str]]:
    """Every way to read the text as a list with a number of at most four digits glued to its end.

    >>> list(cuts("56-111,168-2231"))
    [('56-111,168-223', '1')]
    """
    for at in range(max(1, len(text) - 4), len(text)):
        head, tail = text[:at], text[at:]
        well_formed = tail == "0" or (tail.isascii() and tail.isdigit() and not tail.startswith("0"))
        if well_formed and read_id_list(head) is not None:
            yield head, tail
