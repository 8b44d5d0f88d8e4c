"""One rank's whole life: take an order, run it, hand the report over, until there is none.

Whatever goes wrong in a trial becomes a report; what breaks the rank itself ends the loop. Runs in any thread: no
signal handlers, no Ray. Callers: `run` (under Ray Train) and `rank.__main__` (under torchrun).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import torch

from rtxscale.rank.channel import Channel, Order, RankReport
from rtxscale.rank.control import Failure, Stopped
from rtxscale.rank.logs import failure_logs
from rtxscale.rank.place import Place
from rtxscale.rank.session import Session, open_session
from rtxscale.rank.trial import run_trial
from rtxscale.results.outcomes import Outcome

logger = logging.getLogger(__name__)
MIB = 1024 * 1024
NO_MEMORY = ("out of memory", "allocate memory", "not enough memory")
"""What CUDA's and PyTorch's allocators say, the latter on Linux and on Windows."""


def run_rank(channel: Channel, place: Place) -> None:
    """Serve orders until the channel gives None. The default process group must be Gloo and initialised."""
    session = open_session(place)
    try:
        while (order := channel.take()) is not None:
            _serve(order, channel, session)
    finally:
        session.close()


def _serve(order: Order, channel: Channel, session: Session) -> None:
    """Run one order and report it; a failure is reported first and told to the other ranks second.

    They may be waiting for this rank in the trial's own communicator, where they cannot hear it.
    """
    report, failure = _attempt(order, session)
    channel.finish(order, report)
    if failure is not None:
        session.control.tell(failure)
    session.tidy()


def _attempt(order: Order, session: Session) -> tuple[RankReport, Failure | None]:
    """The trial's report, and the failure that other ranks do not know of yet."""
    rank = session.place.rank
    facts: dict[str, Any] = {}
    try:
        return run_trial(order, session), None
    except Stopped as stop:
        return RankReport(
            rank=rank, outcome=stop.outcome, message=one_line(stop), tables=failure_logs(order, session)
        ), None
    except Exception as error:
        logger.debug("trial %s failed", order.trial_id, exc_info=True)
        outcome, message = outcome_of(error), one_line(error)
        if outcome is Outcome.OOM and session.device.type == "cuda":
            taken = memory_taken(session.device)
            facts = {"memory_peak_mib": taken.allocated_mib, "memory_reserved_mib": taken.reserved_mib}
            message = out_of_memory(message, taken)
        failure = Failure(rank, outcome, message)
        tables = failure_logs(order, session, error)
    return RankReport(rank=rank, outcome=failure.outcome, message=message, facts=facts, tables=tables), failure


@dataclass(frozen=True, kw_only=True)
class MemoryTaken:
    """A GPU's memory, and the most that this process has had allocated and reserved of it since the last trial, MiB."""

    total_mib: float
    allocated_mib: float
    reserved_mib: float


def memory_taken(device: torch.device) -> MemoryTaken:
    """What this process has taken of its GPU, as PyTorch's allocator counts it."""
    return MemoryTaken(
        total_mib=torch.cuda.get_device_properties(device).total_memory / MIB,
        allocated_mib=torch.cuda.max_memory_allocated(device) / MIB,
        reserved_mib=torch.cuda.max_memory_reserved(device) / MIB,
    )


def out_of_memory(message: str, taken: MemoryTaken) -> str:
    """The library's first words and what the process had taken; PyTorch goes on for a paragraph.

    >>> taken = MemoryTaken(total_mib=32607, allocated_mib=30000, reserved_mib=31000)
    >>> out_of_memory("OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB. GPU 0 has a total ...", taken)
    'OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB (30,000 MiB allocated and 31,000 reserved of 32,607)'
    """
    said = message.partition(" GPU ")[0].rstrip(". ")
    return (
        f"{said} ({taken.allocated_mib:,.0f} MiB allocated and {taken.reserved_mib:,.0f} reserved of "
        f"{taken.total_mib:,.0f})"
    )


def outcome_of(error: Exception) -> Outcome:
    """What an exception means for the trial: out of memory, in whichever library's words, or a crash.

    >>> outcome_of(RuntimeError("CUDA error: out of memory")), outcome_of(ValueError("no such model"))
    (<Outcome.OOM: 'oom'>, <Outcome.CRASHED: 'crashed'>)
    """
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return Outcome.OOM
    if isinstance(error, RuntimeError) and any(words in str(error).lower() for words in NO_MEMORY):
        return Outcome.OOM
    return Outcome.CRASHED


def one_line(error: Exception) -> str:
    """An exception as one line of text, its notes in brackets behind it.

    >>> one_line(ValueError("bad  thing")), one_line(MemoryError())
    ('ValueError: bad thing', 'MemoryError')
    """
    text = " ".join(_own_words(error).split())
    if isinstance(error, Stopped):
        return text
    notes = "; ".join(" ".join(note.split()) for note in getattr(error, "__notes__", ()))
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"{said} ({notes})" if notes else said


def _own_words(error: Exception) -> str:
    """What an error says; of one that a loader's worker raised without the traceback that PyTorch puts in front."""
    text = str(error)
    trace, name, said = text.rpartition(f"{type(error).__name__}: ")
    return said if name and "Original Traceback" in trace else text
