"""The only writer of a run: opens it, holds its lock, commits rows so that they exist whole or not at all.

A commit writes part files, then its record; the record's rename is the moment its trials begin to exist. Not for use
from several threads. Ranks never come here; the driver of a sweep (`run`) does.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from rtxscale.errors import ResultsError
from rtxscale.results.commit import (
    COMMITS,
    PARTS,
    RECORD_NAME,
    CommitRecord,
    PartFile,
    attempts,
    check_files,
    live_records,
    read_records,
    record_path,
)
from rtxscale.results.disk import (
    check_root,
    check_space,
    make_directory,
    remove_file,
    replace_file,
    sync_directory,
    write_file,
)
from rtxscale.results.location import run_name, runs_of_sweep
from rtxscale.results.lock import LOCK_FILE, RunLock
from rtxscale.results.manifest import MANIFEST, Manifest, is_ours, new_manifest, read_manifest, write_manifest
from rtxscale.results.schema import TABLES, arrow_schema
from rtxscale.spec.sweep import Sweep

SWEEP_FILE = "sweep.yaml"
ABANDONED_S = 600.0
"""A half-made run directory untouched for this long belongs to a killed process, in seconds."""


class RunWriter:
    """Open run, locked for this process; a context manager."""

    def __init__(self, run_dir: Path, manifest: Manifest, records: list[CommitRecord], lock: RunLock) -> None:
        """Keep what `open` found; `open` is the way in."""
        self.run_dir = run_dir
        self.run_id = manifest.run_id
        self._manifest = manifest
        self._records = records
        self._lock = lock
        self._present = {row[:2] for record in records for row in record.trials}
        self._next_seq = max((record.seq for record in records), default=0) + 1

    @classmethod
    def open(cls, root: Path, sweep: Sweep, sweep_text: str, *, fresh: bool = False) -> RunWriter:
        """The newest run of the same sweep, or a new one; its lock is taken and a killed writer's remains are removed.

        Raises:
            ResultsError: the root cannot be written, its disk is full, or the newest run is locked, damaged or of a
                newer schema; nothing has been written into the run then.
        """
        root = root.expanduser().absolute()
        check_root(root)
        try:
            run_dir = _newest_run(root, sweep.sweep_id) if not fresh else None
            if run_dir is None:
                run_dir = _create_run(root, sweep, sweep_text, fresh=fresh)
        except OSError as error:
            raise _unwritable(root, error) from error
        return cls._take(run_dir, sweep_text)

    @classmethod
    def reopen(cls, run_dir: Path) -> RunWriter:
        """Exactly this run, with the sweep file that it holds; its lock is taken as by `open`.

        Raises:
            ResultsError: it cannot be written, or is not ours, locked, damaged or of a newer schema; nothing has been
                written into it then.
        """
        run_dir = run_dir.absolute()
        read_manifest(run_dir)
        check_root(run_dir.parent)
        try:
            sweep_text = (run_dir / SWEEP_FILE).read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            raise ResultsError(f"{run_dir}: found no readable {SWEEP_FILE} ({error}); the run is damaged") from error
        return cls._take(run_dir, sweep_text)

    @classmethod
    def _take(cls, run_dir: Path, sweep_text: str) -> RunWriter:
        """Check and lock a run, then remove what a killed writer left behind."""
        try:
            manifest = read_manifest(run_dir)
            check_files(run_dir, live_records(read_records(run_dir)))
            lock = RunLock.take(run_dir / LOCK_FILE)
        except OSError as error:
            raise _unwritable(run_dir, error) from error
        try:
            return cls(run_dir, manifest, _tidied(run_dir, sweep_text), lock)
        except BaseException as error:
            lock.release()
            if isinstance(error, OSError):
                raise _unwritable(run_dir, error) from error
            raise

    def __enter__(self) -> Self:
        """The writer itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the lock back."""
        self.close()

    def attempts(self) -> dict[str, list[str]]:
        """Trial id -> outcomes so far, by attempt."""
        return attempts(self._records)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All committed rows of a small table."""
        rows: list[dict[str, Any]] = _merged(self.run_dir, table, self._records).to_pylist()
        return rows

    def check_environment(self, environment_id: str) -> None:
        """Record the environment on first use; later ones must be the same.

        Raises:
            ResultsError: the run was measured in another environment.
        """
        measured = self._manifest.environment_id
        if measured == environment_id:
            return
        if measured is not None:
            raise ResultsError(
                f"{self.run_dir}: found environment {environment_id} here; the run was measured in {measured}; numbers "
                "of two sets of software and hardware do not mix; start a new run: `rtxscale sweep SWEEP --fresh`"
            )
        self._lock.check()
        self._manifest = replace(self._manifest, environment_id=environment_id)
        try:
            write_manifest(self.run_dir, self._manifest)
        except OSError as error:
            raise _unwritable(self.run_dir, error) from error

    def commit(self, tables: Mapping[str, pa.Table]) -> None:
        """Make the rows durable, all or none. Empty tables are left out; nothing at all is no commit.

        Raises:
            ResultsError: the disk is full or failed, the lock was lost, or a trial's attempt is already there.
            ValueError: a table's schema is not that of `results.schema`.
        """
        filled = {name: table for name, table in tables.items() if table.num_rows}
        for name, table in filled.items():
            if not table.schema.equals(arrow_schema(name)):
                raise ValueError(f"table {name} was not built by results.schema.table")
        trials = _trial_rows(filled.get("trials"))
        again = [row[0] for row in trials if row[:2] in self._present]
        if again or len({row[:2] for row in trials}) < len(trials):
            raise ResultsError(f"{self.run_dir}: found a second row for one attempt of trial {(again or trials[0])[0]}")
        if filled:
            self._write(filled, trials, session_id=_only_session(filled.values()))

    def compact(self, session_id: str) -> None:
        """Merge the session's commits into one with one file per table, then remove the small ones.

        Raises:
            ResultsError: the disk is full or failed, or the lock was lost.
        """
        small = [record for record in self._records if record.session_id == session_id]
        if len(small) < 2:
            return
        merged = {name: _merged(self.run_dir, name, small) for name in TABLES}
        trials = tuple(trial for record in small for trial in record.trials)
        filled = {name: table for name, table in merged.items() if table.num_rows}
        self._write(filled, trials, session_id=session_id, supersedes=tuple(record.seq for record in small))
        try:
            _remove_records(self.run_dir, small)
        except OSError as error:
            raise _unwritable(self.run_dir, error) from error

    def discard_if_empty(self) -> None:
        """Remove the run if it has no row, as when its sweep cannot run here, and give the lock back."""
        if not self._records:
            with contextlib.suppress(OSError):
                remove_file(self.run_dir / LOCK_FILE)
                _remove_half_made(self.run_dir)
        self.close()

    def close(self) -> None:
        """Give the lock back; a second call does nothing."""
        self._lock.release()

    def _write(
        self,
        tables: Mapping[str, pa.Table],
        trials: tuple[tuple[str, int, str], ...],
        *,
        session_id: str | None,
        supersedes: tuple[int, ...] = (),
    ) -> None:
        """Part files, then the record; parts of a failed commit are removed as far as the disk lets us."""
        self._lock.check()
        check_space(self.run_dir)
        seq = self._next_seq
        self._next_seq += 1  # a failed commit's number is not used again
        record = CommitRecord(seq=seq, session_id=session_id, files=(), trials=trials, supersedes=supersedes)
        path = record_path(self.run_dir, seq)
        try:
            record = replace(record, files=_write_parts(self.run_dir, seq, tables))
            replace_file(path, record.as_bytes())
        except OSError as error:
            raise _unwritable(self.run_dir, error) from error
        finally:
            if path.exists():
                self._records = [kept for kept in self._records if kept.seq not in supersedes] + [record]
                self._present.update(row[:2] for row in trials)
            else:
                _discard(self.run_dir, seq)


def _newest_run(root: Path, sweep_id: str) -> Path | None:
    """The run of this sweep with the highest number; what only looks like one is passed over."""
    ours = [path for _, path in runs_of_sweep(root, sweep_id) if is_ours(path)]
    return ours[-1] if ours else None


def _create_run(root: Path, sweep: Sweep, sweep_text: str, *, fresh: bool) -> Path:
    """Make a run directory under a temporary name and rename it into place, whole."""
    _remove_abandoned(root, sweep.sweep_id)
    temporary = root / f".{sweep.sweep_id}-{secrets.token_hex(4)}.new"
    while True:
        number = max((number for number, _ in runs_of_sweep(root, sweep.sweep_id)), default=0) + 1
        run_dir = root / run_name(sweep.name, sweep.sweep_id, number)
        if not temporary.exists():
            make_directory(temporary)
            make_directory(temporary / PARTS)
            make_directory(temporary / COMMITS)
            write_file(temporary / SWEEP_FILE, sweep_text.encode())
        write_file(temporary / MANIFEST, new_manifest(run_dir.name, sweep).as_bytes(), exclusive=False)
        sync_directory(temporary)
        try:
            temporary.rename(run_dir)
        except OSError:
            if not run_dir.exists():
                raise
            if fresh or not is_ours(run_dir):
                continue  # somebody else took this number between the look and the rename
            _remove_half_made(temporary)
            return run_dir
        sync_directory(root)
        return run_dir


def _remove_abandoned(root: Path, sweep_id: str) -> None:
    for path in root.glob(f".{sweep_id}-*.new"):
        if time.time() - path.stat().st_mtime > ABANDONED_S:
            _remove_half_made(path)


def _remove_half_made(directory: Path) -> None:
    """Remove a run directory that never got its name; it holds no rows."""
    for name in (MANIFEST, SWEEP_FILE):
        remove_file(directory / name)
    for path in (directory / PARTS, directory / COMMITS, directory):
        if path.exists():
            path.rmdir()


def _tidied(run_dir: Path, sweep_text: str) -> list[CommitRecord]:
    """Live records after removing what a killed writer left behind; the caller holds the lock."""
    records = read_records(run_dir)
    live = live_records(records)
    check_files(run_dir, live)
    kept = {record.seq for record in live}
    _remove_records(run_dir, [record for record in records if record.seq not in kept])
    committed = {part.path for record in live for part in record.files}
    for path in (run_dir / PARTS).iterdir():
        if f"{PARTS}/{path.name}" not in committed:
            remove_file(path)
    for path in (*run_dir.glob(".*.tmp"), *(run_dir / COMMITS).iterdir()):
        if not RECORD_NAME.fullmatch(path.name):
            remove_file(path)
    if (run_dir / SWEEP_FILE).read_bytes() != sweep_text.encode():
        replace_file(run_dir / SWEEP_FILE, sweep_text.encode())
    return live


def _remove_records(run_dir: Path, records: list[CommitRecord]) -> None:
    """Remove superseded records, oldest first, then their files: a record never outlives one that silences it."""
    for record in sorted(records, key=lambda record: record.seq):
        remove_file(record_path(run_dir, record.seq))
    sync_directory(run_dir / COMMITS)
    for part in (part for record in records for part in record.files):
        remove_file(run_dir / part.path)


def _write_parts(run_dir: Path, seq: int, tables: Mapping[str, pa.Table]) -> tuple[PartFile, ...]:
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


def _discard(run_dir: Path, seq: int) -> None:
    """Remove the parts of a commit that has no record; what cannot be removed goes when the run is next opened."""
    try:
        for path in (run_dir / PARTS).glob(f"{seq:08d}-*.parquet"):
            remove_file(path)
    except OSError:
        return


def _merged(run_dir: Path, name: str, records: list[CommitRecord]) -> pa.Table:
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


def _trial_rows(trials: pa.Table | None) -> tuple[tuple[str, int, str], ...]:
    if trials is None:
        return ()
    return tuple(zip(*(trials.column(name).to_pylist() for name in ("trial_id", "attempt", "outcome")), strict=True))


def _only_session(tables: Iterable[pa.Table]) -> str | None:
    """The one session that the rows name, if it is one."""
    named = {
        session
        for table in tables
        if "session_id" in table.column_names
        for session in table.column("session_id").unique().to_pylist()
        if session is not None
    }
    return named.pop() if len(named) == 1 else None


def _unwritable(path: Path, error: OSError) -> ResultsError:
    return ResultsError(
        f"{error.filename or path}: found {error.strerror or error} while writing results; expected a disk that can be "
        "written; what was committed before is kept; free the disk and run the sweep again"
    )
