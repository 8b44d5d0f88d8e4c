"""Logs of a run as texts for its dossier: files that lie beside its tables, and rows of its logs table, made readable.

Nothing is redacted here: what comes from a `RedactedRun` already is, and files are changed by the caller. Called by
`dossier.pack`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from rtxscale.results.read import Run

FOLDER = "logs"
LOG_MIB = 64
"""Most of one log that is kept, in MiB."""
CUT = "(cut here: the table logs holds the rest)"


def file_logs(run_dir: Path) -> Iterator[tuple[str, str]]:
    """Name and text of every log file in the run, in order; links are not followed."""
    folder = run_dir / FOLDER
    for path in sorted([*run_dir.glob("*.log"), *folder.rglob("*")]):
        if path.is_file() and not path.is_symlink() and not any(above.is_symlink() for above in path.parents):
            with path.open("rb") as stream:
                content = stream.read(LOG_MIB * 2**20)
            inside = folder if path.is_relative_to(folder) else run_dir
            yield str(path.relative_to(inside)), content.decode(errors="replace")


def table_logs(run: Run) -> Iterator[tuple[str, str]]:
    """One text per source of the logs table, trial by trial: such as what NCCL wrote, and what the sweep said."""
    frame = run.frame("logs")
    for source in frame.select(pl.col("source").drop_nulls().unique().sort()).collect()["source"]:
        rows = frame.filter(pl.col("source") == source).collect()
        yield f"{safe_name(source)}.log", _text(rows)


def _text(rows: pl.DataFrame) -> str:
    """The rows with a heading for each trial and rank; counts over 1 stand behind their line."""
    parts: list[str] = []
    left = LOG_MIB * 2**20
    for key, lines in rows.group_by("trial_id", "attempt", "rank", maintain_order=True):
        trial, attempt, rank = key
        where = "driver" if rank is None else f"rank {rank}"
        shown = lines.sort("place").select("line", "count").iter_rows()
        said = [f"{line} (x{count})" if (count or 1) > 1 else str(line) for line, count in shown]
        part = "\n".join([f"== trial {trial}, attempt {attempt}, {where}", *said, ""])
        left -= len(part)
        if left < 0:
            return "\n".join([*parts, CUT, ""])
        parts.append(part)
    return "\n".join(parts)


def safe_name(name: str) -> str:
    """A file name of letters, digits, dots and dashes.

    >>> safe_name("session/rank 0.log"), safe_name("..")
    ('session-rank-0.log', 'log')
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)[-80:].strip("-.") or "log"
