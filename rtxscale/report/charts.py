"""All figures of a run, in the order in which the report shows them.

To add a chart, write a builder that returns `Figure`s from frames and call it here. Called by `page` and `export`.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from rtxscale.analysis.conclusions import Conclusions
from rtxscale.devices.gpus import find_gpu
from rtxscale.report.bandwidth_charts import bandwidth_figures
from rtxscale.report.budget_chart import budget_figures
from rtxscale.report.confirmed_chart import confirmed_figure
from rtxscale.report.drift_chart import drift_figure
from rtxscale.report.figure import Figure
from rtxscale.report.knob_charts import effects_figure, heat_figures
from rtxscale.report.numbers import worker_word
from rtxscale.report.scaling_charts import Expectation, scaling_figures
from rtxscale.report.telemetry_charts import telemetry_figures
from rtxscale.results.read import Run

TRIAL_COLUMNS = ("gpu_uuids", "window_start_ns", "window_end_ns", "device_names", "outcome")


def figures(run: Run, conclusions: Conclusions) -> list[Figure]:
    """Every figure that this run has data for."""
    trials = run.frame("trials").select(TRIAL_COLUMNS).collect()
    return list(_figures(conclusions, trials, run.frame("telemetry")))


def _figures(conclusions: Conclusions, trials: pl.DataFrame, telemetry: pl.LazyFrame) -> Iterator[Figure]:
    workers = worker_word(conclusions.device)
    cells = conclusions.cells
    unit = next(iter(cells["work_unit"].drop_nulls()), "")
    yield from scaling_figures(conclusions.efficiency, unit, workers, expectation(trials))
    confirmed = confirmed_figure(conclusions.confirmed, workers)
    if confirmed is not None:
        yield confirmed
    yield from heat_figures(cells, conclusions.effects, workers)
    effects = effects_figure(conclusions.effects, workers)
    if effects is not None:
        yield effects
    yield from bandwidth_figures(conclusions.bandwidth, cells, workers)
    yield from budget_figures(conclusions.budget, workers)
    drift = drift_figure(conclusions.drift, conclusions.sentinels)
    if drift is not None:
        yield drift
    yield from telemetry_figures(telemetry, trials)


def expectation(trials: pl.DataFrame) -> Expectation | None:
    """What is documented of the card, when all trials ran on one known model."""
    names = {name for names in trials["device_names"].drop_nulls() for name in names}
    facts = find_gpu(names.pop()) if len(names) == 1 else None
    if facts is None:
        return None
    return Expectation(card=facts.label, target=facts.p21_target, extra_gpu=facts.efficiency_range)
