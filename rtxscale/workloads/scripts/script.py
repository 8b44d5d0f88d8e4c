"""Training with somebody's own code: a function that builds a step, or a script whose loop is driven from outside.

Warm-up, window, evidence and outcomes are those of every workload; the code only trains. It runs in the rank's process
with all its rights. Each trial has processes of its own (`plan` sees to it), so nothing of it stays.
Caller: `registry`.
"""

from __future__ import annotations

import importlib
import math
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from numbers import Real
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from rtxscale.nccl.attest import Attested, Verdict
from rtxscale.spec.script import ScriptWorkload
from rtxscale.workloads.files.script import DIRECTORY_VARIABLE, ScriptError, Source, fingerprint, source_of
from rtxscale.workloads.inputs import attest_directory
from rtxscale.workloads.protocol import Bucket, Context
from rtxscale.workloads.scripts.job import Job
from rtxscale.workloads.scripts.loop import Loop, Reported, serving
from rtxscale.workloads.training.precision import set_precision

INITIALISED = (
    "found a call of init_process_group; expected none: torch.distributed is initialised already, with a group for "
    "rtxscale's own control; train on job.group (rtxscale.group() in a script), or with job.wrap"
)
PACKAGES = ("site-packages", "dist-packages")


class Script:
    """Implements `kind: script`."""

    def prepare(self, context: Context) -> ScriptTraining:
        """Import the function and have it build its step, or run the script up to its loop."""
        workload = context.workload
        if not isinstance(workload, ScriptWorkload):
            raise TypeError(f"found workload {workload.kind}, expected script")
        base = os.environ.get(DIRECTORY_VARIABLE, "")
        if not base:
            raise ScriptError(f"found no {DIRECTORY_VARIABLE}; expected the absolute directory of the sweep file in it")
        set_precision(workload.precision)
        return ScriptTraining(workload, context, source_of(workload, Path(base)))


class ScriptTraining:
    """Somebody's code in training; see `protocol.Running`."""

    def __init__(self, workload: ScriptWorkload, context: Context, source: Source) -> None:
        """Take in the code; what goes wrong in it is told with its place.

        Raises:
            ScriptError: it is not what a workload needs.
        """
        self.unit: str = workload.unit
        self._workload, self._source = workload, source
        self._fingerprint = fingerprint([source.file])
        self._before = frozenset(sys.modules)
        self._job = Job(context, workload)
        self._work: list[float] = []
        self._loss: torch.Tensor | float | None = None
        self.work_per_step: float | None = workload.work_per_step or float(self._job.batch_per_gpu)
        self._undo = ExitStack()
        try:
            self._undo.enter_context(_imports_from(source.directory))
            self._undo.enter_context(_one_process_group())
            self._advance = self._told(self._script if workload.path else self._function)()
        except BaseException:
            self._undo.close()
            raise

    def work_of_latest(self, steps: int) -> float:
        """Work of this rank in its latest `steps` steps, as the code counted it."""
        return math.fsum(self._work[-steps:]) if steps else 0.0

    def step(self) -> float:
        """Have the code do one step; how long it waited for input is not told apart."""
        reported = self._advance()
        self._loss = checked_loss(reported.loss)
        usual = self.work_per_step or 0.0
        self._work.append(usual if reported.work is None else checked_work(reported.work))
        return 0.0

    def loss(self) -> float | None:
        """Loss that the code gave for the latest step."""
        return None if self._loss is None else float(self._loss)

    def buckets(self) -> tuple[Bucket, ...]:
        """Layout of what `job.wrap` has wrapped."""
        return self._job.buckets()

    def attest(self) -> tuple[Attested, ...]:
        """Which code ran, from where, and on which process group; what it computed in is its own affair."""
        return (*attest_code(self._workload, self._source, self._fingerprint, self._before), self._job.attest_group())

    def apart(self) -> None:
        """The code synchronises where it likes; nothing here can stop it from that."""

    def close(self) -> None:
        """Unwind a script, and give back what was lent to the code."""
        self._undo.close()
        self._loss = None
        self._advance = _over

    def _function(self) -> Callable[[], Reported]:
        """The step that the entry's function builds."""
        self._undo.enter_context(serving(self._job, None))
        built = _imported(self._source)(self._job)
        step, work = built if isinstance(built, tuple) and len(built) == 2 else (built, None)
        if not callable(step):
            raise ScriptError(
                f"{self._workload.entry}: found {type(step).__name__} returned; expected the training step, a callable "
                "without arguments that returns its loss or None, alone or in a pair with its work per step"
            )
        if work is not None:
            self.work_per_step = checked_work(work)
        return self._told(lambda: Reported(loss=step()))

    def _script(self) -> Callable[[], Reported]:
        """The script's loop, standing before its first step."""
        loop = Loop(self._body)
        self._undo.enter_context(serving(self._job, loop))
        self._undo.callback(loop.end)
        loop.start()
        return self._told(loop.step)

    def _body(self) -> None:
        """Run the script as `python` would; the device and the number of threads are a thread's own."""
        torch.set_num_threads(torch.get_num_threads())
        if self._job.device.type == "cuda":
            torch.cuda.set_device(self._job.device)
        with _arguments([str(self._source.file), *self._workload.arguments]):
            runpy.run_path(str(self._source.file), run_name="__main__")

    def _told(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """The same call, whose errors say where in the code they were raised."""

        def guarded() -> Any:
            try:
                return call()
            except SystemExit as error:
                raise ScriptError(
                    f"found sys.exit({error.code!r}) in {self._source.name}; expected training"
                ) from error
            except Exception as error:
                if place := place_of(error, self._source.directory):
                    error.add_note(place)
                raise

        return guarded


def checked_loss(loss: Any) -> torch.Tensor | float | None:
    """A step's loss as the code gave it, without its graph.

    Raises:
        ScriptError: it is neither a tensor of one element, nor a number, nor None.
    """
    if loss is None:
        return None
    if isinstance(loss, Real):
        return float(loss)
    if isinstance(loss, torch.Tensor) and loss.numel() == 1:
        return loss.detach()
    found = f"a tensor of {loss.numel()} elements" if isinstance(loss, torch.Tensor) else type(loss).__name__
    hint = "; work is told once, by the function that returns the step: return step, work" * isinstance(loss, tuple)
    raise ScriptError(f"found {found} as a step's loss; expected a tensor of one element, a number or None{hint}")


def checked_work(work: Any) -> float:
    """A step's work as the code gave it.

    Raises:
        ScriptError: it is no positive number.
    """
    if not isinstance(work, Real) or not 0 < float(work) < math.inf:
        raise ScriptError(f"found {work!r} as a step's work; expected a number greater than 0")
    return float(work)


def place_of(error: BaseException, directory: Path) -> str:
    """Where in the code under `directory` an error came up, the innermost place; empty where that code has no part."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_below(frame.filename, directory)]
    if not frames:
        return ""
    latest = frames[-1]
    return f"{Path(latest.filename).relative_to(directory)}, line {latest.lineno} in {latest.name}"


def attest_code(workload: ScriptWorkload, source: Source, seen: str, before: frozenset[str]) -> list[Attested]:
    """The bytes of the code that ran, and where it was found.

    `seen` is the entry file's fingerprint from before it ran, `before` names the modules that were loaded by then.
    """
    rows = [
        Attested(
            subject="workload.entry",
            requested=workload.entry or workload.path,
            observed=seen,
            verdict=Verdict.HONOURED,
            evidence=f"bytes of {source.name}, read just before it ran",
        ),
        *attest_directory(workload),
        Attested(
            subject="workload.precision",
            requested=workload.precision,
            observed=None,
            verdict=Verdict.NOT_ATTESTED,
            evidence="the code itself decides; job.autocast() does what is asked",
        ),
    ]
    helpers = sorted(_own_files(source, before))
    if helpers:
        names = ", ".join(str(file.relative_to(source.directory)) for file in helpers)
        rows.insert(
            1,
            Attested(
                subject="workload.modules",
                requested="as imported",
                observed=fingerprint(helpers),
                verdict=Verdict.HONOURED,
                evidence=f"bytes of {names}, read after the window",
            ),
        )
    return rows


def _own_files(source: Source, before: frozenset[str]) -> Iterator[Path]:
    """Files below the code's directory that were imported since, the entry's own and installed packages left out."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name in before or not file or not _is_below(file, source.directory):
            continue
        if Path(file) != source.file and not set(Path(file).parts) & set(PACKAGES):
            yield Path(file)


def _imported(source: Source) -> Callable[[Job], Any]:
    """The entry's function.

    Raises:
        ScriptError: its module is another one of the same name, or has no such function.
    """
    module = importlib.import_module(source.module)
    found = Path(module.__file__ or "")
    if found.resolve() != source.file.resolve():
        raise ScriptError(
            f"found {source.module} at {found}; expected {source.file}: the name is taken, choose another"
        )
    function = getattr(module, source.function, None)
    if not callable(function):
        raise ScriptError(f"found no function {source.function} in {source.file}; expected one that builds a step")
    built: Callable[[Job], Any] = function
    return built


def _is_below(file: str, directory: Path) -> bool:
    return Path(file).is_relative_to(directory)


def _over() -> Reported:
    raise ScriptError("the code is closed")


@contextmanager
def _imports_from(directory: Path) -> Iterator[None]:
    """The directory first on the path, as for a script that `python` runs."""
    sys.path.insert(0, str(directory))
    try:
        yield
    finally:
        if str(directory) in sys.path:
            sys.path.remove(str(directory))


@contextmanager
def _arguments(words: list[str]) -> Iterator[None]:
    usual, sys.argv = sys.argv, words
    try:
        yield
    finally:
        sys.argv = usual


@contextmanager
def _one_process_group() -> Iterator[None]:
    """Keep the default process group the rank's: it is neither made a second time nor destroyed by the code."""

    def refused(*_arguments: Any, **_options: Any) -> None:
        raise ScriptError(INITIALISED)

    def spared(group: dist.ProcessGroup | None = None) -> None:
        if group is not None and group is not dist.group.WORLD:
            destroy(group)

    destroy = dist.destroy_process_group
    with _replaced("init_process_group", refused), _replaced("destroy_process_group", spared):
        yield


@contextmanager
def _replaced(name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Another function under a name of `torch.distributed`."""
    usual = getattr(dist, name)
    setattr(dist, name, function)
    try:
        yield
    finally:
        setattr(dist, name, usual)
