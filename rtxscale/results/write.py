"""The only writer of a run: opens it, holds its lock, commits rows so that they exist whole or not at all.

A commit writes part files, then its record; the record's rename is the moment its trials begin to exist. Not for use
from several threads. Ranks never come here; the driver of a sweep (`run`) does. In a results root that stands for an
object store, `publish` brings the store's copy of the run to what has been committed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from rtxscale.errors import ResultsError
from rtxscale.results.commit import (
    CommitRecord,
    attempts,
    check_files,
    live_records,
    read_records,
    record_path,
)
from rtxscale.results.directory import create_run, newest_run, refuse_links, remove_half_made, remove_records, tidied
from rtxscale.results.disk import (
    check_root,
    check_space,
    read_file,
    remove_file,
    replace_file,
    sync_directory,
    unwritable,
)
from rtxscale.results.live import clear_live
from rtxscale.results.location import fetch_newest, mark_store, store_of
from rtxscale.results.lock import LOCK_FILE, RunLock
from rtxscale.results.manifest import Manifest, check_sweep_text, read_manifest, sweep_digest, write_manifest
from rtxscale.results.mirror import SWEEP_FILE, Mirror
from rtxscale.results.parts import discard_parts, merged_rows, write_parts
from rtxscale.results.schema import TABLES, arrow_schema
from rtxscale.spec.sweep import Sweep


class RunWriter:
    """Open run, locked for this process; a context manager."""

    def __init__(
        self,
        run_dir: Path,
        manifest: Manifest,
        records: list[CommitRecord],
        lock: RunLock,
        mirror: Mirror | None = None,
    ) -> None:
        """Keep what `open` found; `open` is the way in."""
        self.run_dir = run_dir
        self.run_id = manifest.run_id
        self._manifest = manifest
        self._records = records
        self._lock = lock
        self._mirror = mirror
        self._undecided: CommitRecord | None = None
        """A commit that an outage cut short: whether it has happened is to be found out."""
        self._late: CommitRecord | None = None
        """A commit that was reported as failed, and had happened."""
        self._present = {row[:2] for record in records for row in record.trials}
        self._next_seq = max((record.seq for record in records), default=0) + 1

    @classmethod
    def open(cls, root: Path, sweep: Sweep, sweep_text: str, *, fresh: bool = False) -> RunWriter:
        """The newest run of the same sweep, or a new one; its lock is taken and a killed writer's remains are removed.

        Raises:
            ResultsError: the root cannot be written, its disk is full, or the newest run is locked, damaged or of a
                newer schema; nothing has been written into the run then.
            StorageOutage: the object store that the root stands for does not answer.
        """
        root = root.expanduser().absolute()
        check_root(root)
        try:
            mark_store(root)
            fetch_newest(root, sweep.sweep_id)
            run_dir = newest_run(root, sweep.sweep_id) if not fresh else None
            if run_dir is None:
                run_dir = create_run(root, sweep, sweep_text, fresh=fresh)
        except OSError as error:
            raise unwritable(root, error) from error
        return cls._take(run_dir, sweep_text)

    @classmethod
    def reopen(cls, run_dir: Path) -> RunWriter:
        """Exactly this run, with the sweep file that it holds; its lock is taken as by `open`.

        Raises:
            ResultsError: it cannot be written, or is not ours, locked, damaged or of a newer schema; nothing has been
                written into it then.
        """
        run_dir = run_dir.absolute()
        manifest = read_manifest(run_dir)
        check_root(run_dir.parent)
        try:
            sweep_text = read_file(run_dir / SWEEP_FILE).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise ResultsError(f"{run_dir}: found no readable {SWEEP_FILE} ({error}); the run is damaged") from error
        check_sweep_text(run_dir, manifest.sweep_sha256, sweep_text)
        return cls._take(run_dir, sweep_text)

    @classmethod
    def _take(cls, run_dir: Path, sweep_text: str) -> RunWriter:
        """Check and lock a run, then remove what a killed writer left behind."""
        try:
            refuse_links(run_dir)
            manifest = read_manifest(run_dir)
            check_files(run_dir, live_records(read_records(run_dir)))
            lock = RunLock.take(run_dir / LOCK_FILE)
        except OSError as error:
            raise unwritable(run_dir, error) from error
        mirror = None
        try:
            store = store_of(run_dir.parent)
            mirror = Mirror.take(store, run_dir) if store else None
            writer = cls(run_dir, manifest, tidied(run_dir, sweep_text), lock, mirror)
            writer._remember(sweep_text)
            writer.publish()
            return writer
        except BaseException as error:
            if mirror:
                mirror.close()
            lock.release()
            if isinstance(error, OSError):
                raise unwritable(run_dir, error) from error
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
        rows: list[dict[str, Any]] = merged_rows(self.run_dir, table, self._records).to_pylist()
        return rows

    def check_environment(self, environment_id: str) -> None:
        """Record the environment on first use; once there are rows, later ones must be the same.

        Raises:
            ResultsError: the run was measured in another environment.
        """
        measured = self._manifest.environment_id
        if measured == environment_id:
            return
        if measured is not None and self._records:
            raise ResultsError(
                f"{self.run_dir}: found environment {environment_id} here; the run was measured in {measured}; numbers "
                "of two sets of software and hardware do not mix; start a new run: `rtxscale sweep SWEEP --fresh`"
            )
        self._lock.check()
        manifest = replace(self._manifest, environment_id=environment_id)
        try:
            write_manifest(self.run_dir, manifest)
        except OSError as error:
            raise unwritable(self.run_dir, error) from error
        self._manifest = manifest

    def commit(self, tables: Mapping[str, pa.Table]) -> None:
        """Make the rows durable, all or none. Empty tables are left out; nothing at all is no commit.

        After a `StorageOutage` it may be called again with the same rows, as often as need be: they are there once.

        Raises:
            StorageOutage: the disk is full or does not answer.
            ResultsError: the disk failed, the lock was lost, or a trial's attempt is already there.
            ValueError: a table's schema is not that of `results.schema`.
        """
        self._settle()
        late, self._late = self._late, None
        filled = {name: table for name, table in tables.items() if table.num_rows}
        for name, table in filled.items():
            if not table.schema.equals(arrow_schema(name)):
                raise ValueError(f"table {name} was not built by results.schema.table")
        trials = _trial_rows(filled.get("trials"))
        if late is not None and late.trials == trials and _heights(late) == {n: t.num_rows for n, t in filled.items()}:
            return
        again = [row[0] for row in trials if row[:2] in self._present]
        if again or len({row[:2] for row in trials}) < len(trials):
            raise ResultsError(f"{self.run_dir}: found a second row for one attempt of trial {(again or trials[0])[0]}")
        if filled:
            self._write(filled, trials, session_id=_only_session(filled.values()))

    def compact(self, session_id: str) -> None:
        """Merge the session's commits into one with one file per table, then remove the small ones.

        Raises:
            StorageOutage: the disk is full or does not answer; it may be tried again.
            ResultsError: the disk failed, or the lock was lost.
        """
        self._settle()
        small = [record for record in self._records if record.session_id == session_id]
        if len(small) < 2:
            return
        try:
            merged = {name: merged_rows(self.run_dir, name, small) for name in TABLES}
        except OSError as error:
            raise unwritable(self.run_dir, error) from error
        trials = tuple(trial for record in small for trial in record.trials)
        filled = {name: table for name, table in merged.items() if table.num_rows}
        self._write(filled, trials, session_id=session_id, supersedes=tuple(record.seq for record in small))
        try:
            remove_records(self.run_dir, small)
        except OSError as error:
            raise unwritable(self.run_dir, error) from error

    def publish(self) -> None:
        """Bring the object store's copy to what has been committed; without a store there is nothing to do.

        Raises:
            StorageOutage: the store does not answer; it may be tried again.
            ResultsError: another machine has taken the run over.
        """
        if self._mirror is None:
            return
        try:
            self._mirror.publish(self._records)
        except OSError as error:
            raise unwritable(self.run_dir, error) from error

    def discard_if_empty(self) -> None:
        """Remove the run if it has no row, as when its sweep cannot run here, and give the lock back."""
        if not self._records:
            if self._mirror:
                with contextlib.suppress(ResultsError):
                    self._mirror.discard()
            with contextlib.suppress(OSError):
                clear_live(self.run_dir)
                remove_file(self.run_dir / LOCK_FILE)
                remove_half_made(self.run_dir)
        self.close()

    def close(self) -> None:
        """Give the lock back; a second call does nothing."""
        if self._mirror:
            self._mirror.close()
        self._lock.release(partial(clear_live, self.run_dir))

    def _remember(self, sweep_text: str) -> None:
        """Keep the digest of the sweep file that the run is continued with, where it is another one."""
        digest = sweep_digest(sweep_text)
        if self._manifest.sweep_sha256 not in (None, digest):
            self._manifest = replace(self._manifest, sweep_sha256=digest)
            write_manifest(self.run_dir, self._manifest)

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
        record = CommitRecord(seq=self._next_seq, session_id=session_id, files=(), trials=trials, supersedes=supersedes)
        self._next_seq += 1  # a failed commit's number is not used again
        self._undecided = record
        try:
            check_space(self.run_dir)
            self._undecided = record = replace(record, files=write_parts(self.run_dir, record.seq, tables))
            replace_file(record_path(self.run_dir, record.seq), record.as_bytes())
        except BaseException as error:
            with contextlib.suppress(ResultsError):
                self._settle()
            if isinstance(error, OSError):
                raise unwritable(self.run_dir, error) from error
            raise
        self._undecided = None
        self._adopt(record)

    def _settle(self) -> None:
        """Find out whether a commit that an outage cut short has happened: it has if its record is there.

        Raises:
            StorageOutage: that cannot be told yet.
        """
        record = self._undecided
        if record is None:
            return
        try:
            there = record_path(self.run_dir, record.seq).is_file()
            sync_directory(record_path(self.run_dir, record.seq).parent)
        except OSError as error:
            raise unwritable(self.run_dir, error) from error
        self._undecided = None
        if there:
            self._late = record
            self._adopt(record)
        else:
            discard_parts(self.run_dir, record.seq)

    def _adopt(self, record: CommitRecord) -> None:
        """The commit has happened."""
        self._records = [kept for kept in self._records if kept.seq not in record.supersedes] + [record]
        self._present.update(row[:2] for row in record.trials)


def _heights(record: CommitRecord) -> dict[str, int]:
    """Rows of each table of a commit."""
    return {part.table: part.rows for part in record.files}


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
