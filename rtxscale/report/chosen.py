"""Which of many series and rows are shown, for charts and tables alike. Draws nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

AXIS = "axis:"
"""What a column of the cells' table is called before the path of the axis it holds."""
GREY = 150
"""Most series drawn in grey, for context; more are a plain area and make the page slow."""
T = TypeVar("T")


def evenly(items: Sequence[T], most: int) -> list[T]:
    """At most that many items, spread evenly, first and last included.

    >>> evenly("abcdefg", 3), evenly("ab", 3)
    (['a', 'd', 'g'], ['a', 'b'])
    """
    if len(items) <= most:
        return list(items)
    return [items[round(place * (len(items) - 1) / (most - 1))] for place in range(most)]
