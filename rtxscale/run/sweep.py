"""A whole sweep: connect, look, plan, have Tune run what is missing, keep every row, leave nothing behind.

The order matters: the results directory is opened first, so that a full disk or a locked run is found before anything
starts; the plan needs the cluster's inventory; the environment is checked when the first session's ranks have spoken.
Not here: analysis and reports, which `cli.sweep` adds.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from rtxscale.devices.inventory import Inventory
from rtxscale.errors import PlanError, RtxscaleError, RunError
from rtxscale.plan.expand import make_plan
from rtxscale.plan.model import Plan
from rtxscale.results.live import clear_live, stop_wish, write_live
from rtxscale.results.object_store import hide_credentials
from rtxscale.results.outcomes import FAILED, is_finished
from rtxscale.results.write import RunWriter
from rtxscale.run.agenda import Agenda, Todo, kills_so_far, remaining
from rtxscale.run.cluster import connected, hub_name
from rtxscale.run.environment import inventory_rows
from rtxscale.run.examination import preflight_nodes
from rtxscale.run.foreman import Foreman, Site, Tally
from rtxscale.run.hub import Hub
from rtxscale.run.limits import spent_s, stop_times
from rtxscale.run.nodes import beside_driver
from rtxscale.run.progress import Board
from rtxscale.run.ray_setup import ray
from rtxscale.run.session import Crew
from rtxscale.run.signals import Interruption
from rtxscale.run.tune_driver import run_trials
from rtxscale.run.watchers import Watchers
from rtxscale.spec.sweep import Sweep
from rtxscale.spec.workload import SimulatedWorkload
from rtxscale.telemetry.meters import open_meter
from rtxscale.telemetry.wall_meter import WallMeter

DEADLINE_FLOOR_S = 300.0
TICK_S = 0.1
LOOK_PERIOD_S = 1.0
STOPPED = "stop"
"""Why a sweep ended that another terminal has asked to."""
THREADS_END_S = 30.0
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
    """Median over this call's warm trials of the seconds outside soak, warm-up, window and collectives."""
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
        print(f"starting: {where(request.address)}", file=request.stream, flush=True)
        try:
            metadata = {"rtxscale_sweep": request.sweep.name, "rtxscale_run": writer.run_id}
            with connected(request.address, metadata, partial(print, file=request.stream, flush=True)) as connection:
                interruption.arm()
                return _run(request, writer, interruption, connection.scratch, course)
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
    request: SweepRequest, writer: RunWriter, interruption: Interruption, scratch: Path, course: Course
) -> SweepResult:
    """Plan on the connected cluster and run what is missing."""
    crew = _crew(request, writer.run_id, scratch)
    try:
        inventory, hosts = crew.watchers.inventory()
        plan = request.plan(request.sweep, inventory)
        course.plan = plan
        examined = (*request.examined, *nodes_examined(request, inventory))
        check_workloads(plan, crew)
        todos = remaining(plan, writer.attempts())
        agenda = _agenda(request, todos, writer.rows("trials"), course.began)
        done, expected_s = len(plan.trials) - len(todos), plan.estimate.wall_s / max(len(plan.trials), 1)
        site = Site(
            plan=plan,
            inventory=plan.pool,
            hosts=hosts,
            writer=writer,
            crew=crew,
            agenda=agenda,
            board=Board(request.stream, total=len(plan.trials), finished=done, expected_trial_s=expected_s),
            interruption=interruption,
            deadline_floor_s=request.deadline_floor_s,
            examined=(*examined, *inventory_rows(inventory, plan.pool)),
        )
        crew.watchers.note = site.board.note
        foreman = Foreman(site)
        course.tally = foreman.tally
        with site.board:
            site.board.note(_opening(plan, plan.pool.describe(), len(todos), writer.run_dir))
            if todos:
                _Threads(site, foreman).run()
        write_live(writer.run_dir, replace(site.board.state(), current="ending"))
        course.quarantined, course.stranded = len(agenda.quarantined), len(agenda.stranded)
        return _result(course, writer, interruption.name or agenda.stopped)
    finally:
        crew.dismiss()


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


def nodes_examined(request: SweepRequest, inventory: Inventory) -> tuple[Mapping[str, str], ...]:
    """What the doctor finds on the nodes of a cluster of several and between them; one machine was looked at before.

    Raises:
        RunError: it finds an error that is not ignored.
    """
    if request.ignore is None or len(inventory.nodes) < MANY:
        return ()
    return preflight_nodes(request.results_root, request.ignore, on_cpu=request.sweep.hardware.device == "cpu")


def check_workloads(plan: Plan, crew: Crew) -> None:
    """Ask the host, which has the libraries, whether every workload can be built; a simulated one needs nothing.

    Raises:
        PlanError: one cannot, such as a model that does not exist.
    """
    workloads = tuple(dict.fromkeys(planned.trial.cell.workload for planned in plan.trials))
    if isinstance(plan.sweep.workload, SimulatedWorkload):
        return
    if wrong := ray.get(crew.warm_host().complaints.remote(workloads, crew.directory)):
        raise PlanError("; ".join(wrong))


def _crew(request: SweepRequest, run_id: str, scratch: Path) -> Crew:
    """The sweep's actors; the host of sessions warms up while the cluster is looked at."""
    meter = meter_of(request)
    placed = {"num_cpus": 0, "scheduling_strategy": beside_driver()}
    hub = ray.remote(Hub).options(name=hub_name(run_id), max_concurrency=1000, **placed).remote()
    watchers = Watchers.start(run_id=run_id, sweep=request.sweep.name)
    watchers.meter = meter
    directory = "" if request.directory is None else str(request.directory.absolute())
    crew = Crew(hub=hub, watchers=watchers, scratch=scratch, directory=directory)
    if request.sweep.launcher == "ray" and not isinstance(request.sweep.workload, SimulatedWorkload):
        crew.warm_host()
    return crew


def meter_of(request: SweepRequest) -> WallMeter | None:
    """The power meter at the wall that the sweep names, polling; None where it names none.

    Raises:
        BadInput: what it names cannot be.
        RunError: it cannot be read.
    """
    wanted = request.sweep.wall_power
    if wanted is None:
        return None
    meter = WallMeter(open_meter(wanted, request.directory or Path.cwd()), wanted.period_s)
    meter.start()
    return meter


class _Threads:
    """Tune and the foreman in a thread each; the main thread watches for signals and redraws the board."""

    def __init__(self, site: Site, foreman: Foreman) -> None:
        self._site, self._foreman = site, foreman
        self._errors: list[BaseException] = []
        name, scratch = hub_name(site.writer.run_id), site.crew.scratch
        self._tune = self._thread(lambda: run_trials(site.agenda, name, scratch))
        self._serve = self._thread(lambda: foreman.serve(lambda: not self._tune.is_alive()))

    def run(self) -> None:
        """Until both have ended; the first error of either is raised.

        Raises:
            RunError: Tune or a session failed.
            ResultsError: rows could not be written.
        """
        interruption = self._site.interruption
        interruption.graceful = True
        self._tune.start()
        self._serve.start()
        last_look = 0.0
        shut = False
        while self._serve.is_alive() and not (shut and self._errors):
            self._serve.join(TICK_S)
            if (interruption.name or self._errors) and not shut:
                shut = self._shut(interruption.name or "error")
                if interruption.name:
                    self._site.board.note(f"{interruption.name}: ending the sweep; what is finished is kept")
            if time.monotonic() - last_look > LOOK_PERIOD_S:
                last_look = time.monotonic()
                self._look_around()
        if not shut:
            self._shut("error" if self._errors else "done")
        for thread in (self._serve, self._tune):
            thread.join(THREADS_END_S)
        if self._errors:
            raise self._translated(self._errors[0])

    def _look_around(self) -> None:
        """Tell this terminal and others how it goes, and hear what they wish.

        A lost telemetry actor is the foreman's to report.
        """
        site = self._site
        with contextlib.suppress(RunError):
            site.board.show_readings(site.crew.watchers.readings())
        state = site.board.state()
        write_live(site.writer.run_dir, state)
        site.crew.hub.post.remote(state)
        wish = stop_wish(site.writer.run_dir)
        if wish == "now":
            site.interruption.ask(STOPPED)
        elif wish == "trial" and not site.agenda.stopped:
            site.agenda.stop(STOPPED)
            site.board.note("asked to stop: ending after this trial")

    def _shut(self, reason: str) -> bool:
        """No further trial, and an end to every wait."""
        if reason != "done":
            self._site.agenda.stop(reason)
        self._site.crew.hub.shut.remote()
        return True

    def _thread(self, work: Any) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:  # raised again in the main thread
                self._errors.append(error)

        return threading.Thread(target=guarded, daemon=True)

    @staticmethod
    def _translated(error: BaseException) -> BaseException:
        """Ray's own errors as ours: the cluster is lost, the rows are not."""
        if isinstance(error, ray.exceptions.RayError):
            return RunError(
                f"lost the cluster or an actor on it ({type(error).__name__}: {' '.join(str(error).split())[:300]}); "
                "what is finished is kept: run the same command again to continue"
            )
        return error


def _opening(plan: Plan, machine: str, todo: int, run_dir: Path) -> str:
    """What is about to happen, in one paragraph."""
    done = len(plan.trials) - todo
    lines = [
        f"{plan.sweep.name} on {machine}: {len(plan.trials)} trials in {len(plan.sessions)} sessions"
        + (f", {done} already finished" if done else ""),
        f"results: {run_dir}",
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
        outside_median_s=statistics.median(tally.warm_outside_s) if tally.warm_outside_s else None,
        session_start_median_s=statistics.median(tally.session_starts_s) if tally.session_starts_s else None,
    )
