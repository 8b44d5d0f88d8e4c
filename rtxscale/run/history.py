"""What the finished trials of a run tell about those to come: how long such a trial takes, and how much memory.

Pure: rows of the trials table in, numbers out. Only trials that ended ok count. Caller: `run.foreman`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rtxscale.results.outcomes import Outcome
from rtxscale.spec.cell import Cell, Ddp, Nccl

BATCH_FIELDS = ("batch_per_gpu", "global_batch")


class History:
    """Of one run; it grows as trials end."""

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        """Take in the rows of a run that is continued."""
        self._longest_s: dict[str, float] = {}
        self._peaks_mib: dict[str, dict[int, float]] = {}
        for row in rows:
            self.add(row)

    def add(self, row: Mapping[str, Any]) -> None:
        """A trial has ended, however."""
        cell = _cell_of(row)
        if cell is None:
            return
        if row.get("wall_s") is not None:
            pace = pace_of(cell)
            self._longest_s[pace] = max(row["wall_s"], self._longest_s.get(pace, 0.0))
        batch, peak = row.get("batch_per_gpu"), row.get("memory_peak_mib")
        if batch is not None and peak is not None:
            peaks = self._peaks_mib.setdefault(size_of(cell), {})
            peaks[batch] = max(peak, peaks.get(batch, 0.0))

    def longest_s(self, cell: Cell) -> float | None:
        """Wall time in seconds of the longest trial like this, None where there was none.

        Like this: the same process and the same work; what NCCL and DDP are told may differ.
        """
        return self._longest_s.get(pace_of(cell))

    def peaks_mib(self, cell: Cell) -> Mapping[int, float]:
        """Peak of allocated GPU memory in MiB by batch per GPU, of trials that differ from this in the batch alone."""
        return self._peaks_mib.get(size_of(cell), {})


def _cell_of(row: Mapping[str, Any]) -> Cell | None:
    """The cell of a trial that ended ok; None for others, and for a cell that this version cannot read."""
    if row["outcome"] != Outcome.OK:
        return None
    try:
        return Cell.model_validate_json(row["cell_json"])
    except ValueError:
        return None


def pace_of(cell: Cell) -> str:
    """What decides how long a trial takes, as text: all but the settings that are swapped in a warm session."""
    planted = cell.planted.model_copy(update={"arm": ""})
    return cell.model_copy(update={"nccl": Nccl(p2p=cell.nccl.p2p), "ddp": Ddp(), "planted": planted}).canonical()


def size_of(cell: Cell) -> str:
    """What decides how much memory a batch takes, as text: all but the batch and those settings."""
    fields = {name: None for name in BATCH_FIELDS if hasattr(cell.workload, name)}
    return pace_of(cell.model_copy(update={"workload": cell.workload.model_copy(update=fields)}))
