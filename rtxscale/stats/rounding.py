"""Numbers rounded to significant digits and written out, as people read them: 38,740 and not 3.874e+04."""

from __future__ import annotations

import math

WIDEST = 10
"""An interval of a ratio whose ends differ by more than this factor says nothing, and is not written out."""


def places(value: float, digits: int) -> int:
    """Decimal places that `digits` significant digits of `value` need; negative for tens and more.

    >>> places(12345.6, 4), places(0.93149, 3), places(0.99996, 4), places(0.0, 4)
    (-1, 3, 3, 3)
    """
    if value == 0:
        return digits - 1
    return digits - 1 - math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}"))))


def fixed(value: float, places: int) -> str:
    """`value` with that many decimal places, thousands apart.

    >>> fixed(12345.6, -1), fixed(0.5, 3)
    ('12,350', '0.500')
    """
    return f"{round(value, places):,.{max(0, places)}f}"


def rounded(value: float, digits: int = 4) -> str:
    """`value` with that many significant digits; it has to be finite.

    >>> rounded(38740.3), rounded(2.5375), rounded(1062.26)
    ('38,740', '2.538', '1,062')
    """
    return fixed(value, places(value, digits))


def size(size_bytes: int) -> str:
    """A message size.

    >>> size(1048576), size(262144), size(1610612736), size(12)
    ('1 MiB', '256 KiB', '1.5 GiB', '12 B')
    """
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.4g} {unit}"
    return f"{size_bytes} B"
