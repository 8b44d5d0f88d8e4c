"""How a trial can end, and whether that is the last word.

Final outcomes are never measured again. `RETRIED_ONCE` get a second attempt. `infeasible` is judged anew at each plan;
`cancelled` is not an ending at all. One row per trial id and attempt.
"""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """The value of `trials.outcome`."""

    OK = "ok"
    OOM = "oom"
    DIVERGED = "diverged"
    NOT_HONOURED = "not_honoured"
    INFEASIBLE = "infeasible"
    CRASHED = "crashed"
    HANG = "hang"
    FOREIGN_PROCESS = "foreign_process"
    UNSTEADY = "unsteady"
    CANCELLED = "cancelled"


SIMULATED = "simulated"
"""Where a row is from, on which device, and a flag on it: nothing was measured, whatever its outcome."""

FINAL = frozenset({Outcome.OK, Outcome.OOM, Outcome.DIVERGED, Outcome.NOT_HONOURED})
RETRIED_ONCE = frozenset({Outcome.CRASHED, Outcome.HANG, Outcome.FOREIGN_PROCESS, Outcome.UNSTEADY})

FAILED = RETRIED_ONCE | {Outcome.NOT_HONOURED}
"""As a trial's last word: it gave no number and no finding. Out of memory and diverged are findings."""


def is_finished(outcomes: list[str]) -> bool:
    """Whether a trial with these outcomes, one per attempt, needs no further attempt.

    >>> is_finished(["crashed"]), is_finished(["crashed", "ok"]), is_finished(["hang", "hang"])
    (False, True, True)
    >>> is_finished(["cancelled"])
    False
    """
    if any(outcome in FINAL for outcome in outcomes):
        return True
    return sum(outcome in RETRIED_ONCE for outcome in outcomes) >= 2
