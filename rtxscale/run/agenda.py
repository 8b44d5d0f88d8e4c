"""The trials still to run, in order: what is next, what is tried again, and when to stop.

Plain data behind two small methods, so that it can be pickled with Tune's searcher and shared by Tune's thread (which
asks for the next) and the foreman's (which puts a failed one back). Callers: `run.tune_driver`, `run.foreman`,
`run.sweep`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from rtxscale.plan.model import Plan, PlannedSession, PlannedTrial
from rtxscale.results.outcomes import Outcome, is_finished
from rtxscale.run.quarantine import KILLING, SAYS_NOTHING, deadly


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


def needs(todo: Todo, nodes: Collection[str]) -> bool:
    """Whether any worker of a trial's session runs on one of these nodes."""
    return bool(set(todo.session.placement.nodes) & set(nodes))


class Agenda:
    """The todo list of one sweep."""

    def __init__(
        self, todos: list[Todo], *, limits: Mapping[str, float] | None = None, kills: Mapping[str, int] | None = None
    ) -> None:
        """`limits` are reasons to stop with times of `time.monotonic`; from then on there is no next trial.

        `kills` says how often in a row each cell has ended its workers before.
        """
        self._waiting = list(todos)
        self._limits = dict(limits or {})
        self._kills = Counter(kills or {})
        self.given: dict[tuple[str, int], Todo] = {}
        self.quarantined: list[Todo] = []
        self.stranded: list[Todo] = []
        """Trials that need a node that was lost; they have no row."""
        self.stopped: str | None = None
        self._set_aside()

    @property
    def waiting(self) -> int:
        """Trials not handed out yet."""
        return len(self._waiting)

    @property
    def upcoming(self) -> Todo | None:
        """What would be next, without taking it."""
        return self._waiting[0] if self._waiting and not self.stopped and not self._limit_reached() else None

    def next(self) -> Todo | None:
        """The next trial, or None when there is none left or the sweep has been stopped."""
        if self._waiting and (reason := self._limit_reached()):
            self.stop(reason)
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

    def ended(self, todo: Todo, outcome: str) -> int:
        """Hear how a trial ended; returns how many waiting trials of its cell are set aside for it."""
        cell_id = todo.planned.trial.cell.cell_id
        if outcome in KILLING:
            self._kills[cell_id] += 1
        elif outcome not in SAYS_NOTHING:
            self._kills[cell_id] = 0
        return self._set_aside()

    def lose(self, nodes: Collection[str], todo: Todo | None = None) -> int:
        """Set the trials aside that need one of these nodes, which are lost; returns how many.

        They are the waiting ones, and `todo`, which has just been given out.
        """
        gone = [*([todo] if todo else []), *(other for other in self._waiting if needs(other, nodes))]
        self._waiting = [todo for todo in self._waiting if not needs(todo, nodes)]
        self.stranded += gone
        return len(gone)

    def stop(self, reason: str) -> None:
        """From now on there is no next trial; the first reason stays."""
        self.stopped = self.stopped or reason

    def _limit_reached(self) -> str | None:
        """The reason of the first limit that has passed."""
        passed = {at: reason for reason, at in self._limits.items() if time.monotonic() >= at}
        return passed[min(passed)] if passed else None

    def _set_aside(self) -> int:
        """Take the waiting trials of cells in quarantine off the list."""
        cells = deadly(self._kills)
        if not cells:
            return 0
        aside = [todo for todo in self._waiting if todo.planned.trial.cell.cell_id in cells]
        self._waiting = [todo for todo in self._waiting if todo.planned.trial.cell.cell_id not in cells]
        self.quarantined += aside
        return len(aside)
