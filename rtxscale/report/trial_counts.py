"""How many trials a run has: planned, finished, counted, attempts, sentinels, in words that mean the same everywhere.

Planned: what the sweep asks for on the machine that ran it, planned again from the run. Finished: those with a last
word, ok or not. Counted: those that enter means. Attempts: rows, a repeated trial has several. Sentinels stand beside
all of these. Called by `sections`, `terminal`'s callers and `evidence`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from rtxscale.analysis.counted import counted_trials, of_stage, settled_trials
from rtxscale.devices.inventory import Gpu, Inventory, Node
from rtxscale.errors import RtxscaleError
from rtxscale.plan.expand import make_plan
from rtxscale.results.outcomes import SIMULATED, is_finished
from rtxscale.results.read import Run
from rtxscale.spec.load import parse_sweep


@dataclass(frozen=True, kw_only=True)
class TrialCounts:
    """Trials of the sweep's own question; `planned` is None where the plan cannot be made again."""

    planned: int | None
    finished: int
    counted: int
    attempts: int
    sentinels: int

    @property
    def complete(self) -> bool | None:
        """Whether all that was planned is finished; None where it is not known."""
        return None if self.planned is None else self.finished >= self.planned


def trial_counts(run: Run) -> TrialCounts:
    """The counts of a run, from its tables, its commit records and its sweep."""
    trials = run.frame("trials").collect()
    own = of_stage(trials, "sweep")
    ids = set(own["trial_id"])
    ended = {name for name, outcomes in run.attempts().items() if is_finished(list(map(str, outcomes)))}
    return TrialCounts(
        planned=_planned(run, trials, ids),
        finished=len(ids & ended),
        counted=counted_trials(settled_trials(own)).height,
        attempts=own.height,
        sentinels=of_stage(trials, "sentinel").height,
    )


def counts_words(counts: TrialCounts) -> str:
    """The counts in one sentence, an unfinished run said first.

    >>> print(counts_words(TrialCounts(planned=8, finished=6, counted=5, attempts=7, sentinels=2)))
    Incomplete: 6 of 8 planned trials are finished, 5 count (7 attempts; 2 sentinels beside them).
    """
    beside = f"{counts.attempts:,} attempt{'s' * (counts.attempts != 1)}"
    if counts.sentinels:
        beside += f"; {counts.sentinels:,} sentinel{'s' * (counts.sentinels != 1)} beside them"
    of = "trials are finished; how many were planned is not known"
    if counts.planned is not None:
        of = f"of {counts.planned:,} planned trials are finished"
    state = "Incomplete: " if counts.complete is False else ""
    return f"{state}{counts.finished:,} {of}, {counts.counted:,} count ({beside})."


def _planned(run: Run, trials: pl.DataFrame, known: set[str]) -> int | None:
    """How many trials the sweep asks for on this machine; None unless the plan has every trial that was measured."""
    inventory = _machine(run, trials)
    if inventory is None:
        return None
    try:
        plan = make_plan(parse_sweep(run.sweep_text, "sweep.yaml"), inventory)
    except RtxscaleError:
        return None
    planned = {planned.trial_id for planned in plan.trials if planned.trial.stage == "sweep"}
    return len(planned) if known <= planned else None


def _machine(run: Run, trials: pl.DataFrame) -> Inventory | None:
    """The nodes and GPUs that ran, as the environment has them; None where it has none of them."""
    devices = set(trials["device"].drop_nulls())
    if SIMULATED in devices:
        return Inventory(nodes=(Node(node_id="simulated", cpus=1),))
    facts = run.frame("environment").select("node", "subject", "name", "value").collect()
    if devices == {"cpu"}:
        cpus = facts.filter((pl.col("subject") == "host") & (pl.col("name") == "cpus usable"))
        known = cpus.filter(pl.col("value").str.contains(r"^[1-9][0-9]{0,5}$")).unique("node", maintain_order=True)
        seen = tuple(Node(node_id=str(node), cpus=int(count)) for node, _, _, count in known.iter_rows())
        return Inventory(nodes=seen) if seen else None
    rows = facts.filter(pl.col("subject") == "gpu")
    nodes = tuple(
        Node(node_id=str(node), cpus=1, gpus=tuple(_gpus(str(node), own)))
        for (node,), own in rows.group_by("node", maintain_order=True)
    )
    return Inventory(nodes=nodes) if any(node.gpus for node in nodes) else None


def _gpus(node: str, facts: pl.DataFrame) -> Iterator[Gpu]:
    values = dict(facts.select("name", "value").iter_rows())
    names = {name.removesuffix(" name"): value for name, value in values.items() if name.endswith(" name") and value}
    for index, (gpu, name) in enumerate(sorted(names.items())):
        memory = str(values.get(f"{gpu} memory") or "").partition(" ")[0]
        mib = int(memory) if memory.isascii() and memory.isdigit() else None
        yield Gpu(name=name, uuid=f"GPU-{node}-{index}", index=index, memory_mib=mib)
