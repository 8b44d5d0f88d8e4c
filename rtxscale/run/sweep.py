"""A whole sweep: connect, look, plan, have Tune run what is missing, keep every row, leave nothing behind.

The order matters: the results directory is opened first, so that a full disk or a locked run is found before anything
starts; the plan needs the cluster's inventory; the environment is checked when the first session's ranks have spoken.
Not here: analysis and reports, which `cli.sweep` adds.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from rtxscale.devices.inventory import Inventory
from rtxscale.errors import RtxscaleError, RunError
from rtxscale.plan.expand import make_plan
from rtxscale.plan.model import Plan
from rtxscale.results.live import clear_live, write_live
from rtxscale.results.object_store import hide_credentials
from rtxscale.results.outcomes import FAILED, is_finished
from rtxscale.results.write import RunWriter
from rtxscale.run.agenda import Agenda, Todo, remaining
from rtxscale.run.cluster import Connection, connected
from rtxscale.run.crew import Crew, check_workloads, crew_of
from rtxscale.run.environment import inventory_rows
from rtxscale.run.examination import preflight_nodes
from rtxscale.run.foreman import Foreman, Site, Tally
from rtxscale.run.limits import spent_s, stop_times
from rtxscale.run.nodes import await_nodes
from rtxscale.run.progress import Board
from rtxscale.run.pulse import Pulse
from rtxscale.run.quarantine import kills_so_far, quarantine_words
from rtxscale.run.ray_setup import ray
from rtxscale.run.roster import Roster, member_rows, recorded, roster_of
from rtxscale.run.signals import Interruption
from rtxscale.run.supervision import Supervision
from rtxscale.run.watchers import Watchers
from rtxscale.spec.printable import printable
from rtxscale.spec.sweep import Sweep

DEADLINE_FLOOR_S = 300.0
MANY = 2


@dataclass(frozen=True, kw_only=True)
class SweepRequest:
    """What to run and where.

    `address` is host:port of a cluster that runs already, None for one of our own. `deadline_floor_s` is the least
    time a silent trial gets before it counts as hung. `run_dir` names the one run to continue, None the newest of the
    sweep; `plan` says what is to run on an inventory. `directory` is the sweep file's, for workloads that are scripts.
    """

    sweep: Sweep
    sweep_text: str
    results_root: Path
    address: str | None = None
    fresh: bool = False
    directory: Path | None = None
    run_dir: Path | None = None
    plan: Callable[[Sweep, Inventory], Plan] = make_plan
    limit_minutes: float | None = None
    deadline_floor_s: float = DEADLINE_FLOOR_S
    examined: tuple[Mapping[str, str], ...] = ()
    """What the doctor found before the sweep, as rows of the environment table."""
    ignore: tuple[str, ...] | None = None
    """The doctor's rules whose errors stop nothing; None: it does not look at the nodes of a cluster."""
    stream: TextIO = field(default_factory=lambda: sys.stdout)


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """What became of it. `interrupted` is `limit`, `max_hours`, `stop`, the name of a signal, or None.

    `quarantined` trials were not run, since their cells had ended their workers again and again, and `stranded` ones
    since a node that they need was lost.
    """

    run_dir: Path
    total: int
    finished: int
    interrupted: str | None = None
    quarantined: int = 0
    stranded: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    endings: Mapping[str, int] = field(default_factory=dict)
    """Last outcome of each planned trial that is finished, whoever measured it, and how many have it."""
    outside_median_s: float | None = None
    """Median over this call's warm trials of the column `outside_s`."""
    build_median_s: float | None = None
    """Median over the same trials of `build_s`, which is a part of it."""
    session_start_median_s: float | None = None

    @property
    def failed(self) -> int:
        """Finished trials that have neither a number nor a finding."""
        return sum(count for outcome, count in self.endings.items() if outcome in FAILED)


@dataclass(kw_only=True)
class Course:
    """How far the sweep has come, for whoever has to say so when it is cut short."""

    began: float
    plan: Plan | None = None
    tally: Tally = field(default_factory=Tally)
    quarantined: int = 0
    stranded: int = 0


def execute(request: SweepRequest) -> SweepResult:
    """Run what is missing of the sweep; rows are on disk as soon as their trial has ended.

    Raises:
        PlanError: nothing of the sweep can run here.
        ResultsError: the results cannot be written, or were measured in another environment.
        RunError: no cluster, or a session that does not start.
    """
    course = Course(began=time.monotonic())
    interruption = Interruption()
    with writer_of(request) as writer:
        interruption.arm()
        clear_live(writer.run_dir)
        hide_credentials()
        for line in (*quarantine_words(writer.rows("trials")), f"starting: {where(request.address)}"):
            print(printable(line), file=request.stream, flush=True)
        try:
            metadata = {"rtxscale_sweep": request.sweep.name, "rtxscale_run": writer.run_id}
            with connected(request.address, metadata, partial(print, file=request.stream, flush=True)) as connection:
                interruption.arm()
                return _run(request, writer, interruption, connection, course)
        except RtxscaleError:
            writer.discard_if_empty()
            raise
        except (KeyboardInterrupt, SystemExit):  # Ray's own SIGTERM handler, while it connects, exits
            return _result(course, writer, interruption.name or "SIGTERM")
        finally:
            interruption.disarm()


def writer_of(request: SweepRequest) -> RunWriter:
    """The run that the rows go into, locked.

    Raises:
        ResultsError: it cannot be written.
    """
    if request.run_dir is not None:
        return RunWriter.reopen(request.run_dir)
    return RunWriter.open(request.results_root, request.sweep, request.sweep_text, fresh=request.fresh)


def _run(
    request: SweepRequest, writer: RunWriter, interruption: Interruption, connection: Connection, course: Course
) -> SweepResult:
    """Plan on the connected cluster and run what is missing."""
    known = recorded(writer.rows("environment"))
    if not connection.ours:
        await_nodes(len(known), partial(print, file=request.stream, flush=True))
    crew = crew_of(request.sweep, request.directory, run_id=writer.run_id, scratch=connection.scratch)
    try:
        roster = roster_of(crew.watchers.look(), known)
        site = _site(request, writer, interruption, crew, roster, course.began)
        course.plan = site.plan
        _work(site, roster, connection.pulse, course)
        return _result(course, writer, interruption.name or site.agenda.stopped)
    except ray.exceptions.RayError as error:
        raise connection.pulse.error() if connection.pulse.lost_with() else _as_ours(error) from error
    finally:
        if not connection.pulse.lost:
            crew.dismiss()


def _site(
    request: SweepRequest, writer: RunWriter, interruption: Interruption, crew: Crew, roster: Roster, began: float
) -> Site:
    """The plan for the run's nodes, and what is left to do of it."""
    crew.watchers.rename(roster.names, roster.missing)
    plan = request.plan(request.sweep, roster.inventory)
    examined = (*request.examined, *nodes_examined(request, crew.watchers))
    check_workloads(plan, crew)
    todos = remaining(plan, writer.attempts())
    agenda = _agenda(request, todos, writer.rows("trials"), began)
    agenda.lose(roster.missing)
    done, expected_s = len(plan.trials) - len(todos), plan.estimate.wall_s / max(len(plan.trials), 1)
    return Site(
        plan=plan,
        inventory=plan.pool,
        hosts=roster.hosts,
        writer=writer,
        crew=crew,
        agenda=agenda,
        board=Board(request.stream, total=len(plan.trials), finished=done, expected_trial_s=expected_s),
        interruption=interruption,
        deadline_floor_s=request.deadline_floor_s,
        examined=(
            *examined,
            *inventory_rows(roster.inventory, plan.pool),
            *member_rows(roster.inventory.nodes),
        ),
    )


def _work(site: Site, roster: Roster, pulse: Pulse, course: Course) -> None:
    """Have what is left to do done."""
    agenda, board = site.agenda, site.board
    site.crew.watchers.note = board.note
    foreman = Foreman(site)
    course.tally = foreman.tally
    with board:
        board.note(_opening(site))
        for remark in roster.remarks():
            board.note(remark)
        if agenda.stranded:
            board.note(f"{len(agenda.stranded)} trials need {', '.join(roster.missing)}: set aside")
        if agenda.waiting:
            Supervision(site, foreman, pulse).run()
    write_live(site.writer.run_dir, replace(board.state(), current="ending"))
    course.quarantined, course.stranded = len(agenda.quarantined), len(agenda.stranded)


def _agenda(request: SweepRequest, todos: list[Todo], rows: list[dict[str, Any]], began: float) -> Agenda:
    """What is left to do, until when, without the cells that have proved deadly."""
    limits = stop_times(
        began,
        limit_minutes=request.limit_minutes,
        max_hours=request.sweep.max_hours,
        spent_s=spent_s(rows),
    )
    return Agenda(todos, limits=limits, kills=kills_so_far(rows))


def where(address: str | None) -> str:
    """Where the sweep is going to run.

    >>> where(None), where("10.0.0.1:6379")
    ('a Ray cluster of our own on this host', 'the Ray cluster at 10.0.0.1:6379')
    """
    return f"the Ray cluster at {address}" if address else "a Ray cluster of our own on this host"


def nodes_examined(request: SweepRequest, watchers: Watchers) -> tuple[Mapping[str, str], ...]:
    """What the doctor finds on the nodes of a cluster of several and between them; one machine was looked at before.

    Raises:
        RunError: it finds an error that is not ignored.
    """
    if request.ignore is None or len(watchers.names) < MANY:
        return ()
    on_cpu = request.sweep.hardware.device == "cpu"
    return preflight_nodes(request.results_root, request.ignore, on_cpu=on_cpu, names=watchers.names)


def _as_ours(error: ray.exceptions.RayError) -> RunError:
    """One of Ray's own errors: the rows are not lost."""
    return RunError(
        f"lost the cluster or an actor on it ({type(error).__name__}: {' '.join(str(error).split())[:300]}); "
        "what is finished is kept: run the same command again to continue"
    )


def _opening(site: Site) -> str:
    """What is about to happen, in one paragraph."""
    plan, agenda = site.plan, site.agenda
    done = len(plan.trials) - agenda.waiting - len(agenda.stranded) - len(agenda.quarantined)
    lines = [
        f"{plan.sweep.name} on {plan.pool.describe()}: {len(plan.trials)} trials in {len(plan.sessions)} sessions"
        + (f", {done} already finished" if done else ""),
        f"results: {site.writer.run_dir}",
        *(f"note: {note}" for note in plan.notes),
    ]
    if plan.dropped:
        reasons = dict.fromkeys(dropped.reason for dropped in plan.dropped)
        lines.append(f"dropped {len(plan.dropped)} points: {'; '.join(reasons)}")
    return "\n".join(lines)


def _result(course: Course, writer: RunWriter, interrupted: str | None) -> SweepResult:
    """What became of the sweep as far as it came."""
    attempts, tally = writer.attempts(), course.tally
    planned = course.plan.trials if course.plan else ()
    ended = [tried for trial in planned if is_finished(tried := attempts.get(trial.trial_id, []))]
    finished = len(ended)
    return SweepResult(
        run_dir=writer.run_dir,
        total=len(planned),
        finished=finished,
        interrupted=interrupted if not planned or finished < len(planned) else None,
        quarantined=course.quarantined,
        stranded=course.stranded,
        outcomes=dict(tally.outcomes),
        endings=dict(Counter(tried[-1] for tried in ended)),
        outside_median_s=_median_s(tally.warm_outside_s),
        build_median_s=_median_s(tally.warm_build_s),
        session_start_median_s=_median_s(tally.session_starts_s),
    )


def _median_s(seconds: Sequence[float]) -> float | None:
    return statistics.median(seconds) if seconds else None
