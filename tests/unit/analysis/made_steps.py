"""Rows of the steps table and cells that ask for a loss budget, for tests of the analysis. Not a test module."""

import polars as pl
from made_trials import made_cell

from rtxscale.results.read import polars_schema
from rtxscale.results.schema import table


def budget_cell(gpus, per_gpu, *, asked=True, **settings):
    """As `made_cell`, with `measure.loss_budget`."""
    cell = made_cell(gpus, per_gpu, **settings)
    return cell.model_copy(update={"measure": cell.measure.model_copy(update={"loss_budget": asked})})


def step_rows(trial, times, phase="no_sync", first=100):
    """Steps of one trial's row; `times` (rank, step) in seconds."""
    return [
        {
            "trial_id": trial["trial_id"],
            "attempt": 1,
            "rank": rank,
            "step": first + step,
            "phase": phase,
            "step_time_s": float(value),
        }
        for rank, of_rank in enumerate(times)
        for step, value in enumerate(of_rank)
    ]


def steps_frame(rows=()):
    """A lazy steps table, as a run gives it."""
    return pl.DataFrame(pl.from_arrow(table("steps", rows)), schema=polars_schema("steps")).lazy()
