"""How many trials a run has: planned, finished, counted, attempts, sentinels, in words that mean the same everywhere.

Planned: what the sweep asks for on the machine that ran it, planned again from the run. Finished: those with a last
word, ok or not; nobody tries an imported one again, so each that ended has it. Counted: those that enter means.
Attempts: a repeated trial has several. Rows that are there twice count once, and are said. Sentinels stand beside all
of these, each counted once. Called by `sections`, `terminal`'s callers and `evidence`.
"""

from __future__ import annotations

from dataclasses import dataclass

from rtxscale.analysis.conclusions import is_import
from rtxscale.analysis.counted import counted_trials, of_stage, settled_trials
from rtxscale.errors import RtxscaleError
from rtxscale.plan.expand import make_plan
from rtxscale.report.planned_machine import Machine, planned_machine
from rtxscale.results.outcomes import Outcome, is_finished
from rtxscale.results.read import Run
from rtxscale.spec.load import parse_sweep


@dataclass(frozen=True, kw_only=True)
class TrialCounts:
    """Trials of the sweep's own question; `planned` is None where the plan cannot be made again.

    `at_least` is True where only a part of the machine is known, on the rest of which more may have been planned.
    """

    planned: int | None
    finished: int
    counted: int
    attempts: int
    sentinels: int
    at_least: bool = False
    imported: bool = False
    """Whether all of them were measured elsewhere."""
    rows_again: int = 0
    """Rows of an attempt that another row holds already."""

    @property
    def complete(self) -> bool | None:
        """Whether all that was planned is finished; None where it is not known."""
        if self.planned is None:
            return None
        if self.finished < self.planned:
            return False
        return None if self.at_least else True

    @property
    def of_planned(self) -> str:
        """The number that was planned, with what is known of it; empty where nothing is.

        >>> TrialCounts(planned=1860, finished=6, counted=5, attempts=7, sentinels=2, at_least=True).of_planned
        'of at least 1,860 planned'
        """
        if self.planned is None:
            return ""
        return f"of {'at least ' * self.at_least}{self.planned:,} planned"


def trial_counts(run: Run) -> TrialCounts:
    """The counts of a run, from its tables, its commit records and its sweep."""
    trials = run.frame("trials").collect()
    own = of_stage(trials, "sweep")
    ids = set(own["trial_id"])
    machine = planned_machine(run, trials)
    imported = is_import(trials)
    has_ended = _has_ended if imported else is_finished
    ended = {name for name, outcomes in run.attempts().items() if has_ended(list(map(str, outcomes)))}
    attempts = own.select("trial_id", "attempt").n_unique()
    return TrialCounts(
        planned=None if machine is None else _planned(run, machine, ids),
        finished=len(ids & ended),
        counted=counted_trials(settled_trials(own)).height,
        attempts=attempts,
        sentinels=of_stage(trials, "sentinel")["trial_id"].n_unique(),
        at_least=machine is not None and not machine.whole,
        imported=imported,
        rows_again=own.height - attempts,
    )


def _has_ended(outcomes: list[str]) -> bool:
    """Whether a trial that is never tried again has ended in any way."""
    return any(outcome != Outcome.CANCELLED for outcome in outcomes)


def counts_words(counts: TrialCounts) -> str:
    """The counts in one sentence, an unfinished run said first.

    >>> print(counts_words(TrialCounts(planned=8, finished=6, counted=5, attempts=7, sentinels=2)))
    Incomplete: 6 of 8 planned trials are finished, 5 count (7 attempts; 2 sentinels beside them).
    >>> print(counts_words(TrialCounts(planned=None, finished=1, counted=1, attempts=1, sentinels=0, imported=True)))
    1 imported trial is finished, 1 counts (1 attempt).
    """
    many, one = f"trial{'s' * (counts.finished != 1)}", counts.finished == 1
    be = "is" if one else "are"
    beside = f"{counts.attempts:,} attempt{'s' * (counts.attempts != 1)}"
    if counts.rows_again:
        more = "further row repeats one and is" if counts.rows_again == 1 else "further rows repeat them and are"
        beside += f"; {counts.rows_again:,} {more} left out"
    if counts.sentinels:
        beside += f"; {counts.sentinels:,} sentinel{'s' * (counts.sentinels != 1)} beside them"
    if counts.planned is not None:
        of = f"{counts.of_planned} trial{'s' * (counts.planned != 1)} {be} finished"
    elif counts.imported:
        of = f"imported {many} {be} finished"
    else:
        of = f"{many} {be} finished; how many were planned is not known"
    state = "Incomplete: " if counts.complete is False else ""
    return f"{state}{counts.finished:,} {of}, {counts.counted:,} count{'s' * (counts.counted == 1)} ({beside})."


def _planned(run: Run, machine: Machine, known: set[str]) -> int | None:
    """How many trials the sweep asks for on this machine; None unless the plan has every trial that was measured."""
    try:
        plan = make_plan(parse_sweep(run.sweep_text, "sweep.yaml"), machine.inventory)
    except RtxscaleError:
        return None
    planned = {planned.trial_id for planned in plan.trials if planned.trial.stage == "sweep"}
    return len(planned) if known <= planned else None
