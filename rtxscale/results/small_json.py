"""JSON in a run's directory, read as if anybody had written it: values of bounded depth and size, or a ValueError.

Not for trusted input of any size. Called by `results.manifest`, `results.commit`, `results.lock` and `results.live`.
"""

from __future__ import annotations

import json
import math
from typing import Any

MAX_DEPTH = 16
MAX_WHOLE = 2**63 - 1
"""Larger whole numbers fit into no column and no clock."""


def parse_small(text: bytes) -> Any:
    """The value that the text holds.

    Raises:
        ValueError: it is no JSON, holds a number that is not finite or too large, or is nested too deep.

    >>> parse_small(b'{"pid": 1}')
    {'pid': 1}
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    _check(value, 0)
    return value


def is_whole(value: Any, least: int = 0) -> bool:
    """Whether it is a whole number of at least `least`; true and false are none."""
    return type(value) is int and value >= least


def is_number(value: Any) -> bool:
    """Whether it is a number; true and false are none."""
    return type(value) in (int, float)


def _check(value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError("nested too deep")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number that is not finite")
    if isinstance(value, int) and abs(value) > MAX_WHOLE:
        raise ValueError("a number that is too large")
    if isinstance(value, dict):
        for inner in value.values():
            _check(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            _check(inner, depth + 1)
