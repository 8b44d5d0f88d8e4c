"""Nested data as dotted paths and texts, to be compared field by field.

Pure; called by `analysis` and `report.dossier`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

ABSENT = "not there"


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted path and value of every field; a list is one field, and so is a mapping without entries.

    >>> list(leaves({"nccl": {"channels": 8}, "gpus": [1, 2]}))
    [('nccl.channels', 8), ('gpus', [1, 2])]
    """
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from leaves(item, f"{path}.{name}" if path else str(name))
    else:
        yield path, value


def flat(value: Any) -> Iterator[tuple[str, str]]:
    """Dotted path and text of every field.

    >>> list(flat({"axes": {"gpus": [1, 2]}, "target": None}))
    [('axes.gpus', '1, 2'), ('target', 'not there')]
    """
    for path, leaf in leaves(value):
        yield path, ", ".join(map(value_text, leaf)) if isinstance(leaf, list) and leaf else value_text(leaf)


def value_text(value: Any) -> str:
    """A value as the reader sees it; one that is null is not there.

    >>> value_text(None), value_text(True), value_text(2.0)
    ('not there', 'true', '2.0')
    """
    if value is None:
        return ABSENT
    return str(value).lower() if isinstance(value, bool) else str(value)
