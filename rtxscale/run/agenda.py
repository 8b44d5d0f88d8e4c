"""The trials still to run, in order: what is next, what is tried again, and when to stop.

Plain data behind two small methods, so that it can be pickled with Tune's searcher and shared by Tune's thread (which
asks for the next) and the foreman's (which puts a failed one back). Callers: `run.tune_driver`, `run.foreman`,
`run.sweep`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from rtxscale.plan.model import Plan, PlannedSession, PlannedTrial
from rtxscale.results.outcomes import Outcome, is_finished


@dataclass(frozen=True, kw_only=True)
class Todo:
    """One attempt at one planned trial; `earlier` holds the outcomes of its earlier attempts."""

    session: PlannedSession
    planned: PlannedTrial
    earlier: tuple[str, ...] = ()

    @property
    def attempt(self) -> int:
        """1 for the first try."""
        return len(self.earlier) + 1

    @property
    def fresh(self) -> bool:
        """Whether it needs worker processes of its own: it broke a group before, or seemed out of memory in one."""
        return any(outcome in (Outcome.CRASHED, Outcome.HANG) for outcome in self.earlier)

    @property
    def name(self) -> tuple[str, int]:
        """Trial id and attempt: what the hub and the tables know it by."""
        return self.planned.trial_id, self.attempt


def remaining(plan: Plan, attempts: Mapping[str, list[str]]) -> list[Todo]:
    """Every planned trial without a last word yet, in planned order, numbered after its earlier attempts."""
    return [
        Todo(session=session, planned=planned, earlier=tuple(attempts.get(planned.trial_id, [])))
        for session in plan.sessions
        for planned in session.trials
        if not is_finished(attempts.get(planned.trial_id, []))
    ]


class Agenda:
    """The todo list of one sweep."""

    def __init__(self, todos: list[Todo], *, stop_at: float | None = None) -> None:
        """`stop_at` is a time of `time.monotonic`; from then on there is no next trial."""
        self._waiting = list(todos)
        self._stop_at = stop_at
        self.given: dict[tuple[str, int], Todo] = {}
        self.stopped: str | None = None

    @property
    def waiting(self) -> int:
        """Trials not handed out yet."""
        return len(self._waiting)

    @property
    def upcoming(self) -> Todo | None:
        """What would be next, without taking it."""
        return self._waiting[0] if self._waiting and not self.stopped and not self._is_time_up() else None

    def next(self) -> Todo | None:
        """The next trial, or None when there is none left or the sweep has been stopped."""
        if self._waiting and self._is_time_up():
            self.stop("limit")
        if self.stopped or not self._waiting:
            return None
        todo = self._waiting.pop(0)
        self.given[todo.name] = todo
        return todo

    def retry(self, todo: Todo, outcome: str) -> None:
        """Put a further attempt behind the last waiting trial of its session, or at once if there is none."""
        again = replace(todo, earlier=(*todo.earlier, outcome))
        places = [index for index, other in enumerate(self._waiting) if other.session == todo.session]
        self._waiting.insert(places[-1] + 1 if places else 0, again)

    def _is_time_up(self) -> bool:
        return self._stop_at is not None and time.monotonic() >= self._stop_at

    def stop(self, reason: str) -> None:
        """From now on there is no next trial; the first reason stays."""
        self.stopped = self.stopped or reason
