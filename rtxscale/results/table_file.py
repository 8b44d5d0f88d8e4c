"""A run's table as one Parquet file with exactly the schema's columns and metadata, however many files it lies in.

Written commit by commit, so that a long run's telemetry is never in memory as a whole; the same rows give the same
bytes. For runs that are handed on: nothing of a run itself is written. Called by `report.dossier.pack`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from rtxscale.results.read import Run
from rtxscale.results.schema import arrow_schema


def write_table_file(run: Run, name: str, path: Path) -> int:
    """Write the committed rows of a table to `path`; returns how many there are.

    Raises:
        OSError: `path` cannot be written.
    """
    schema, rows = arrow_schema(name), 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for part in parts(run, name):
            writer.write_table(part.to_arrow().cast(schema).replace_schema_metadata(schema.metadata))
            rows += part.height
    return rows


def parts(run: Run, name: str) -> Iterator[pl.DataFrame]:
    """The rows of a table, commit by commit, as the run shows them."""
    for record in run.records:
        if any(part.table == name for part in record.files):
            yield replace(run, records=(record,)).frame(name).collect()
