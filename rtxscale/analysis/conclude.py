"""From a run's tables to its conclusions: count, average per visit, compare, and say it.

Reads nothing but the results; needs neither Ray nor torch nor a GPU. Called by `cli`; what it returns goes to `report`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from rtxscale.analysis.bandwidth import bandwidth_table
from rtxscale.analysis.best import best_table
from rtxscale.analysis.cells import cell_table, replicates
from rtxscale.analysis.conclusions import Advice, Conclusions, is_import
from rtxscale.analysis.confirmed import confirmation_remarks, confirmed_table, with_confirmation
from rtxscale.analysis.counted import counted_trials, of_stage, outcome_table, retry_table, settled_trials
from rtxscale.analysis.drift import drift_table, sentinel_table
from rtxscale.analysis.effects import effect_table
from rtxscale.analysis.efficiency import efficiency_table
from rtxscale.analysis.flags import flagged, with_drift
from rtxscale.analysis.headline import headline
from rtxscale.analysis.interpret import Measured, interpreted, unread_parts
from rtxscale.analysis.remarks import Evidence, remarks
from rtxscale.analysis.script_code import code_remarks
from rtxscale.analysis.targets import target_remarks, target_table
from rtxscale.errors import SpecError
from rtxscale.results.outcomes import SIMULATED
from rtxscale.results.read import Run
from rtxscale.spec.declare import Price
from rtxscale.spec.load import parse_sweep


def conclude(run: Run, *, price: Price | None = None) -> Conclusions:
    """What a run says. Works on any run, also one that is empty, unfinished or failed altogether.

    `price` is what somebody declared to be really billed; without one there is no cost.
    """
    names = ("trials", "collectives", "attestation", "environment")
    trials, collectives, attestation, environment = (run.frame(name).collect() for name in names)
    # Rows older than the column belong to the study that their run was made for.
    trials = trials.with_columns(pl.col("study").fill_null(run.manifest["study"]))
    settled = flagged(trials, attestation, environment)
    axes = run.manifest["axes"]
    lazy = {"telemetry": run.frame("telemetry"), "steps": run.frame("steps")}
    visits, problems = (None, unread_parts(environment)) if is_import(trials) else _visits_asked(run)
    found = conclude_tables(
        settled, collectives, axes=axes, attestation=attestation, price=price, visits=visits, **lazy
    )
    return replace(found, remarks=(*problems, *found.remarks))


def _visits_asked(run: Run) -> tuple[int | None, tuple[str, ...]]:
    """How many visits the run's sweep asks for, and what to say where it cannot be read."""
    try:
        return parse_sweep(run.sweep_text, "sweep.yaml").visits, ()
    except SpecError as error:
        return None, (
            "The run's sweep.yaml is no sweep that this rtxscale can read, so how many visits and trials it asks for "
            f"is not known: {' '.join(str(error).split())}",
        )


def conclude_tables(
    trials: pl.DataFrame,
    collectives: pl.DataFrame,
    *,
    axes: Mapping[str, Sequence[Any]],
    attestation: pl.DataFrame | None = None,
    price: Price | None = None,
    telemetry: pl.LazyFrame | None = None,
    steps: pl.LazyFrame | None = None,
    visits: int | None = None,
) -> Conclusions:
    """What these rows say; `axes` holds the values of each axis as written in the sweep, `visits` how many it asks."""
    every = settled_trials(trials)
    sentinels = sentinel_table(every, collectives)
    drift = drift_table(every, sentinels)
    settled = with_drift(of_stage(every, "sweep"), drift)
    counted = counted_trials(settled)
    measured = replicates(counted)
    found = Measured(
        counted=counted,
        cells=cell_table(counted, measured, axes),
        replicates=measured,
        collectives=collectives,
        attestation=attestation,
        axes=axes,
        price=price,
        telemetry=telemetry,
        steps=steps,
    )
    advice = Advice(visits=visits, imported=is_import(every))
    compared = _compared(found, settled, of_stage(trials, "confirm"), drift, advice)
    outcomes, retries = outcome_table(every), retry_table(trials)
    return interpreted(replace(compared, sentinels=sentinels, outcomes=outcomes, retries=retries), found)


def _compared(
    found: Measured, settled: pl.DataFrame, confirming: pl.DataFrame, drift: pl.DataFrame, advice: Advice
) -> Conclusions:
    """Cells against each other: efficiency, the best, what confirmed it, effects, and the answer in one sentence."""
    cells, measured = found.cells, found.replicates
    efficiency = efficiency_table(cells.frame)
    best = best_table(cells.frame, measured)
    confirmed = confirmed_table(confirming, cells.frame, measured, best)
    effects = effect_table(cells, measured, found.axes)
    bandwidth = bandwidth_table(found.collectives, found.counted, cells.frame)
    outcomes = outcome_table(settled)
    targets = target_table(found.counted, cells.frame)
    evidence = Evidence(
        settled=settled,
        counted=found.counted,
        collectives=found.collectives,
        cells=cells,
        efficiency=efficiency,
        effects=effects,
        drift=drift,
        axes=found.axes,
        advice=advice,
    )
    devices = set(found.counted["device"].drop_nulls())
    simulated = "Simulated, not measured: " if SIMULATED in devices else ""
    return Conclusions(
        headline=simulated + headline(cells.frame, efficiency, best, confirmed, bandwidth, outcomes, advice),
        device=devices.pop() if devices in ({"cpu"}, {SIMULATED}) else "cuda",
        imported=advice.imported,
        remarks=(
            *code_remarks(found.counted, found.attestation),
            *confirmation_remarks(confirming, confirmed, best),
            *target_remarks(targets),
            *remarks(evidence),
        ),
        cells=cells.shown(),
        efficiency=efficiency,
        best=with_confirmation(best, confirmed),
        confirmed=confirmed,
        effects=effects,
        bandwidth=bandwidth,
        drift=drift,
        targets=targets,
        outcomes=outcomes,
    )
