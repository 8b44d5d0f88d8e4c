"""The trials behind each point of a chart: a table of them, and their ids for the charts' hints.

A point of a cell leads to the rows of its trials, a point of one trial to that row. In large runs the table holds the
trials of the cells that a reader is most likely to ask about, and says so. Called by `sections` and `charts.figures`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from rtxscale.analysis.conclusions import Conclusions
from rtxscale.analysis.counted import of_stage
from rtxscale.report.charts.figure import Figure
from rtxscale.report.numbers import NOTHING, number
from rtxscale.report.tables.conclusions import unit_of
from rtxscale.results.outcomes import Outcome
from rtxscale.results.read import Run

ROWS = 1000
"""Most trials listed."""
NAMED = 3
"""Most trials that a hint names."""
COLUMNS = (
    *("trial_id", "attempt", "cell_id", "session_id", "visit", "repeat", "stage", "outcome", "throughput_per_s"),
    *("step_time_p50_s", "warmup_s", "window_s", "power_w", "temperature_max_c", "message"),
)


@dataclass(frozen=True, kw_only=True)
class EvidenceRow:
    """One trial: the anchors it is found by, and its texts."""

    trial: str
    cell: str
    texts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TrialEvidence:
    """A table whose rows can be pointed at; `note` says what is left out."""

    columns: tuple[str, ...]
    right: frozenset[str]
    rows: tuple[EvidenceRow, ...]
    note: str


def trial_evidence(run: Run, conclusions: Conclusions) -> TrialEvidence | None:
    """The trials of a run, those of cells that charts tell apart first; None where there are none."""
    trials = run.frame("trials").select(COLUMNS).collect()
    if trials.is_empty():
        return None
    labels = dict(conclusions.cells.select("cell_id", "label").iter_rows())
    ranks = {cell: place for place, cell in enumerate(_asked_about(conclusions))}
    rank = pl.col("cell_id").replace_strict(ranks, default=len(ranks), return_dtype=pl.Int64)
    shown = trials.sort(rank, maintain_order=True).head(ROWS)
    seen = _seen(run)
    unit = unit_of(conclusions)
    columns = (
        *(
            "trial",
            "setting",
            "visit",
            "session",
            "outcome",
            unit,
            "step (ms)",
            "warm-up (s)",
            "window (s)",
            "power (W)",
        ),
        *("°C", "attested"),
    )
    rows = tuple(
        EvidenceRow(
            trial=row["trial_id"],
            cell=row["cell_id"] or "",
            texts=_texts(row, labels.get(row["cell_id"], row["cell_id"] or NOTHING), seen.get(_key(row), NOTHING)),
        )
        for row in shown.iter_rows(named=True)
    )
    left_out = trials.height - shown.height
    again = "" if conclusions.imported else ", and repeats it without Ray"
    note = f"`rtxscale explain TRIAL` says what one of them asked and measured{again}."
    if left_out:
        note += (
            f" {left_out} more trials are left out, of cells that are neither defaults nor among the best: "
            "`rtxscale show --csv trials`."
        )
    return TrialEvidence(columns=columns, right=frozenset({"visit", *columns[5:11]}), rows=rows, note=note)


def _key(row: dict[str, Any]) -> tuple[str, int]:
    return row["trial_id"], row["attempt"]


def _asked_about(conclusions: Conclusions) -> Iterable[str]:
    """Cells in the order of interest: defaults and best cells, their bases, then all, the fastest first."""
    cells = conclusions.cells.sort("throughput_per_s", descending=True, nulls_last=True)
    best = conclusions.best["cell_id"].to_list()
    bases = conclusions.efficiency["base_cell_id"].to_list()
    ordered = [*cells.filter("is_default")["cell_id"], *best, *bases, *cells["cell_id"]]
    return dict.fromkeys(cell for cell in ordered if cell is not None)


def _seen(run: Run) -> dict[tuple[str, int], str]:
    """How many settings of a trial were honoured, refuted or not attested."""
    counts = (
        run.frame("attestation")
        .filter(pl.col("verdict") != "not applicable")
        .group_by("trial_id", "attempt", "verdict")
        .len()
        .sort("verdict")
        .collect()
    )
    words: dict[tuple[str, int], str] = {}
    for trial, attempt, verdict, count in counts.iter_rows():
        before = words.get((trial, attempt))
        words[trial, attempt] = f"{count} {verdict}" if before is None else f"{before}, {count} {verdict}"
    return words


def _texts(row: dict[str, Any], label: str, seen: str) -> tuple[str, ...]:
    tries = f", attempt {row['attempt']}" if (row["attempt"] or 1) > 1 else ""
    stage = f" ({row['stage']})" if row["stage"] not in (None, "sweep") else ""
    step = row["step_time_p50_s"]
    return (
        f"{row['trial_id']}{tries}",
        label,
        NOTHING if row["visit"] is None else str(row["visit"]),
        row["session_id"] or NOTHING,
        f"{row['outcome']}{stage}" + (f": {row['message']}" if row["message"] else ""),
        number(row["throughput_per_s"]),
        number(None if step is None else 1000 * step),
        number(row["warmup_s"], 3),
        number(row["window_s"], 3),
        number(row["power_w"], 3),
        number(row["temperature_max_c"], 3),
        seen,
    )


def with_trials(figures: Iterable[Figure], trials: pl.DataFrame) -> list[Figure]:
    """The same figures, every row of a cell with the ids of the trials behind it."""
    counted = of_stage(trials.filter(pl.col("outcome") == Outcome.OK), "sweep")
    ids = dict(counted.group_by("cell_id", maintain_order=True).agg("trial_id").iter_rows())
    texts = {cell: _named(found) for cell, found in ids.items()}
    return [_with_trials(figure, texts) for figure in figures]


def _with_trials(figure: Figure, texts: dict[str, str]) -> Figure:
    datasets = {
        name: [{**row, "trials": texts.get(row["cell"], NOTHING)} if row.get("cell") else row for row in rows]
        for name, rows in figure.datasets.items()
    }
    return replace(figure, datasets=datasets)


def _named(ids: list[str]) -> str:
    more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
    return ", ".join(ids[:NAMED]) + more
