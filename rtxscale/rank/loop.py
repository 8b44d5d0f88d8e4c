"""One rank's whole life: take an order, run it, hand the report over, until there is none.

Whatever goes wrong in a trial becomes a report; what breaks the rank itself ends the loop. Runs in any thread: no
signal handlers, no Ray. Callers: `run` (under Ray Train) and `rank.__main__` (under torchrun).
"""

from __future__ import annotations

import logging

import torch

from rtxscale.rank.channel import Channel, Order, RankReport
from rtxscale.rank.control import Failure, Stopped
from rtxscale.rank.place import Place
from rtxscale.rank.session import Session, open_session
from rtxscale.rank.trial import run_trial
from rtxscale.results.outcomes import Outcome

logger = logging.getLogger(__name__)


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
    try:
        return run_trial(order, session), None
    except Stopped as stop:
        return RankReport(rank=rank, outcome=stop.outcome, message=one_line(stop)), None
    except Exception as error:
        logger.debug("trial %s failed", order.trial_id, exc_info=True)
        failure = Failure(rank, outcome_of(error), one_line(error))
    return RankReport(rank=rank, outcome=failure.outcome, message=failure.message), failure


def outcome_of(error: Exception) -> Outcome:
    """What an exception means for the trial: out of memory, in whichever library's words, or a crash.

    >>> outcome_of(RuntimeError("CUDA error: out of memory")), outcome_of(ValueError("no such model"))
    (<Outcome.OOM: 'oom'>, <Outcome.CRASHED: 'crashed'>)
    """
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return Outcome.OOM
    if isinstance(error, RuntimeError) and "out of memory" in str(error).lower():
        return Outcome.OOM
    return Outcome.CRASHED


def one_line(error: Exception) -> str:
    """An exception as one line of text.

    >>> one_line(ValueError("bad  thing"))
    'ValueError: bad thing'
    """
    text = " ".join(str(error).split())
    return text if isinstance(error, Stopped) else f"{type(error).__name__}: {text}"
