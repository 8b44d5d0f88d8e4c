"""The foreman: serves the Tune trials one after the other, each on a session of its key, and commits what comes back.

It carries out what `run.failures` decides. Runs in one thread of the driver, which is the only one that writes to the
run while the sweep is going. Caller: `run.sweep`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rtxscale.devices.inventory import Inventory
from rtxscale.errors import RunError
from rtxscale.plan.feasibility import what_would_fit
from rtxscale.plan.model import Placement, Plan, PlannedSession
from rtxscale.rank.channel import Order
from rtxscale.results.outcomes import Outcome
from rtxscale.results.write import RunWriter
from rtxscale.run.agenda import Agenda, Todo, needs
from rtxscale.run.crew import Crew
from rtxscale.run.failures import TrialEnd, Verdict, deadline_s, judge, turned_away
from rtxscale.run.history import History
from rtxscale.run.ledger import Ledger
from rtxscale.run.patience import COLD_S, Patience
from rtxscale.run.pool import Pool
from rtxscale.run.progress import Board
from rtxscale.run.ray_setup import ray
from rtxscale.run.session import Session, SessionFailed
from rtxscale.run.signals import Interruption
from rtxscale.run.start import new_session
from rtxscale.run.trial_rows import (
    Served,
    misplaced,
    rank_tables,
    tag_telemetry,
    trial_row,
    trials_table,
    with_directory,
    with_notes,
    with_placement,
)
from rtxscale.spec.cell import Cell

START_ATTEMPTS = 2
POLL_S = 0.5


@dataclass(frozen=True, kw_only=True)
class Site:
    """What the foreman works with; made once per sweep."""

    plan: Plan
    inventory: Inventory
    hosts: Mapping[str, Sequence[Mapping[str, str]]]
    writer: RunWriter
    crew: Crew
    agenda: Agenda
    board: Board
    interruption: Interruption
    deadline_floor_s: float
    examined: Sequence[Mapping[str, str]] = ()
    """What the doctor found before the sweep, as rows of the environment table."""


@dataclass(kw_only=True)
class Live:
    """The session that is up."""

    session: Session
    planned: PlannedSession
    placement: Placement
    start_s: float
    served: int = 0


@dataclass(kw_only=True)
class Tally:
    """What the foreman can say at the end: outcomes, and seconds outside measurement of warm trials."""

    outcomes: Counter[str] = field(default_factory=Counter)
    warm_outside_s: list[float] = field(default_factory=list)
    warm_build_s: list[float] = field(default_factory=list)
    """Of these trials: how much of that was building."""
    session_starts_s: list[float] = field(default_factory=list)

    def add(self, row: Mapping[str, Any], *, warm: bool) -> None:
        """Count a trial by its row; `warm`: its session had served one before."""
        self.outcomes[row["outcome"]] += 1
        if warm and row["outcome"] == Outcome.OK and row["outside_s"] is not None:
            self.warm_outside_s.append(row["outside_s"])
            self.warm_build_s.append(row.get("build_s") or 0.0)


class Foreman:
    """Serves one sweep."""

    def __init__(self, site: Site) -> None:
        """No session is up yet."""
        self._site = site
        self._live: Live | None = None
        self._history = History(site.writer.rows("trials"))
        uuids = [gpu.uuid for gpu in site.inventory.gpus] if site.plan.device == "cuda" else []
        self._patience = Patience(site.board, site.interruption)
        self._ledger = Ledger(site.writer, self._patience, hosts=site.hosts, examined=site.examined)
        self._pool = Pool(uuids, site.crew.watchers.occupancy, site.board.note, site.interruption)
        self.tally = Tally()

    def serve(self, tune_is_done: Callable[[], bool]) -> None:
        """Serve requests until Tune has none left, then end the session.

        Raises:
            RunError: a session does not start, or something of it survives.
            ResultsError: rows cannot be written, or this is not the environment the run was measured in.
        """
        hub = self._site.crew.hub
        try:
            first = self._site.agenda.upcoming
            if first and not self._pool.held_by(wait=False):
                self._session_for(first)  # while Tune is still starting
            while not self._site.interruption.name:
                name = ray.get(hub.next_request.remote(POLL_S))
                if name is not None:
                    outcome = self._measure(self._site.agenda.given[name])
                    ray.get(hub.resolve.remote(*name, outcome))
                elif tune_is_done():
                    break
        finally:
            self._end_session(force=bool(self._site.interruption.name))

    def _measure(self, todo: Todo) -> Outcome:
        """Run one attempt on a session of its key, commit its rows, and arrange what follows from its outcome."""
        site = self._site
        if held_by := self._pool.held_by():
            return Outcome.CANCELLED if site.interruption.name else self._turn_away(todo, held_by)
        live = None if self._is_stranded(todo) else self._session_for(todo)
        if live is None:
            return Outcome.CANCELLED
        order = Order(trial=todo.planned.trial, trial_id=todo.planned.trial_id, attempt=todo.attempt)
        site.board.trial_started(todo)
        site.crew.watchers.show_trial(todo.planned.trial_id)
        started_ns = time.time_ns()
        known_s = self._history.longest_s(order.trial.cell)
        end = live.session.run(order, deadline_s(order.trial.cell, floor_s=site.deadline_floor_s, known_s=known_s))
        ended_ns = time.time_ns()
        end = replace(end, interrupted=bool(site.interruption.name and end.silent))
        verdict = judge(
            end,
            earlier=todo.earlier,
            first_of_session=live.served == 0,
            strangers=self._pool.visitors(),
            would_fit=self._would_fit(order.trial.cell, live.placement, end),
            misplaced=misplaced(live.placement, end.reports),
        )
        row = self._commit(todo, live, end, verdict, (started_ns, ended_ns))
        live.served += 1
        if verdict.retry:
            site.agenda.retry(todo, verdict.outcome)
        if aside := site.agenda.ended(todo, verdict.outcome):
            site.board.note(
                f"quarantine: this cell has ended its workers twice in a row; its other trials are set aside ({aside})"
            )
        if verdict.session_over:
            self._end_session(force=True)
        elif self._patience.taken_pause_s() > COLD_S:
            self._end_session()
        site.board.trial_ended(todo, row)
        return verdict.outcome

    def _turn_away(self, todo: Todo, held_by: str) -> Outcome:
        """Commit an attempt that was not begun, because others are on the GPUs."""
        site = self._site
        verdict = turned_away(held_by, earlier=todo.earlier)
        now = time.time_ns()
        row = self._commit(todo, None, TrialEnd(world=0, reports={}), verdict, (now, now))
        if verdict.retry:
            site.agenda.retry(todo, verdict.outcome)
        site.board.trial_ended(todo, row)
        return verdict.outcome

    def _would_fit(self, cell: Cell, placement: Placement, end: TrialEnd) -> str:
        """What to change about a cell whose trial ran out of memory; empty for others."""
        if all(report.outcome != Outcome.OOM for report in end.reports.values()):
            return ""
        sizes = [gpu.memory_mib for gpu in self._site.inventory.gpus if gpu.uuid in placement.gpu_uuids]
        known = [size for size in sizes if size is not None]
        return what_would_fit(cell, min(known, default=None), self._history.peaks_mib(cell), self._site.plan.catalogue)

    def _commit(
        self, todo: Todo, live: Live | None, end: TrialEnd, verdict: Verdict, span_ns: tuple[int, int]
    ) -> dict[str, Any]:
        """Write the attempt's rows, all or none; returns its row of the trials table."""
        site, session_id = self._site, live.session.session_id if live else None
        samples = tag_telemetry(site.crew.watchers.drain(), session_id=session_id, trial=todo.name, span_ns=span_ns)
        served = Served(
            run_id=site.writer.run_id,
            sweep_id=site.plan.sweep_id,
            study=site.plan.sweep.study,
            environment_id=self._ledger.environment_id or None,
            session_id=session_id,
            session_start_s=live.start_s if live and live.served == 0 else None,
            position=live.served if live else None,
            started_ns=span_ns[0],
            ended_ns=span_ns[1],
            placement=live.placement if live else None,
            device=site.plan.device,
            wall_source=site.plan.sweep.wall_power.source if site.plan.sweep.wall_power else "",
        )
        row = trial_row(todo, served, verdict, end.reports, samples)
        cell = todo.planned.trial.cell
        measured = with_directory(rank_tables(end.reports), todo.name, cell.workload, site.crew.directory)
        if live is not None:
            measured = with_placement(measured, todo.name, live.placement, end.reports)
        tables = with_notes(measured, todo.name, site.board.taken_notes())
        self._ledger.commit(tables | {"trials": trials_table(row), "telemetry": samples})
        self.tally.add(row, warm=live is not None and live.served > 0)
        self._history.add(row)
        return row

    def _session_for(self, todo: Todo) -> Live | None:
        """The session that serves this trial: the one that is up if it is its own, else a new one.

        None when the user interrupts the start, or a node that it needs is lost.
        """
        if self._live and self._live.planned == todo.session and not (todo.fresh and self._live.served):
            return self._live
        self._end_session()
        problem = ""
        for _ in range(START_ATTEMPTS):
            try:
                return self._start_session(todo.session)
            except SessionFailed as failure:
                if self._site.interruption.name:
                    return None
                problem = str(failure)
                self._site.board.note(f"a session did not start: {problem}")
                if self._is_stranded(todo):
                    return None
        raise RunError(
            f"a session of {todo.session.key.gpus} workers did not start in {START_ATTEMPTS} attempts: {problem}; what "
            "is finished is kept: run the same command again when the cluster is well"
        )

    def _start_session(self, planned: PlannedSession) -> Live:
        """Start a session for the key, and see that the environment is still the one this run is measured in."""
        site = self._site
        site.board.session_started(planned)
        self._pool.session_starts()
        began = time.monotonic()
        session = new_session(planned, site.plan, site.crew)
        registered = session.start()
        live = Live(session=session, planned=planned, placement=planned.placement, start_s=time.monotonic() - began)
        self._live = live
        self.tally.session_starts_s.append(live.start_s)
        self._ledger.check_environment(registered)
        site.crew.watchers.set_session(session.session_id, [(place.node, place.pid) for place in registered])
        self._ledger.hold("telemetry", tag_telemetry(site.crew.watchers.drain(), session_id=None))
        return live

    def _is_stranded(self, todo: Todo) -> bool:
        """Whether a trial needs a node that is gone by now; all that do are set aside, and the rest goes on."""
        lost = self._site.crew.watchers.lost
        if not needs(todo, lost):
            return False
        count = self._site.agenda.lose(lost, todo)
        self._site.board.note(f"{count} trials need {', '.join(lost)}: set aside; the same command runs them later")
        return True

    def _end_session(self, *, force: bool = False) -> None:
        """Close the session that is up, see that nothing of it is left, and merge its small files."""
        live, self._live = self._live, None
        if live is None:
            return
        if force:
            live.session.reap()
        else:
            live.session.close()
        self._ledger.compact(live.session.session_id)
        if not self._site.interruption.name:
            self._pool.session_ended()
