"""The few numbers that stand large under the answer: efficiency, throughput, power, trials. Called by `sections`.

Those of the curve that the sentence above speaks of, at its largest GPU count; what was not measured is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from rtxscale.analysis.conclusions import Conclusions
from rtxscale.analysis.leading import leading_points
from rtxscale.report.numbers import TOO_WIDE, interval, number, throughput_unit
from rtxscale.report.trial_counts import TrialCounts


@dataclass(frozen=True, kw_only=True)
class KeyNumber:
    """A number, what it is, and its interval or condition."""

    label: str
    value: str
    detail: str = ""


def key_numbers(conclusions: Conclusions, workers: str, counts: TrialCounts) -> list[KeyNumber]:
    """In the order of reading, at most five; how far the run is always stands among them."""
    return [*[*_scaling(conclusions, workers)][:4], *_trials(counts)]


def _scaling(conclusions: Conclusions, workers: str) -> Iterator[KeyNumber]:
    points = leading_points(conclusions.cells, conclusions.efficiency)
    for point in points:
        text = interval(point["efficiency"], point["efficiency_low"], point["efficiency_high"], least=2)
        value, _, bounds = text.partition(" (")
        of = "" if point["base_gpus"] == 1 else f", over {point['base_gpus']}"
        detail = bounds.rstrip(")") or "no interval"
        detail = f"interval {detail}" if TOO_WIDE in text else detail
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


def _energy(conclusions: Conclusions, cell: dict[str, Any]) -> str:
    rows = conclusions.cost.filter(pl.col("cell_id") == cell["cell_id"])
    energy = None if rows.is_empty() else rows["energy_per_work_j"][0]
    return f"{number(energy, 3)} J/{rows['unit'][0]}" if energy is not None else "of the used GPUs"


def _trials(counts: TrialCounts) -> Iterator[KeyNumber]:
    if not counts.attempts:
        return
    planned = counts.of_planned or ("all imported" if counts.imported else "planned: not known")
    if counts.complete is False:
        planned += ": incomplete"
    count = f"{counts.counted:,} count{'s' * (counts.counted == 1)}"
    yield KeyNumber(label="trials finished", value=f"{counts.finished:,}", detail=f"{planned}, {count}")
