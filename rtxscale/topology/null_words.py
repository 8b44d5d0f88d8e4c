"""The many ways in which NVIDIA's tools write "no value", and numbers with a unit.

One table for all parsers of text here. A missing value is None with a reason, never 0. Callers: the other files of this
folder, and whoever imports captures of nvidia-smi.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# Source: captures of nvidia-smi under drivers 470 to 610 on Linux and Windows; brackets are taken off first.
NULL_WORDS: Mapping[str, str] = {
    "": "blank",
    "-": "blank",
    "n/a": "not supported",
    "not supported": "not supported",
    "requested functionality has been deprecated": "deprecated",
    "not found": "not found",
    "unknown error": "error",
    "err!": "error",
    "gpu is lost": "error",
    "gpu requires reset": "error",
    "insufficient permissions": "no permission",
    "no permission": "no permission",
    "unknown": "unknown",
}
_NUMBER = re.compile(r"([+-]?\d{1,20}(?:\.\d{1,20})?)(?:\s*([^\s\d].*))?", re.ASCII)


def null_reason(text: str) -> str | None:
    """Why there is no value, or None where the text may be one.

    >>> null_reason("[Requested functionality has been deprecated]"), null_reason(" N/A "), null_reason("0 W")
    ('deprecated', 'not supported', None)
    """
    word = text.strip()
    if word.startswith("[") and word.endswith("]"):
        word = word[1:-1].strip()
    return NULL_WORDS.get(word.casefold())


def read_number(text: str, unit: str) -> int | float | None:
    """The number of a cell in `unit`; None where the cell says "no value". Whole numbers stay exact integers.

    The unit may stand in the cell, but no other.

    >>> read_number("84.24 W", "W"), read_number("15814595384 us", "us"), read_number("[N/A]", "W")
    (84.24, 15814595384, None)

    Raises:
        ValueError: The text is neither, or carries another unit.
    """
    if null_reason(text) is not None:
        return None
    match = _NUMBER.fullmatch(text.strip())
    if match is None or (match[2] or unit).strip() != unit:
        raise ValueError(text)
    return float(match[1]) if "." in match[1] else int(match[1])
