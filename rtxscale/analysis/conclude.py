"""From a run's tables to its conclusions: count, average per visit, compare, and say it.

Reads nothing but the results; needs neither Ray nor torch nor a GPU. Called by `cli`; what it returns goes to `report`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from rtxscale.analysis.bandwidth import bandwidth_table
from rtxscale.analysis.best import best_table
from rtxscale.analysis.cells import cell_table, replicates
from rtxscale.analysis.conclusions import Conclusions
from rtxscale.analysis.counted import counted_trials, outcome_table, settled_trials
from rtxscale.analysis.effects import effect_table
from rtxscale.analysis.efficiency import efficiency_table
from rtxscale.analysis.flags import flagged
from rtxscale.analysis.headline import headline
from rtxscale.analysis.remarks import Evidence, remarks
from rtxscale.results.read import Run


def conclude(run: Run) -> Conclusions:
    """What a run says. Works on any run, also one that is empty, unfinished or failed altogether."""
    trials, collectives, attestation = (run.frame(name).collect() for name in ("trials", "collectives", "attestation"))
    return conclude_tables(flagged(trials, attestation), collectives, axes=run.manifest["axes"])


def conclude_tables(
    trials: pl.DataFrame, collectives: pl.DataFrame, *, axes: Mapping[str, Sequence[Any]]
) -> Conclusions:
    """What these rows say; `axes` holds the values of each axis as written in the sweep."""
    settled = settled_trials(trials)
    counted = counted_trials(settled)
    measured = replicates(counted)
    cells = cell_table(counted, measured, axes)
    efficiency = efficiency_table(cells.frame)
    best = best_table(cells.frame, measured)
    effects = effect_table(cells, measured, axes)
    bandwidth = bandwidth_table(collectives, counted, cells.frame)
    outcomes = outcome_table(settled)
    evidence = Evidence(
        settled=settled,
        counted=counted,
        collectives=collectives,
        cells=cells,
        efficiency=efficiency,
        effects=effects,
        axes=axes,
    )
    return Conclusions(
        headline=headline(cells.frame, efficiency, best, bandwidth, outcomes),
        device="cpu" if set(counted["device"].drop_nulls()) == {"cpu"} else "cuda",
        remarks=remarks(evidence),
        cells=cells.shown(),
        efficiency=efficiency,
        best=best,
        effects=effects,
        bandwidth=bandwidth,
        outcomes=outcomes,
    )
