"""What ended a trial, and what follows from it: pure decisions, no Ray.

`judge` turns what the session saw (reports, silent ranks, how the worker group died, who else was on the GPUs) into a
verdict; `deadline_s` says how long a trial may take before its silent ranks count as hung. Caller: `run.foreman`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rtxscale.rank.channel import RankReport
from rtxscale.results.outcomes import RETRIED_ONCE, Outcome
from rtxscale.spec.cell import Cell
from rtxscale.spec.workload import CollectivesProbe, CollectivesWorkload

DEADLINE_FACTOR = 3.0
"""A trial may take this many times its longest expected time; also covers a slow first step."""
COMPILE_S = 600.0
"""Allowance for torch.compile; max-autotune of a large model takes minutes."""
COLLECTIVE_S = 10.0
"""Allowance for one collective and message size, on a slow path."""
KNOWN_SHARE = 0.2
"""Share of the floor that is left when an equal trial has shown how long one takes, imports and first step included."""
MESSAGE_CHARACTERS = 500
TIMES_MESSAGES = (CollectivesProbe, CollectivesWorkload)

SEVERITY = (
    Outcome.OOM,
    Outcome.FOREIGN_PROCESS,
    Outcome.CRASHED,
    Outcome.HANG,
    Outcome.DIVERGED,
    Outcome.NOT_HONOURED,
    Outcome.UNSTEADY,
    Outcome.CANCELLED,
    Outcome.OK,
)
"""One rank's outcome stands for the trial: the first of these that any rank reports. An out-of-memory error of one
rank makes its peers crash, so it comes first."""

SPOILT = frozenset({Outcome.OK, Outcome.OOM, Outcome.CRASHED, Outcome.HANG, Outcome.UNSTEADY})
"""What somebody else on the GPUs can bring about or make worthless; no NaN and no refuted setting comes from that."""

ENDS_SESSION = frozenset({Outcome.OOM, Outcome.CRASHED, Outcome.HANG, Outcome.CANCELLED})
"""After these the worker group is not trusted with another trial."""


@dataclass(frozen=True, kw_only=True)
class Death:
    """How a worker group ended under a trial: messages by rank, or only `summary` when no rank is to blame."""

    summary: str
    by_rank: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TrialEnd:
    """What the session saw of one trial: reports by rank, silent ranks, and the group's death if it died."""

    world: int
    reports: Mapping[int, RankReport]
    death: Death | None = None
    interrupted: bool = False
    waited_s: float = 0.0

    @property
    def silent(self) -> tuple[int, ...]:
        """Ranks without a report."""
        return tuple(rank for rank in range(self.world) if rank not in self.reports)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The trial's outcome, one line that says why, whether to try again, and whether its session must end."""

    outcome: Outcome
    message: str = ""
    retry: bool = False
    session_over: bool = False


def judge(
    end: TrialEnd,
    *,
    earlier: Sequence[str],
    first_of_session: bool,
    strangers: str = "",
    would_fit: str = "",
    misplaced: str = "",
) -> Verdict:
    """Decide how a trial ended; `earlier` holds the outcomes of its earlier attempts.

    An out-of-memory error in a worker group that has already served a trial may be that trial's leftovers: it counts
    as crashed until a fresh group confirms it. `would_fit` is what to do about one. `strangers` says who else was on
    the GPUs meanwhile, `misplaced` that the ranks were not on the GPUs that the plan has chosen.
    """
    outcome, message = _outcome(end)
    broken = outcome in ENDS_SESSION
    if outcome is Outcome.OOM and would_fit:
        message = f"{_cut(message, MESSAGE_CHARACTERS - len(would_fit) - 2)}; {would_fit}"
    if strangers and outcome in SPOILT:
        outcome, message = Outcome.FOREIGN_PROCESS, f"{strangers}; the trial itself: {outcome} {message}".rstrip()
    elif outcome is Outcome.OOM and not first_of_session:
        outcome, message = (
            Outcome.CRASHED,
            f"out of memory in a used process, to be confirmed in a fresh one: {message}",
        )
    elif outcome is Outcome.OK and misplaced:
        outcome, message = Outcome.NOT_HONOURED, misplaced
    over = broken or bool(end.silent) or end.death is not None
    return Verdict(
        outcome=outcome,
        message=_cut(message, MESSAGE_CHARACTERS),
        retry=_may_retry(outcome, earlier),
        session_over=over,
    )


def turned_away(strangers: str, *, earlier: Sequence[str]) -> Verdict:
    """The verdict on a trial that was not begun, because others held the GPUs and did not leave in time."""
    message = _cut(f"not begun: {strangers}", MESSAGE_CHARACTERS)
    outcome = Outcome.FOREIGN_PROCESS
    return Verdict(outcome=outcome, message=message, retry=_may_retry(outcome, earlier))


def deadline_s(cell: Cell, *, floor_s: float, known_s: float | None = None) -> float:
    """Seconds a trial may take from order to last report, after which silent ranks count as hung.

    As long as nothing is known of such trials: a floor, a multiple of what the measure allows, and allowances for the
    compiler and for collectives. `known_s` is the longest time an equal trial took that ended well: then a multiple of
    that, or a share of the floor, beside the longest warm-up and window that the measure allows.
    """
    measure = cell.measure.resolved()
    windows_s = (1 + measure.loss_budget) * (measure.window_s or 0.0)
    windows_s += 0.0 if cell.target is None else cell.target.max_time_s
    expected = sum(value or 0.0 for value in (measure.soak_s, measure.warmup_max_s, windows_s))
    compiled = getattr(cell.workload, "compile", "off") != "off"
    timed = [part for part in (cell.collectives, cell.workload) if isinstance(part, TIMES_MESSAGES)]
    messages = sum(len(part.operations) * len(part.sizes_mib) for part in timed)
    unknown = floor_s + DEADLINE_FACTOR * expected + COMPILE_S * compiled + COLLECTIVE_S * messages
    if known_s is None:
        return unknown
    return min(unknown, max(KNOWN_SHARE * floor_s, DEADLINE_FACTOR * known_s) + expected + COLLECTIVE_S * messages)


def describe_ranks(by_rank: Mapping[int, str]) -> str:
    """Each different message once, with the ranks that said it.

    >>> describe_ranks({0: "boom", 2: "boom", 1: "other"})
    'ranks 0, 2: boom; rank 1: other'
    """
    grouped: dict[str, list[int]] = {}
    for rank in sorted(by_rank):
        grouped.setdefault(by_rank[rank], []).append(rank)
    return "; ".join(f"{_ranks(ranks)}: {message}" for message, ranks in grouped.items())


def without_echoes(by_rank: Mapping[int, str]) -> dict[int, str]:
    """Messages without those that only pass another rank's on.

    >>> without_echoes({0: "rank 1 failed: boom", 1: "boom"})
    {1: 'boom'}
    """
    said = set(by_rank.values())
    return {
        rank: message
        for rank, message in by_rank.items()
        if not any(other and other != message and message.endswith(other) for other in said)
    }


def _outcome(end: TrialEnd) -> tuple[Outcome, str]:
    """Outcome and message, before any thought of earlier attempts."""
    if end.interrupted:
        return Outcome.CANCELLED, "interrupted"
    reported = {rank: Outcome(report.outcome) for rank, report in end.reports.items()}
    worst = min(reported.values(), key=SEVERITY.index, default=Outcome.OK)
    dead = (
        {} if end.death is None else {rank: end.death.by_rank[rank] for rank in end.silent if rank in end.death.by_rank}
    )
    if dead and worst is not Outcome.OOM:  # what its peers report is that they lost it
        return Outcome.CRASHED, describe_ranks(dead)
    if worst in (Outcome.OOM, Outcome.FOREIGN_PROCESS, Outcome.CRASHED, Outcome.HANG):
        said = {rank: end.reports[rank].message for rank, outcome in reported.items() if outcome is worst}
        return worst, describe_ranks(without_echoes(said))
    if end.death is not None:
        told = describe_ranks(end.death.by_rank)
        return Outcome.CRASHED, told or end.death.summary
    if end.silent:
        return Outcome.HANG, f"{_ranks(end.silent)} silent for {end.waited_s:.0f} s"
    said = {rank: end.reports[rank].message for rank, outcome in reported.items() if outcome is worst}
    return worst, describe_ranks({rank: text for rank, text in said.items() if text})


def _may_retry(outcome: str, earlier: Sequence[str]) -> bool:
    """Whether such an ending is not the last word: it is retried once, and has not been."""
    return outcome in RETRIED_ONCE and not any(value in RETRIED_ONCE for value in earlier)


def _cut(message: str, characters: int) -> str:
    """The message on one line, no longer than that."""
    return " ".join(message.split())[:characters]


def _ranks(ranks: list[int] | tuple[int, ...]) -> str:
    """`rank 1` or `ranks 0, 2`."""
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
