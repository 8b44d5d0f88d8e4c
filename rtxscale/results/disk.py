"""Durable steps on a local or NFS disk: whole files, atomic replacement, private modes.

Every change that the result store makes to a disk is one of these few steps, so that a test can kill the writer between
any two of them. No knowledge of runs or tables. Called by the other modules of `results`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
from pathlib import Path

from rtxscale.errors import ResultsError, StorageOutage

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
MIN_FREE_MIB = 64
"""Less free space than this counts as a full disk, in MiB."""

PROBE_BYTES = 4096
MAX_BYTES = 64 * 2**20
"""More than any record, manifest or sweep file of a run has."""
OUTAGES = frozenset(
    getattr(errno, name)
    for name in (
        *("ENOSPC", "EDQUOT", "EIO", "EREMOTEIO", "ESTALE", "ETIMEDOUT", "EHOSTDOWN", "EHOSTUNREACH"),
        *("ENETDOWN", "ENETUNREACH", "ECONNREFUSED", "ECONNRESET", "ENOTCONN"),
    )
)
"""What a full disk and a file server that is away answer with: somebody can mend it while a sweep waits."""


def write_file(path: Path, data: bytes, *, exclusive: bool = True) -> None:
    """Write a whole file and flush it to the disk; `exclusive` refuses to touch one that exists. No link is followed.

    The directory entry itself is durable only after `sync_directory`.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_EXCL if exclusive else os.O_TRUNC)
    descriptor = os.open(path, flags, FILE_MODE)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes) -> None:
    """Put a whole file in place: readers see the old content or the new, never a part. Durable on return."""
    temporary = temporary_for(path)
    try:
        write_file(temporary, data)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            remove_file(temporary)
        raise
    sync_directory(path.parent)


def temporary_for(path: Path) -> Path:
    """A name beside `path` that nobody can have put something under before."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def read_file(path: Path, limit: int = MAX_BYTES) -> bytes:
    """The content of a file that anybody may have put there; a FIFO and the like is refused, not waited for.

    Raises:
        OSError: it cannot be read, is no regular file, or has more than `limit` bytes.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(errno.EINVAL, "something that is no regular file", str(path))
        if facts.st_size > limit:
            raise OSError(errno.EFBIG, f"more than {limit} bytes", str(path))
        return file.read(limit)


def sync_directory(path: Path) -> None:
    """Make the directory's entries durable: files created, renamed or removed in it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Create one directory that only its owner can enter."""
    path.mkdir(DIRECTORY_MODE)


def remove_file(path: Path) -> None:
    """Remove a file; one that is already gone is fine."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def unwritable(path: Path, error: OSError) -> ResultsError:
    """The error to raise for one that a disk gave while `path` was written; a `StorageOutage` if it may pass."""
    kind = StorageOutage if error.errno in OUTAGES else ResultsError
    return kind(
        f"{error.filename or path}: found {error.strerror or error} while writing results; expected a disk that can be "
        "written; what was committed before is kept; free the disk and run the sweep again"
    )


def check_space(path: Path) -> None:
    """See that the disk that holds `path` is not full.

    Raises:
        StorageOutage: less than `MIN_FREE_MIB` are free.
        OSError: the disk does not answer.
    """
    free_mib = shutil.disk_usage(path).free / 2**20
    if free_mib < MIN_FREE_MIB:
        raise StorageOutage(
            f"{path}: found {free_mib:.0f} MiB free on its disk; expected at least {MIN_FREE_MIB} MiB; "
            "free some space or set RTXSCALE_RESULTS to another disk"
        )


def check_root(root: Path) -> None:
    """Make the results root if it is missing and see that it can be written, before anything runs.

    Raises:
        ResultsError: the root is not a directory, cannot be made or written, or its disk is full.
    """
    try:
        root.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        check_space(root)
        probe = root / f".rtxscale-probe-{secrets.token_hex(4)}"
        try:
            write_file(probe, bytes(PROBE_BYTES))
        finally:
            remove_file(probe)
    except OSError as error:
        raise ResultsError(
            f"{root}: found {error.strerror or error} while trying to write there; expected a directory that can be "
            "written; set RTXSCALE_RESULTS to one"
        ) from error
