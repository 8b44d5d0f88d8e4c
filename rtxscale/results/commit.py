"""Commit records: the files that make trials exist, and which of them are still alive.

A part file without a commit record is nothing; a record that another one supersedes is nothing. Reading never writes.
Called by `results.write` and `results.read`.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rtxscale.errors import ResultsError, StorageOutage
from rtxscale.results.disk import OUTAGES, read_file
from rtxscale.results.schema import SCHEMA_VERSION, TABLES
from rtxscale.results.small_json import is_whole, parse_small

COMMITS = "commits"
PARTS = "parts"
RECORD_NAME = re.compile(r"(\d{8})\.json", re.ASCII)
PART_NAME = re.compile(r"\d{8}-[a-z_]+\.parquet", re.ASCII)
LOOKS = 100
"""How often a directory is listed anew whose writer compacts it meanwhile."""


@dataclass(frozen=True, kw_only=True)
class PartFile:
    """One Parquet file: path relative to the run directory, its table, rows, size and SHA-256."""

    path: str
    table: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class CommitRecord:
    """One commit. `session_id` is None when its rows are of no session or of several.

    `trials` holds trial id, attempt and outcome of each row of the trials table; `supersedes` the sequence numbers of
    the records whose rows this one holds again.
    """

    seq: int
    session_id: str | None
    files: tuple[PartFile, ...]
    trials: tuple[tuple[str, int, str], ...]
    supersedes: tuple[int, ...] = field(default=())
    schema_version: int = SCHEMA_VERSION

    def as_bytes(self) -> bytes:
        """The content of the record's file."""
        return (json.dumps({"rtxscale": "commit", **asdict(self)}) + "\n").encode()


def record_path(run_dir: Path, seq: int) -> Path:
    """Where the record with this sequence number lives."""
    return run_dir / COMMITS / f"{seq:08d}.json"


def read_records(run_dir: Path) -> list[CommitRecord]:
    """All records on disk in order of their sequence numbers, superseded ones included.

    Raises:
        ResultsError: the directory of records is missing, or a record is damaged or of a newer schema.
    """
    directory = run_dir / COMMITS
    for _ in range(LOOKS):
        try:
            names = sorted(path.name for path in directory.iterdir() if RECORD_NAME.fullmatch(path.name))
        except OSError as error:
            raise ResultsError(f"{directory}: found {error.strerror}; expected the run's commit records") from error
        try:
            return [_parse(directory / name) for name in names]
        except FileNotFoundError:
            continue  # superseded and removed by the writer since the listing: the newer record is read instead
    raise ResultsError(
        f"{directory}: found records that cannot be opened, such as links to nothing; expected commit records; restore "
        "them from a copy, or start a new run with --fresh; nothing was written"
    )


def live_records(records: Iterable[CommitRecord]) -> list[CommitRecord]:
    """The records that no other one supersedes.

    A superseded record still silences those that it superseded itself, in case both outlived a crash.
    """
    records = list(records)
    dead = {seq for record in records for seq in record.supersedes}
    return [record for record in records if record.seq not in dead]


def attempts(records: Iterable[CommitRecord]) -> dict[str, list[str]]:
    """Trial id -> outcomes so far, in order of attempt."""
    rows = sorted({trial for record in records for trial in record.trials}, key=lambda trial: (trial[0], trial[1]))
    outcomes: dict[str, list[str]] = {}
    for trial_id, _, outcome in rows:
        outcomes.setdefault(trial_id, []).append(outcome)
    return outcomes


def check_files(run_dir: Path, records: Iterable[CommitRecord]) -> None:
    """See that every committed file is there and has its committed size; contents are not read.

    Raises:
        ResultsError: files are missing or of another size; the message names the first few.
    """
    problems = []
    for part in (part for record in records for part in record.files):
        try:
            facts = (run_dir / part.path).stat()
        except OSError:
            problems.append(f"{part.path} is missing")
            continue
        size = facts.st_size
        if not stat.S_ISREG(facts.st_mode):
            problems.append(f"{part.path} is no regular file")
        elif size != part.bytes:
            problems.append(f"{part.path} has {size} bytes instead of {part.bytes}")
    raise_damage(run_dir, problems)


def raise_damage(run_dir: Path, problems: list[str]) -> None:
    """Raise one error for all damaged files, if there are any.

    Raises:
        ResultsError: `problems` is not empty.
    """
    if problems:
        shown = "; ".join(problems[:3]) + (f"; and {len(problems) - 3} more" if len(problems) > 3 else "")
        raise ResultsError(
            f"{run_dir}: found damaged results: {shown}; expected what the commit records say; restore the files from "
            "a copy, or start a new run with --fresh; nothing was written"
        )


def _parse(path: Path) -> CommitRecord:
    try:
        text = read_file(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        kind = StorageOutage if error.errno in OUTAGES else ResultsError
        raise kind(f"{path}: found {error.strerror}; expected a commit record; nothing was written") from error
    try:
        content = parse_small(text)
        version = content["schema_version"]
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise ResultsError(f"{path}: found schema {version}; this rtxscale reads up to {SCHEMA_VERSION}")
        return _record(content, int(path.stem))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResultsError(
            f"{path}: found a damaged commit record ({error}); restore it from a copy, or start a new run "
            "with --fresh; nothing was written"
        ) from error


def _record(content: dict[str, Any], seq: int) -> CommitRecord:
    """A record from its JSON; anything out of place is a ValueError, KeyError or TypeError."""
    if content["seq"] != seq:
        raise ValueError(f"sequence number {content['seq']} under the name of {seq}")
    files = tuple(PartFile(**item) for item in content["files"])
    for part in files:
        if not all(isinstance(text, str) for text in (part.path, part.table, part.sha256)):
            raise TypeError("a file whose path, table or checksum is no text")
        folder, _, name = part.path.partition("/")
        if part.table not in TABLES or folder != PARTS or not PART_NAME.fullmatch(name):
            raise ValueError(f"unexpected file {part.path!r} of table {part.table!r}")
        if not (is_whole(part.rows) and is_whole(part.bytes)):
            raise TypeError(f"file {part.path} without whole numbers of rows and bytes")
    if not isinstance(content["session_id"], str | None):
        raise TypeError("a session that is no text")
    numbers = [attempt for _, attempt, _ in content["trials"]] + list(content["supersedes"])
    if not all(map(is_whole, [*numbers, content["schema_version"]])):
        raise TypeError("an attempt, a superseded record or a schema version that is no whole number")
    return CommitRecord(
        seq=seq,
        session_id=content["session_id"],
        files=files,
        trials=tuple((str(trial), attempt, str(outcome)) for trial, attempt, outcome in content["trials"]),
        supersedes=tuple(content["supersedes"]),
        schema_version=content["schema_version"],
    )
