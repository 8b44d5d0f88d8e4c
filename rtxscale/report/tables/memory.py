"""GPU memory of the cells as a small table: what PyTorch had allocated and reserved, against what the card has.

Settings of NCCL and DDP hardly change it, so cells that differ only in those are one row. Called by `sections`.
"""

from __future__ import annotations

import re
from typing import Any

import polars as pl

from rtxscale.analysis.conclusions import Conclusions
from rtxscale.analysis.settings import is_communication
from rtxscale.report.chosen import AXIS
from rtxscale.report.numbers import NOTHING, number, percent
from rtxscale.report.tables.conclusions import Table
from rtxscale.results.outcomes import Outcome
from rtxscale.results.read import Run

ROWS = 60
MIB = re.compile(r"(\d+(?:\.\d+)?) MiB")


def memory_table(run: Run, conclusions: Conclusions, workers: str) -> Table | None:
    """Largest allocated and reserved memory per GPU count, batch and workload setting; None without any."""
    trials = (
        run.frame("trials")
        .filter((pl.col("outcome") == Outcome.OK) & pl.col("memory_peak_mib").is_not_null())
        .select("cell_id", "memory_peak_mib", "memory_reserved_mib")
        .collect()
    )
    cells = conclusions.cells
    names = [name for name in cells.columns if name.startswith(AXIS) and not is_communication(name[len(AXIS) :])]
    names = [name for name in names if name.removeprefix(AXIS) != "gpus"]
    joined = trials.join(cells.select("cell_id", "workload", "gpus", "batch_per_gpu", *names), on="cell_id")
    if joined.is_empty():
        return None
    same = ["workload", "gpus", "batch_per_gpu", *names]
    largest = joined.group_by(same, maintain_order=True).agg(
        pl.col("memory_peak_mib", "memory_reserved_mib").max(), pl.col("cell_id").n_unique().alias("cells")
    )
    ranked = largest.sort("memory_peak_mib", "gpus", descending=True, maintain_order=True)
    card = card_mib(run)
    columns = ("workload", workers, "batch per GPU", "allocated (GiB)", "reserved (GiB)", "of the card", "cells")
    return Table(
        key="memory",
        title="GPU memory",
        columns=columns,
        rows=[_row(row, names, card) for row in ranked.head(ROWS).iter_rows(named=True)],
        right=frozenset(columns[1:]),
        note=_note(card, ranked.height),
    )


def card_mib(run: Run) -> float | None:
    """Memory of the smallest GPU in MiB, as the driver says; None where it was not recorded."""
    rows = run.frame("environment").filter((pl.col("subject") == "gpu") & pl.col("name").str.ends_with("memory"))
    found = [MIB.fullmatch(value or "") for value in rows.collect()["value"]]
    return min((float(match[1]) for match in found if match), default=None)


def _row(row: dict[str, Any], names: list[str], card: float | None) -> tuple[str, ...]:
    settings = [f"{name.rpartition('.')[2].removeprefix(AXIS)} {row[name]}" for name in names if row[name] is not None]
    settings = [words for words in settings if not words.startswith(("batch_per_gpu", "global_batch"))]
    taken = row["memory_reserved_mib"] or row["memory_peak_mib"]
    return (
        ", ".join([row["workload"] or NOTHING, *settings]),
        str(row["gpus"]),
        NOTHING if row["batch_per_gpu"] is None else str(row["batch_per_gpu"]),
        number(row["memory_peak_mib"] / 1024, 3),
        number(None if row["memory_reserved_mib"] is None else row["memory_reserved_mib"] / 1024, 3),
        percent(None if card is None else taken / card),
        str(row["cells"]),
    )


def _note(card: float | None, rows: int) -> str:
    words = "Largest of any rank and trial, as PyTorch's allocator counts it; the CUDA context and NCCL come on top."
    words += f" A card has {number(card / 1024, 3)} GiB." if card else " The card's own memory was not recorded."
    return words + (f" {rows - ROWS} more rows are left out." if rows > ROWS else "")
