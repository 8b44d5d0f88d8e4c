"""A run, read lazily: exactly the committed rows, always with the full schema. Never writes.

Files of an older rtxscale that lack a column give nulls of the right type; columns of a newer one are left out. While a
sweep is running, open the run anew to see new rows. Called by `analysis`, `report` and `cli`.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from rtxscale.errors import ResultsError
from rtxscale.results.commit import CommitRecord, attempts, check_files, live_records, raise_damage, read_records
from rtxscale.results.disk import read_file
from rtxscale.results.manifest import read_manifest
from rtxscale.results.schema import TABLES

POLARS_TYPES: dict[str, pl.DataType] = {
    "str": pl.String(),
    "int": pl.Int64(),
    "float": pl.Float64(),
    "bool": pl.Boolean(),
    "strs": pl.List(pl.String()),
    "ints": pl.List(pl.Int64()),
}


def polars_schema(name: str) -> dict[str, pl.DataType]:
    """Column name -> polars type of a table of `results.schema`."""
    return {column.name: POLARS_TYPES[column.kind] for column in TABLES[name]}


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run as it was when opened. `sweep_text` is the sweep file as given, `manifest` the content of `run.json`."""

    run_id: str
    run_dir: Path
    sweep_text: str
    manifest: dict[str, Any]
    records: tuple[CommitRecord, ...]

    @classmethod
    def open(cls, run_dir: Path) -> Run:
        """Read the manifest and the commit records, and see that every committed file has its size.

        Raises:
            ResultsError: not a directory, not ours, of a newer schema, or damaged.
        """
        run_dir = run_dir.absolute()
        manifest = read_manifest(run_dir)
        try:
            sweep_text = read_file(run_dir / "sweep.yaml").decode().replace("\r\n", "\n").replace("\r", "\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ResultsError(f"{run_dir}: found no readable sweep.yaml ({error}); the run is damaged") from error
        return cls(
            run_id=manifest.run_id,
            run_dir=run_dir,
            sweep_text=sweep_text,
            manifest=asdict(manifest),
            records=tuple(_checked_records(run_dir)),
        )

    def attempts(self) -> dict[str, list[str]]:
        """Trial id -> outcomes so far, by attempt."""
        return attempts(self.records)

    def frame(self, name: str) -> pl.LazyFrame:
        """The committed rows of a table, in order of commit, with its full schema; empty when there are none.

        Raises:
            KeyError: there is no such table.
        """
        schema = polars_schema(name)
        paths = [self.run_dir / part.path for record in self.records for part in record.files if part.table == name]
        if not paths:
            return pl.LazyFrame(schema=schema)
        return pl.scan_parquet(paths, schema=schema, missing_columns="insert", extra_columns="ignore", glob=False)

    def verify(self) -> None:
        """Read every committed file and compare its hash with the commit record.

        Raises:
            ResultsError: a file is missing or its content is not what was committed.
        """
        problems = []
        for part in (part for record in self.records for part in record.files):
            try:
                with (self.run_dir / part.path).open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError:
                problems.append(f"{part.path} is missing")
                continue
            if digest != part.sha256:
                problems.append(f"{part.path} has another content")
        raise_damage(self.run_dir, problems)


def open_verified(run_dir: Path) -> Run:
    """Open a run and see that every committed file has its committed content; for whoever shows numbers.

    Raises:
        ResultsError: not a directory, not ours, of a newer schema, or damaged.
    """
    run = Run.open(run_dir)
    try:
        run.verify()
    except ResultsError:
        newer = Run.open(run_dir)
        if newer.records == run.records:
            raise
        newer.verify()  # the writer compacted the run in between
        return newer
    return run


def _checked_records(run_dir: Path) -> list[CommitRecord]:
    """Live records whose files are there; read twice if the writer compacted the run in between."""
    records = live_records(read_records(run_dir))
    try:
        check_files(run_dir, records)
    except ResultsError:
        newer = live_records(read_records(run_dir))
        if newer == records:
            raise
        check_files(run_dir, newer)
        return newer
    return records
