"""The Parquet files of commits: written with their digests, read as one table, and removed where no record names them.

Whether they exist for anybody is decided by the commit's record, not here. Caller: `results.write`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rtxscale.results.commit import PARTS, CommitRecord, PartFile
from rtxscale.results.disk import remove_file, sync_directory, write_file
from rtxscale.results.schema import arrow_schema


def write_parts(run_dir: Path, seq: int, tables: Mapping[str, pa.Table]) -> tuple[PartFile, ...]:
    """One file per table for commit `seq`, on the disk when this returns."""
    parts = []
    for name, table in tables.items():
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        data = sink.getvalue().to_pybytes()
        path = f"{PARTS}/{seq:08d}-{name}.parquet"
        write_file(run_dir / path, data)
        digest = hashlib.sha256(data).hexdigest()
        parts.append(PartFile(path=path, table=name, rows=table.num_rows, bytes=len(data), sha256=digest))
    sync_directory(run_dir / PARTS)
    return tuple(parts)


def discard_parts(run_dir: Path, seq: int) -> None:
    """Remove the files of a commit that has no record; what cannot be removed goes when the run is next opened."""
    try:
        for path in (run_dir / PARTS).glob(f"{seq:08d}-*.parquet"):
            remove_file(path)
    except OSError:
        return


def merged_rows(run_dir: Path, name: str, records: Sequence[CommitRecord]) -> pa.Table:
    """The rows of one table over all these records, in order, with today's full schema."""
    schema = arrow_schema(name)
    tables = [schema.empty_table()]
    for part in (part for record in records for part in record.files if part.table == name):
        with pq.ParquetFile(run_dir / part.path) as file:
            found = file.read(use_threads=False)
        columns = [
            found.column(column.name) if column.name in found.column_names else pa.nulls(found.num_rows, column.type)
            for column in schema
        ]
        tables.append(pa.table(columns, schema=schema))
    return pa.concat_tables(tables)
