"""What a run's numbers mean beyond efficiencies and effects: the second half of the conclusions.

Takes the conclusions as far as they are made and what they were made from, and returns them completed. Every part works
on what there is and is empty where there is nothing. Called by `analysis.conclude`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from rtxscale.analysis.budget import budget_remarks, budget_table
from rtxscale.analysis.budget_steps import no_steps
from rtxscale.analysis.cells import CellTable, Replicates
from rtxscale.analysis.clocks import (
    card_remarks,
    card_table,
    no_samples,
    throttle_table,
    window_samples,
    with_equal_clocks,
)
from rtxscale.analysis.conclusions import Conclusions
from rtxscale.analysis.cost import billing_of, cost_table, energy_remarks
from rtxscale.analysis.fits import fit_table
from rtxscale.analysis.interactions import interaction_table
from rtxscale.analysis.mfu import mfu_table
from rtxscale.analysis.nodes import node_table
from rtxscale.analysis.objectives import objective_table
from rtxscale.analysis.placement import placement_table
from rtxscale.analysis.sanity import sanity_remarks, sanity_table
from rtxscale.analysis.separation import separation_remarks
from rtxscale.results.imports.run import LEFT_OUT, UNUSED
from rtxscale.results.outcomes import SIMULATED
from rtxscale.results.read import polars_schema
from rtxscale.spec.declare import Price


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What conclusions are made from: counted trials of the sweep, their cells and replicates, and the other tables."""

    counted: pl.DataFrame
    cells: CellTable
    replicates: Replicates
    collectives: pl.DataFrame
    attestation: pl.DataFrame | None = None
    axes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    price: Price | None = None
    telemetry: pl.LazyFrame | None = None
    steps: pl.LazyFrame | None = None

    @property
    def attested(self) -> pl.DataFrame:
        """The attestation; no rows where none was read."""
        return pl.DataFrame(schema=polars_schema("attestation")) if self.attestation is None else self.attestation


def interpreted(conclusions: Conclusions, measured: Measured) -> Conclusions:
    """The conclusions with laws, interactions, best cells by objective, energy, cost, clocks, cards, loss budgets."""
    frame = measured.cells.frame
    cards = card_table(measured.counted, frame)
    billing, why_not = billing_of(measured.price or Price())
    fits = fit_table(
        conclusions.efficiency,
        measured.replicates,
        measured.collectives,
        measured.counted,
        frame,
        measured.attested,
    )
    sanity = sanity_table(conclusions.efficiency, conclusions.effects, conclusions.bandwidth, frame, measured.counted)
    steps = no_steps() if measured.steps is None else measured.steps
    budget = budget_table(
        conclusions.efficiency, frame, measured.counted, measured.attested, steps, measured.cells.settings
    )
    samples = window_samples(no_samples() if measured.telemetry is None else measured.telemetry, measured.counted)
    return replace(
        conclusions,
        remarks=(
            *simulation_remarks(measured.counted),
            *import_remarks(measured.counted),
            *conclusions.remarks,
            *budget_remarks(budget),
            *sanity_remarks(sanity),
            *card_remarks(cards),
            *energy_remarks(measured.counted),
            *separation_remarks(frame, measured.replicates),
        ),
        efficiency=with_equal_clocks(conclusions.efficiency, frame, measured.counted),
        fits=fits,
        placements=placement_table(measured.cells, measured.replicates, measured.counted),
        nodes=node_table(conclusions.efficiency, frame, measured.counted),
        interactions=interaction_table(measured.cells, measured.replicates, measured.axes),
        objectives=objective_table(frame, measured.counted, conclusions.best, billing),
        cost=cost_table(frame, measured.counted, billing, why_not),
        throttling=throttle_table(samples, frame),
        cards=cards,
        budget=budget,
        sanity=sanity,
        mfu=mfu_table(frame, measured.counted),
    )


def simulation_remarks(counted: pl.DataFrame) -> tuple[str, ...]:
    """That numbers come from a planted law, and from which."""
    made_up = counted.filter(pl.col("source") == SIMULATED)
    if not made_up.height:
        return ()
    laws = "; ".join(name.removeprefix("simulated/") for name in made_up["workload"].unique().sort())
    return (
        f"Simulated, not measured: {_share(made_up, counted)}, by a planted law ({laws}). They say what the tool "
        "makes of such a law, and nothing of any machine.",
    )


def import_remarks(counted: pl.DataFrame) -> tuple[str, ...]:
    """Where imported rows are from: nothing here has seen them being measured."""
    foreign = counted.filter(pl.col("source") != SIMULATED)
    if not foreign.height:
        return ()
    sources = "; ".join(name.removeprefix("imported: ") for name in foreign["source"].unique().sort())
    return (
        f"Imported, not measured by rtxscale: {_share(foreign, counted)}, from {sources}. How that "
        "was measured, warmed up and kept steady is not known here.",
    )


def unread_parts(environment: pl.DataFrame) -> tuple[str, ...]:
    """What an import says of rows that gave no result and of columns without a place; nothing where there are none."""
    facts = environment.filter(pl.col("subject") == "import").select("name", "value").unique().sort("value").rows()
    rows = [f"Of the imported file, {text}." for name, text in facts if name == LEFT_OUT]
    columns = [
        f"Columns of the imported file that are not used: {text}. If one of them is a setting, give it its place in a "
        "mapping: rows that differ in it alone count as repeats."
        for name, text in facts
        if name == UNUSED
    ]
    return (*rows, *columns)


def _share(some: pl.DataFrame, every: pl.DataFrame) -> str:
    """How many of all counted trials these are."""
    if every.height == 1:
        return "the only trial"
    return f"all {every.height} trials" if some.height == every.height else f"{some.height} of {every.height} trials"
