"""When a sweep has to stop although work is left: this call's minutes, and the hours that the whole run may take.

Pure. The hours count what is in the results, so a job that is started again does not get them again. Caller:
`run.sweep`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

MINUTES = "limit"
HOURS = "max_hours"


def spent_s(rows: Iterable[Mapping[str, Any]]) -> float:
    """Seconds that a run has taken so far, from its trials' rows: every attempt, and the starts of its sessions.

    >>> spent_s([{"wall_s": 5.0, "session_start_s": 20.0}, {"wall_s": 6.0, "session_start_s": None}])
    31.0
    """
    return sum((row["wall_s"] or 0.0) + (row["session_start_s"] or 0.0) for row in rows)


def stop_times(
    began: float, *, limit_minutes: float | None, max_hours: float | None, spent_s: float
) -> dict[str, float]:
    """Reason to stop -> time on the clock of `began`, in seconds.

    >>> stop_times(100.0, limit_minutes=1, max_hours=1, spent_s=3000.0)
    {'limit': 160.0, 'max_hours': 700.0}
    """
    times = {}
    if limit_minutes is not None:
        times[MINUTES] = began + 60.0 * limit_minutes
    if max_hours is not None:
        times[HOURS] = began + 3600.0 * max_hours - spent_s
    return times
