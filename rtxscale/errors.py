"""Every error rtxscale raises on purpose, as one tree.

    RtxscaleError
    ├── BadInput          what the user gave cannot be used (exit code 2)
    │   ├── SpecError     a sweep file, with every problem at once
    │   └── PlanError     a sweep that this machine or cluster cannot run
    ├── ResultsError      a results directory that cannot be read or written
    │   └── StorageOutage storage that has failed and may come back: a full disk, a server that is away
    └── RunError          the cluster, a session or the device machinery failed

Each message says what was found, what was expected and what to do. The command line turns them into one line and an
exit code; no traceback. This module imports nothing.
"""

from __future__ import annotations

from dataclasses import dataclass


class RtxscaleError(Exception):
    """Base of every expected failure; `exit_code` is what the command line returns."""

    exit_code = 1


class BadInput(RtxscaleError):  # noqa: N818  a kind of input, with SpecError and PlanError below it
    """Something the user gave cannot be used."""

    exit_code = 2


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One fault of an input file: where it is, what stands there, what would be right."""

    file: str
    line: int | None
    path: str
    found: str
    expected: str

    def __str__(self) -> str:
        """`file:line: path: found ..., expected ...` on one line."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        subject = f"{self.path}: " if self.path else ""
        return f"{place}: {subject}found {self.found}; expected {self.expected}"


class SpecError(BadInput):
    """A sweep file is wrong; `problems` holds every fault found, in file order."""

    def __init__(self, problems: list[Problem]) -> None:
        """Keep all problems; the message lists them one per line."""
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class PlanError(BadInput):
    """The sweep is valid, but nothing useful can be run here."""


class ResultsError(RtxscaleError):
    """A results directory is not ours, is damaged, is newer, is locked or cannot be written."""


class StorageOutage(ResultsError):  # noqa: N818  an event that a sweep waits out, and an error elsewhere
    """The storage of results has failed in a way that may pass: the disk is full, or its server does not answer."""


class RunError(RtxscaleError):
    """The cluster or a session failed in a way the sweep cannot continue from."""
