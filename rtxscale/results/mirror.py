"""A run's copy in an object store: the same files, what is committed before the record that makes it exist.

The run's own directory stays the truth and keeps its commit protocol; `Mirror.publish` copies what is new of it, in an
order in which every moment is a whole run, so that neither rename nor lock is asked of the store. `fetch` brings a run
that another machine wrote. Nothing but the files of a run is copied either way, whatever else lies there. Called by
`results.write` and `results.location`.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rtxscale.errors import ResultsError
from rtxscale.results.commit import COMMITS, PARTS, CommitRecord, PartFile, live_records, read_records, record_path
from rtxscale.results.disk import make_directory, write_file
from rtxscale.results.lock import LOCK_FILE, living_owner
from rtxscale.results.manifest import MANIFEST
from rtxscale.results.object_store import ObjectStore, hide_credentials
from rtxscale.results.store_lease import StoreLease

SWEEP_FILE = "sweep.yaml"
REPORT_FILE = "report.html"
HEAD = (SWEEP_FILE, MANIFEST)
"""What a run has before its first commit; the manifest makes it a run."""
MEMBER = re.compile(r"run\.json|sweep\.yaml|report\.html|commits/\d{8}\.json|parts/\d{8}-[a-z_]+\.parquet")
COMMIT_MEMBER = re.compile(r"commits/\d{8}\.json")
LOOKS = 3
"""How often a run is looked at anew that its writer compacts while it is fetched."""


class Mirror:
    """The copy of one run, held by this process."""

    def __init__(self, store: ObjectStore, run_dir: Path, lease: StoreLease) -> None:
        """`take` is the way in."""
        self._store, self._run_dir, self._lease = store, run_dir, lease
        self._there: dict[str, str] | None = None
        """Name -> SHA-256 of what is known to be in the store; None before the first look."""

    @classmethod
    def take(cls, store: ObjectStore, run_dir: Path) -> Mirror:
        """Take the run's lease in the store.

        Raises:
            ResultsError: another process holds it.
            StorageOutage: the store does not answer.
        """
        hide_credentials()
        below = store.below(run_dir.name)
        return cls(below, run_dir, StoreLease.take(below))

    def publish(self, records: Sequence[CommitRecord]) -> None:
        """Bring the copy to these live records; what is there already is not sent again. Repeating it is harmless.

        Raises:
            ResultsError: the lease is lost.
            StorageOutage: the store does not answer; the copy is whole, but older.
            OSError: the run's own directory cannot be read.
        """
        self._lease.check()
        if self._there is None:
            self._there = self._known(records)
        for name in HEAD:
            self._put(name)
        for record in records:
            for part in record.files:
                self._put(part.path, part.sha256)
        for record in records:
            self._put(_name(record), hashlib.sha256(record.as_bytes()).hexdigest())
        wanted = {part.path for record in records for part in record.files} | {_name(record) for record in records}
        for name in sorted(set(self._there) - wanted - {*HEAD, REPORT_FILE}):  # commits first, the oldest before others
            self._store.remove(name)
            del self._there[name]

    def discard(self) -> None:
        """Take the copy of a run without rows away."""
        for name in (MANIFEST, SWEEP_FILE):
            self._store.remove(name)

    def close(self) -> None:
        """Give the lease back."""
        self._lease.release()

    def _put(self, name: str, digest: str = "") -> None:
        there = self._there if self._there is not None else {}
        if digest and there.get(name) == digest:
            return
        data = (self._run_dir / name).read_bytes()
        digest = digest or hashlib.sha256(data).hexdigest()
        if there.get(name) != digest:
            self._store.write(name, data)
            there[name] = digest

    def _known(self, records: Sequence[CommitRecord]) -> dict[str, str]:
        """What the store holds of these records; everything else of a run counts as there with another content.

        Raises:
            ResultsError: it holds a trial that is in none of them: somebody has written since the run was fetched.
        """
        found = {name: "" for name in self._store.names() if MEMBER.fullmatch(name)}
        there = {name: self._store.read(name) for name in found if COMMIT_MEMBER.fullmatch(name)}
        ours = {row for record in records for row in record.trials}
        if any(not trials_in(data) <= ours for data in there.values()):
            raise ResultsError(
                f"{self._store.url}: found trials there that were put since the run was fetched; expected no other "
                "writer: run the same command again when the other one has ended"
            )
        for record in records:
            if there.get(_name(record)) == record.as_bytes():
                found[_name(record)] = hashlib.sha256(record.as_bytes()).hexdigest()
                found |= {part.path: part.sha256 for part in record.files if part.path in found}
        return found


def trials_in(record: bytes) -> set[tuple[str, int, str]]:
    """The trials of a commit record as it lies in a store; none of one that is damaged."""
    try:
        return {(str(trial), int(attempt), str(outcome)) for trial, attempt, outcome in json.loads(record)["trials"]}
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return set()


def send_report(store: ObjectStore, run_dir: Path) -> None:
    """Put a run's report beside its rows in the store.

    Raises:
        StorageOutage: the store does not answer.
        OSError: there is no report to be read.
    """
    store.below(run_dir.name).write(REPORT_FILE, (run_dir / REPORT_FILE).read_bytes())


@dataclass(frozen=True, kw_only=True)
class Copies:
    """Live records here and there, and all records there."""

    here: Sequence[CommitRecord]
    there: Sequence[CommitRecord]
    all_there: Sequence[CommitRecord]


def to_fetch(copies: Copies) -> bool | None:
    """Whether the store's copy replaces ours; False keeps ours, None says that each has what the other lacks. Pure."""
    if list(copies.here) == list(copies.there):
        return False
    here, there = ({row for record in records for row in record.trials} for records in (copies.here, copies.there))
    if here <= there:
        return True
    mine = {record.seq: record for record in copies.here}
    clash = any(mine.get(record.seq, record) != record for record in copies.all_there)
    return False if there <= here and not clash else None


def fetch(store: ObjectStore, run_dir: Path) -> None:
    """Bring a run of the store here if it holds more than what is here; one that is being written here is left alone.

    Raises:
        ResultsError: it is damaged, or each copy has what the other lacks.
        StorageOutage: the store does not answer.
        OSError: nothing can be written here.
    """
    below = store.below(run_dir.name)
    if living_owner(run_dir / LOCK_FILE) is not None:
        return
    for look in range(LOOKS):
        names = below.names()
        if MANIFEST not in names:
            return
        temporary = run_dir.parent / f".{run_dir.name}-{secrets.token_hex(4)}.fetched"
        try:
            if _fetched(below, sorted(names), temporary, run_dir):
                _replace(run_dir, temporary)
            return
        except FileNotFoundError as error:  # its writer has compacted it meanwhile
            if look == LOOKS - 1:
                raise ResultsError(f"{below.url}: found objects missing that its records name ({error})") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _fetched(store: ObjectStore, names: Sequence[str], temporary: Path, run_dir: Path) -> bool:
    """Fill the temporary directory with the store's copy; False where ours is to be kept."""
    for directory in (temporary, temporary / COMMITS, temporary / PARTS):
        make_directory(directory)
    for name in filter(COMMIT_MEMBER.fullmatch, names):
        write_file(temporary / name, store.read(name))
    everything = read_records(temporary)
    there = live_records(everything)
    if run_dir.exists() and not _to_replace(store, run_dir, there, everything):
        return False
    for record in everything:
        if record not in there:
            record_path(temporary, record.seq).unlink()
    for part in (part for record in there for part in record.files):
        write_file(temporary / part.path, _checked(store, part))
    for name in (*HEAD, *({REPORT_FILE} & set(names))):
        write_file(temporary / name, store.read(name))
    return True


def _checked(store: ObjectStore, part: PartFile) -> bytes:
    """The content of a committed file."""
    data = store.read(part.path)
    if hashlib.sha256(data).hexdigest() != part.sha256:
        raise ResultsError(
            f"{store.url}/{part.path}: found another content than was committed; expected the run whole: restore the "
            "object from a copy, or start a new run with --fresh"
        )
    return data


def _to_replace(
    store: ObjectStore, run_dir: Path, there: Sequence[CommitRecord], everything: Sequence[CommitRecord]
) -> bool:
    here = live_records(read_records(run_dir))
    wanted = to_fetch(Copies(here=here, there=there, all_there=everything))
    if wanted is None:
        raise ResultsError(
            f"{run_dir}: found finished trials that {store.url} lacks, and others there that are missing here; "
            "expected one of them to hold all, as two machines have continued the run apart: move this directory "
            "away to go on with the store's, or use --fresh"
        )
    return wanted


def _replace(run_dir: Path, temporary: Path) -> None:
    old = temporary.with_suffix(".old")
    if run_dir.exists():
        run_dir.rename(old)
    temporary.rename(run_dir)
    shutil.rmtree(old, ignore_errors=True)


def _name(record: CommitRecord) -> str:
    return f"{COMMITS}/{record.seq:08d}.json"
