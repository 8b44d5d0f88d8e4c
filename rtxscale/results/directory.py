"""A run's directory as files: made whole under a temporary name, tidied after a killed writer, thinned by compaction.

Which rows are committed is decided by `results.write`, the only caller, which holds the run's lock where there is one.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from pathlib import Path

from rtxscale.errors import ResultsError
from rtxscale.results.commit import (
    COMMITS,
    PART_NAME,
    PARTS,
    CommitRecord,
    check_files,
    live_records,
    read_records,
    record_path,
)
from rtxscale.results.disk import make_directory, read_file, remove_file, replace_file, sync_directory, write_file
from rtxscale.results.location import run_name, runs_of_sweep
from rtxscale.results.manifest import MANIFEST, is_ours, new_manifest
from rtxscale.results.mirror import SWEEP_FILE
from rtxscale.spec.printable import one_line
from rtxscale.spec.sweep import Sweep

ABANDONED_S = 600.0
"""A half-made run directory untouched for this long belongs to a killed process, in seconds."""
TEMPORARY = re.compile(
    r"\.(\d{8}\.json|run\.json|sweep\.yaml|live\.json|stop|clock-[0-9a-f]{8})(\.[0-9a-f]{8})?\.tmp", re.ASCII
)
"""What a killed writer may have left unfinished."""


def newest_run(root: Path, sweep_id: str) -> Path | None:
    """The run of this sweep with the highest number; what only looks like one is passed over."""
    ours = [path for _, path in runs_of_sweep(root, sweep_id) if is_ours(path)]
    return ours[-1] if ours else None


def create_run(root: Path, sweep: Sweep, sweep_text: str, *, fresh: bool) -> Path:
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
        write_file(temporary / MANIFEST, new_manifest(run_dir.name, sweep, sweep_text).as_bytes(), exclusive=False)
        sync_directory(temporary)
        try:
            temporary.rename(run_dir)
        except OSError:
            if not run_dir.exists():
                raise
            if fresh or not is_ours(run_dir):
                continue  # somebody else took this number between the look and the rename
            remove_half_made(temporary)
            return run_dir
        sync_directory(root)
        return run_dir


def _remove_abandoned(root: Path, sweep_id: str) -> None:
    for path in root.glob(f".{sweep_id}-*.new"):
        with contextlib.suppress(OSError, ResultsError):  # somebody else's, or something in it is: it may stay
            if not path.is_symlink() and time.time() - path.stat().st_mtime > ABANDONED_S:
                refuse_links(path)
                remove_half_made(path)


def remove_half_made(directory: Path) -> None:
    """Remove a run directory that never got its name; it holds no rows."""
    for name in (MANIFEST, SWEEP_FILE):
        remove_file(directory / name)
    for path in (directory / PARTS, directory / COMMITS, directory):
        if path.exists():
            path.rmdir()


def refuse_links(run_dir: Path) -> None:
    """See that nothing of a run is a symbolic link: what is written or removed through one is somebody else's.

    Raises:
        ResultsError: something is.
        OSError: the directory cannot be listed.
    """
    places = [run_dir, *(place for place in (run_dir / PARTS, run_dir / COMMITS) if place.is_dir())]
    links = sorted(str(path.relative_to(run_dir)) for place in places for path in place.iterdir() if path.is_symlink())
    if links:
        raise ResultsError(
            f"{run_dir}: found {one_line(links[0])} to be a symbolic link; expected a run whose files are its own; "
            "nothing was written there: copy the run with its links resolved if you trust it, or start a new run with "
            "--fresh"
        )


def tidied(run_dir: Path, sweep_text: str) -> list[CommitRecord]:
    """Live records after removing what a killed writer left behind; the caller holds the lock.

    Only names that a writer gives are ever removed.
    """
    records = read_records(run_dir)
    live = live_records(records)
    check_files(run_dir, live)
    kept = {record.seq for record in live}
    remove_records(run_dir, [record for record in records if record.seq not in kept])
    committed = {part.path for record in live for part in record.files}
    for path in (run_dir / PARTS).iterdir():
        if PART_NAME.fullmatch(path.name) and f"{PARTS}/{path.name}" not in committed:
            remove_file(path)
    for path in (*run_dir.glob(".*.tmp"), *(run_dir / COMMITS).iterdir()):
        if TEMPORARY.fullmatch(path.name):
            remove_file(path)
    if read_file(run_dir / SWEEP_FILE) != sweep_text.encode():
        replace_file(run_dir / SWEEP_FILE, sweep_text.encode())
    return live


def remove_records(run_dir: Path, records: list[CommitRecord]) -> None:
    """Remove superseded records, oldest first, then their files: a record never outlives one that silences it."""
    for record in sorted(records, key=lambda record: record.seq):
        remove_file(record_path(run_dir, record.seq))
    sync_directory(run_dir / COMMITS)
    for part in (part for record in records for part in record.files):
        remove_file(run_dir / part.path)
