"""A training script with a loop of its own, driven step by step: two threads, of which one runs at a time.

The script runs in a thread of the rank. `measure()` and its `step` hand the turn back, so that warm-up and window stay
the rank's; when the rank has measured, `step` unwinds the script. Nothing here needs torch, and outside a rank all of
it is without effect: the script runs as ever. Callers: `scripts.script`, and scripts through `rtxscale`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rtxscale.workloads.files.script import ScriptError

if TYPE_CHECKING:
    from types import TracebackType

    from rtxscale.workloads.scripts.job import Job

END_S = 30.0
"""How long an unwinding script may take to stop its loaders; its process ends soon after in any case."""


class Unwound(BaseException):
    """Ends a script from inside `step`, past its own `except Exception`."""


@dataclass(frozen=True, kw_only=True)
class Reported:
    """What the code said of one step: its loss, and its work where that is not the same for every step."""

    loss: Any = None
    work: float | None = None


class Loop:
    """A script in a thread of its own, which runs only while the rank waits for it."""

    def __init__(self, body: Callable[[], None]) -> None:
        """Nothing runs yet."""
        self._body = body
        self._script_turn, self._rank_turn = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name="script", daemon=True)
        self._error: BaseException | None = None
        self._stray: ScriptError | None = None
        self._ending = False
        self._entered = False
        self._latest = Reported()

    def start(self) -> None:
        """Run the script up to its `measure()`.

        Raises:
            ScriptError: it ended without.
            Exception: what the script raised.
        """
        self._thread.start()
        self._wait()

    def step(self) -> Reported:
        """Let the script run until it has done one more step.

        Raises:
            ScriptError: its loop is over.
            Exception: what the script raised.
        """
        self._script_turn.release()
        self._wait()
        return self._latest

    def end(self) -> None:
        """Unwind the script from where it waits."""
        self._ending = True
        if self._thread.is_alive():
            self._script_turn.release()
            self._thread.join(END_S)

    def enter(self) -> None:
        """The script, from its own thread: everything is built, the loop begins."""
        if self._entered:
            raise ScriptError("found a second measure(); expected one, around the training loop")
        self._entered = True
        self._hand_over()

    def done(self, reported: Reported) -> None:
        """The script, from its own thread: one step is done."""
        self._latest = reported
        self._hand_over()

    def _hand_over(self) -> None:
        if threading.current_thread() is not self._thread:
            self._stray = ScriptError(
                "found measure() or its step in a thread of the script's own; expected the script's main one"
            )
            raise self._stray
        if not self._ending:
            self._rank_turn.release()
            self._script_turn.acquire()
        if self._ending:
            raise Unwound

    def _wait(self) -> None:
        self._rank_turn.acquire()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._body()
            words = "ended without measure()" if not self._entered else "went on behind its loop"
            self._error = self._stray or ScriptError(
                f"found a script that {words}; expected `with rtxscale.measure()` around its loop"
            )
        except Unwound:
            self._error = ScriptError("the script is over")
        except ScriptError as error:
            self._error = self._stray or error
        except BaseException as error:  # handed to the rank, which sorts it out
            self._error = error
        finally:
            self._rank_turn.release()


class Measuring:
    """What `with rtxscale.measure() as m` gives a script; without effect where no rank measures."""

    def __init__(self, loop: Loop | None = None) -> None:
        """Belong to the loop that a rank drives, or to none."""
        self._loop = loop
        self._steps = 0

    def __enter__(self) -> Measuring:
        """The loop begins."""
        if self._loop is not None:
            self._loop.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """The loop is over, which is too early: the rank says when it has measured enough.

        Raises:
            ScriptError: always in a rank, unless something else ends the loop.
        """
        if self._loop is not None and kind is None:
            raise ScriptError(
                f"found the training loop over after {self._steps} steps; expected one that goes on until it is "
                "stopped: rtxscale decides how many steps it needs"
            )

    def step(self, work: float | None = None, loss: Any = None) -> None:
        """One training step is done: its work on this rank, and its loss, a tensor of one element or a number.

        Without `work` a step is what the sweep file says, else the batch per GPU.
        """
        if self._loop is not None:
            self._steps += 1
            self._loop.done(Reported(loss=loss, work=work))


@dataclass(frozen=True, kw_only=True)
class _Serving:
    """What this process measures at the moment."""

    job: Job
    loop: Loop | None


_serving: list[_Serving] = []


@contextmanager
def serving(job: Job, loop: Loop | None) -> Iterator[None]:
    """While this is open, `current_job` and `measure` belong to this job."""
    _serving.append(_Serving(job=job, loop=loop))
    try:
        yield
    finally:
        _serving.pop()


def current_job() -> Job | None:
    """The job of the rank that runs this process's script; None where no rank does."""
    return _serving[-1].job if _serving else None


def measure() -> Measuring:
    """The context manager around a script's loop.

    Raises:
        ScriptError: this is a function named by `workload.entry`, whose step the rank calls itself.
    """
    if _serving and _serving[-1].loop is None:
        raise ScriptError(
            "found measure() under workload.entry; expected it under workload.path: an entry returns its step"
        )
    return Measuring(_serving[-1].loop if _serving else None)
