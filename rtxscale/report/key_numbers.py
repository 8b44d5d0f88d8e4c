"""The few numbers that stand large under the answer: efficiency, throughput, power, trials. Called by `sections`.

Those of the default settings at the largest GPU count, as in the sentence above; what was not measured is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from rtxscale.analysis.conclusions import Conclusions
from rtxscale.report.numbers import interval, number, throughput_unit
from rtxscale.results.outcomes import Outcome


@dataclass(frozen=True, kw_only=True)
class KeyNumber:
    """A number, what it is, and its interval or condition."""

    label: str
    value: str
    detail: str = ""


def key_numbers(conclusions: Conclusions, workers: str) -> list[KeyNumber]:
    """In the order of reading, at most five."""
    return [*_scaling(conclusions, workers), *_trials(conclusions)][:5]


def _scaling(conclusions: Conclusions, workers: str) -> Iterator[KeyNumber]:
    points = _largest(conclusions.efficiency)
    for point in points:
        text = interval(point["efficiency"], point["efficiency_low"], point["efficiency_high"], least=2)
        value, _, bounds = text.partition(" (")
        of = "" if point["base_gpus"] == 1 else f", over {point['base_gpus']}"
        detail = bounds.rstrip(")") or "no interval"
        yield KeyNumber(label=f"{point['curve']} efficiency, {point['gpus']} {workers}{of}", value=value, detail=detail)
    for point in points[:1]:
        cell = conclusions.cells.row(by_predicate=pl.col("cell_id") == point["cell_id"], named=True)
        unit = throughput_unit(cell["work_unit"])
        rate = (point["throughput_per_s"], point["throughput_low"], point["throughput_high"])
        yield KeyNumber(
            label="throughput",
            value=interval(*rate).partition(" (")[0],
            detail=f"{unit}, {number(point['speedup'], 3)}x that of {point['base_gpus']}",
        )
        if cell["power_w"] is not None:
            yield KeyNumber(
                label="GPU power", value=f"{number(cell['power_w'], 3)} W", detail=_energy(conclusions, cell)
            )


def _largest(efficiency: pl.DataFrame) -> list[dict[str, Any]]:
    """The default's point at the largest count of each curve; bases say nothing."""
    points = efficiency.filter(pl.col("is_default") & (pl.col("cell_id") != pl.col("base_cell_id")))
    ranked = points.sort("curve", "gpus", "throughput_per_s", descending=[True, True, True], nulls_last=True)
    return ranked.unique("curve", keep="first", maintain_order=True).to_dicts()


def _energy(conclusions: Conclusions, cell: dict[str, Any]) -> str:
    rows = conclusions.cost.filter(pl.col("cell_id") == cell["cell_id"])
    energy = None if rows.is_empty() else rows["energy_per_work_j"][0]
    return f"{number(energy, 3)} J/{cell['work_unit']}" if energy is not None else "of the used GPUs"


def _trials(conclusions: Conclusions) -> Iterator[KeyNumber]:
    outcomes = conclusions.outcomes.filter(pl.col("stage") == "sweep")
    total = int(outcomes["trials"].sum())
    if total:
        good = int(outcomes.filter(pl.col("outcome") == Outcome.OK)["trials"].sum())
        yield KeyNumber(label="trials ended ok", value=f"{good:,}", detail=f"of {total:,}")
