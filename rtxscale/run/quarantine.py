"""Quarantine: a cell that has ended its workers twice in a row is not tried again in the same run.

Pure, from rows of the trials table. Callers: `run.agenda`, which sets the trials of such cells aside, and `run.sweep`,
which says which they are before anything is started.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rtxscale.results.outcomes import Outcome
from rtxscale.spec.printable import one_line

KILLING = frozenset({Outcome.CRASHED, Outcome.HANG})
SAYS_NOTHING = frozenset({Outcome.CANCELLED, Outcome.FOREIGN_PROCESS})
"""Endings that say nothing about the cell; any other than these and the killing ones breaks the row."""
QUARANTINE_AFTER = 2
"""A cell that has ended its workers this often in a row is not tried again: a card that falls off
the bus at each try, or a hang of five minutes, would take the night from all other cells."""
NAMED = 4
"""Most cells that are named."""
SAID_CHARACTERS = 200


def kills_so_far(rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Cell id -> how often in a row it has ended its workers, from rows of the trials table in any order."""
    kills: Counter[str] = Counter()
    for row in _by_end(rows):
        if row["outcome"] in KILLING:
            kills[row["cell_id"]] += 1
        elif row["outcome"] not in SAYS_NOTHING:
            kills[row["cell_id"]] = 0
    return kills


def deadly(kills: Mapping[str, int]) -> set[str]:
    """Ids of the cells that are not tried again.

    >>> deadly({"a": 2, "b": 1})
    {'a'}
    """
    return {cell_id for cell_id, count in kills.items() if count >= QUARANTINE_AFTER}


def quarantine_words(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Which cells a run holds in quarantine, how each ended last, and what to do; nothing where there is none."""
    cells = deadly(kills_so_far(rows))
    last = {row["cell_id"]: row for row in _by_end(rows) if row["cell_id"] in cells and row["outcome"] in KILLING}
    if not last:
        return []
    one = len(last) == 1
    found, them = ("1 cell of this run has", "it") if one else (f"{len(last)} cells of this run have", "them")
    named = [one_line(f"  {_cell_words(row)}: {_ending(row)}") for row in [*last.values()][:NAMED]]
    more = [f"  and {len(last) - NAMED} more"] if len(last) > NAMED else []
    return [
        f"quarantine: {found} ended the workers twice in a row, and this run does not try {them} again:",
        *named,
        *more,
        f"  once the cause is gone, `rtxscale sweep` with --fresh tries {them} again, in a new run of all cells",
    ]


def _by_end(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(rows, key=lambda row: row["ended_ns"] or 0)


def _cell_words(row: Mapping[str, Any]) -> str:
    axes = " ".join(f"{path}={value}" for path, value in _axes(row.get("axes_json") or "").items())
    return axes or str(row.get("workload") or row["cell_id"])


def _axes(text: str) -> dict[str, Any]:
    """A cell's axis values; none where the text does not say.

    >>> _axes('{"gpus": 1}'), _axes("[1]"), _axes("no JSON")
    ({'gpus': 1}, {}, {})
    """
    try:
        axes = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return axes if isinstance(axes, dict) else {}


def _ending(row: Mapping[str, Any]) -> str:
    return f"{row['outcome']}: {row['message']}"[:SAID_CHARACTERS] if row.get("message") else str(row["outcome"])
