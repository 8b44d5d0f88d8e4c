"""Runs and medians to a target as a small table of text, by cell. Called by `sections`."""

from __future__ import annotations

from rtxscale.analysis.conclusions import Conclusions
from rtxscale.report.numbers import NOTHING, number
from rtxscale.report.tables.conclusions import Table

ROWS = 200


def target_table(conclusions: Conclusions, workers: str) -> Table | None:
    """How many runs of each cell got there, and the medians; None where no cell has a target."""
    targets = conclusions.targets
    if targets.is_empty():
        return None
    unit = next(iter(targets["work_unit"].drop_nulls()), "")
    numbers = ("reached", "median (s)", "median (updates)", f"median ({unit}s)" if unit else "median (work)")
    rows = [
        (
            str(row["gpus"]),
            row["label"] or NOTHING,
            f"{row['reached']} of {row['runs']}",
            _seconds(row["median_s"], row["not_reached_s"], row["reached"]),
            number(row["median_steps"]),
            number(row["median_work"]),
        )
        for row in targets.head(ROWS).iter_rows(named=True)
    ]
    left_out = targets.height - len(rows)
    more = f" {left_out} more cells: `rtxscale show --csv targets`." if left_out else ""
    return Table(
        key="targets",
        title="Runs and medians to target",
        columns=(workers, "setting", *numbers),
        rows=rows,
        right=frozenset((workers, *numbers)),
        note=f"A run that was stopped before counts as longer than all that arrived.{more}",
    )


def _seconds(median_s: float | None, given_s: float | None, reached: int) -> str:
    """The median, or that the runs needed more than they were given."""
    if median_s is None and not reached and given_s is not None:
        return f"> {number(given_s, 3)}"
    return number(median_s, 3)
