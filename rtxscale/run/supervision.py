"""Tune and the foreman at work in a thread each, and the main thread that looks after them.

The main thread hears signals and wishes, redraws the board, tells other terminals how it goes, and sees whether the
head node is still there. Caller: `run.sweep`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

from rtxscale.errors import RunError
from rtxscale.results.live import stop_wish, write_live
from rtxscale.run.cluster import hub_name
from rtxscale.run.foreman import Foreman, Site
from rtxscale.run.pulse import Pulse
from rtxscale.run.tune_driver import run_trials

TICK_S = 0.1
LOOK_PERIOD_S = 1.0
STOPPED = "stop"
"""Why a sweep ended that another terminal has asked to."""
THREADS_END_S = 30.0


class Supervision:
    """Of one sweep."""

    def __init__(self, site: Site, foreman: Foreman, pulse: Pulse) -> None:
        """Nothing runs yet."""
        self._site, self._pulse = site, pulse
        self._errors: list[BaseException] = []
        self._has_shut = False
        name, scratch = hub_name(site.writer.run_id), site.crew.scratch
        self._tune = self._thread(lambda: run_trials(site.agenda, name, scratch))
        self._serve = self._thread(lambda: foreman.serve(lambda: not self._tune.is_alive()))

    def run(self) -> None:
        """Until both threads have ended; the first error of either is raised.

        Raises:
            HeadLostError: the head node is gone.
            RunError: Tune or a session failed.
            ResultsError: rows could not be written.
            RayError: a call failed for a reason that only Ray knows.
        """
        self._site.interruption.graceful = True
        self._tune.start()
        self._serve.start()
        last_look = 0.0
        while self._serve.is_alive() and not (self._has_shut and self._errors):
            self._serve.join(TICK_S)
            if self._pulse.lost:
                raise self._pulse.error()
            self._shut_if_wished()
            if time.monotonic() - last_look > LOOK_PERIOD_S and not self._pulse.failing:
                last_look = time.monotonic()
                self._look_around()
        self._end()

    def _shut_if_wished(self) -> None:
        """Begin to end when the user has asked for it, or a thread has failed."""
        interruption = self._site.interruption
        if not self._has_shut and (interruption.name or self._errors):
            self._shut(interruption.name or "error")
            if interruption.name:
                self._site.board.note(f"{interruption.name}: ending the sweep; what is finished is kept")

    def _end(self) -> None:
        """Let the threads come to their end; raises as `run` does."""
        if self._errors and self._pulse.lost_with():
            raise self._pulse.error() from self._errors[0]
        if not self._has_shut:
            self._shut("error" if self._errors else "done")
        for thread in (self._serve, self._tune):
            thread.join(THREADS_END_S)
        if self._errors:
            raise self._errors[0]

    def _look_around(self) -> None:
        """Tell this terminal and others how it goes, and hear what they wish.

        A lost telemetry actor is the foreman's to report.
        """
        site = self._site
        with contextlib.suppress(RunError):
            site.board.show_readings(site.crew.watchers.readings())
        site.crew.watchers.relieve()
        state = site.board.state()
        write_live(site.writer.run_dir, state)
        site.crew.hub.post.remote(state)
        wish = stop_wish(site.writer.run_dir)
        if wish == "now":
            site.interruption.ask(STOPPED)
        elif wish == "trial" and not site.agenda.stopped:
            site.agenda.stop(STOPPED)
            site.board.note("asked to stop: ending after this trial")

    def _shut(self, reason: str) -> None:
        """No further trial, and an end to every wait."""
        if reason != "done":
            self._site.agenda.stop(reason)
        self._site.crew.hub.shut.remote()
        self._has_shut = True

    def _thread(self, work: Any) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:  # raised again in the main thread
                self._errors.append(error)

        return threading.Thread(target=guarded, daemon=True)
