"""All figures of a run, in the order in which the report shows them.

To add a chart, write a builder that returns `Figure`s from frames and call it here. Called by `page` and `export`.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from rtxscale.analysis.conclusions import Conclusions
from rtxscale.analysis.sanity import AMP
from rtxscale.devices.gpus import find_gpu
from rtxscale.report.charts.bandwidth import bandwidth_figures
from rtxscale.report.charts.bandwidth_references import references_of
from rtxscale.report.charts.budget import budget_figures
from rtxscale.report.charts.confirmed import confirmed_figure
from rtxscale.report.charts.drift import drift_figure
from rtxscale.report.charts.energy import energy_figure
from rtxscale.report.charts.figure import Figure
from rtxscale.report.charts.knobs import effects_figure, heat_figures
from rtxscale.report.charts.scaling import Expectation, scaling_figures
from rtxscale.report.charts.steady import steady_figure
from rtxscale.report.charts.telemetry import telemetry_figures
from rtxscale.report.charts.time_to_target import target_figures
from rtxscale.report.charts.topology import topology_figures
from rtxscale.report.numbers import short, worker_word
from rtxscale.report.trial_evidence import with_trials
from rtxscale.results.read import Run


def figures(run: Run, conclusions: Conclusions) -> list[Figure]:
    """Every figure that this run has data for."""
    trials = run.frame("trials").collect()
    return with_trials(_figures(run, conclusions, trials), trials)


def _figures(run: Run, conclusions: Conclusions, trials: pl.DataFrame) -> Iterator[Figure]:
    workers = worker_word(conclusions.device)
    cells = conclusions.cells
    unit = next(iter(cells["work_unit"].drop_nulls()), "")
    yield from scaling_figures(
        conclusions.efficiency, unit, workers, expectation(trials, conclusions.efficiency), cells
    )
    confirmed = confirmed_figure(conclusions.confirmed, workers)
    if confirmed is not None:
        yield confirmed
    yield from heat_figures(cells, conclusions.effects, workers)
    effects = effects_figure(conclusions.effects, workers)
    if effects is not None:
        yield effects
    yield from target_figures(trials, conclusions.targets, workers)
    references = references_of(run, conclusions.bandwidth, cells, conclusions.device)
    yield from bandwidth_figures(conclusions.bandwidth, cells, workers, references)
    yield from budget_figures(conclusions.budget, workers)
    for figure in (
        steady_figure(trials, cells, run.frame("steps"), workers),
        drift_figure(conclusions.drift, conclusions.sentinels),
    ):
        if figure is not None:
            yield figure
    yield from telemetry_figures(run.frame("telemetry"), trials)
    energy = energy_figure(conclusions.cost, workers)
    if energy is not None:
        yield energy
    yield from topology_figures(run.frame("environment").collect())


def expectation(trials: pl.DataFrame, efficiency: pl.DataFrame) -> Expectation:
    """What is documented of the card, when all trials ran on one known model; else why nothing is."""
    if trials.height and set(trials["device"].drop_nulls()) == {"cpu"}:
        return Expectation(silence="a range is documented of graphics cards alone, and these are CPU workers")
    names = {name for names in trials["device_names"].drop_nulls() for name in names}
    if len(names) != 1:
        return Expectation(silence="the trials ran on different models" if names else "the card is not recorded")
    name = names.pop()
    facts = find_gpu(name)
    if facts is None:
        return Expectation(silence=f"nothing is documented of {short(name, 60)}")
    silence = f"no range is documented for {facts.label}"
    target = None if not facts.p21_target else _any_with_amp_and_compile(trials, efficiency)
    return Expectation(card=facts.label, target=target, extra_gpu=facts.efficiency_range, silence=silence)


def _any_with_amp_and_compile(trials: pl.DataFrame, efficiency: pl.DataFrame) -> bool:
    """Whether any weak efficiency of several GPUs is of a cell that P21 sets its target for."""
    weak = efficiency.filter(pl.col("curve") == "weak", pl.col("gpus") > 1, pl.col("efficiency").is_not_null())
    meant = trials.filter(pl.col("precision").is_in(AMP), pl.col("compile") != "off")
    return not weak.join(meant, on="cell_id", how="semi").is_empty()
