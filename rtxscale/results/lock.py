"""One writer per run: `flock` where the file system has it, and a lease with a heartbeat for where it has not.

The lock file holds the owner's lease as JSON and is never removed; its modification time is the heartbeat. A dead
owner's lock is taken over, a living one's is refused. Called by `results.write`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import socket
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

from rtxscale.errors import ResultsError
from rtxscale.results.disk import FILE_MODE, OUTAGES, read_file, remove_file, unwritable, write_file
from rtxscale.results.small_json import is_whole, parse_small
from rtxscale.spec.printable import one_line

LOCK_FILE = "lock"
"""Its name in the directory of a run."""
HEARTBEAT_S = 10.0
LEASE_S = 60.0
"""A lease from another host or container without a heartbeat for this long is dead, in seconds."""

NO_FLOCK = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})
LEASE_BYTES = 4096


@dataclass(frozen=True, kw_only=True)
class Lease:
    """Who holds the lock. `boot_id` and `process_start` tell a process from a later one with the same number.

    `pid_namespace` tells in which container a number means that process; empty where that is not known.
    """

    pid: int
    host: str
    boot_id: str
    process_start: str
    since: str
    token: str
    pid_namespace: str = ""

    def describe(self) -> str:
        """Such as `process 4711 on box since 2026-01-31T12:00:00+00:00`."""
        return one_line(f"process {self.pid} on {self.host} since {self.since}")


def own_lease() -> Lease:
    """The lease of this process."""
    return Lease(
        pid=os.getpid(),
        host=socket.gethostname(),
        boot_id=_boot_id(),
        process_start=_process_start(os.getpid()),
        since=datetime.now(UTC).isoformat(timespec="seconds"),
        token=secrets.token_hex(8),
        pid_namespace=_pid_namespace(),
    )


def is_dead(lease: Lease, here: Lease, *, flocked: bool, age_s: float, process_start: str) -> bool:
    """Whether the owner of a lease is gone. Pure.

    A process is looked for by its number only where numbers mean the same: on this host, since this boot, in this
    container; anywhere else its heartbeat is believed. One kernel's `flock` is believed across its containers.
    `flocked`: this process just got the `flock`. `age_s`: seconds since the lease's heartbeat. `process_start`: start
    time of the process that now has the lease's number on this host, empty if there is none.
    """
    same_boot = (lease.host, lease.boot_id) == (here.host, here.boot_id)
    if same_boot and flocked:
        return True
    if same_boot and lease.pid_namespace == here.pid_namespace != "":
        return process_start != lease.process_start
    return age_s > LEASE_S


def living_owner(path: Path) -> Lease | None:
    """Who holds the lock, found out by reading alone; None if nobody living does.

    An owner on another host lives as long as its heartbeat is fresh by this host's clock.
    """
    try:
        lease, beaten_s = parse_lease(read_file(path, LEASE_BYTES)), path.stat().st_mtime
    except OSError:
        return None
    if lease is None:
        return None
    return None if owner_is_dead(lease, max(0.0, time.time() - beaten_s)) else lease


def owner_is_dead(lease: Lease, age_s: float) -> bool:
    """Whether the owner of a lease is gone, where there is no `flock`; its heartbeat is `age_s` seconds old."""
    return is_dead(lease, own_lease(), flocked=False, age_s=age_s, process_start=_process_start(lease.pid))


class RunLock:
    """The held lock of a run; released by `release()` or by the death of its process."""

    def __init__(self, path: Path, descriptor: int, lease: Lease) -> None:
        """Keep the open lock file and start the heartbeat; `take` is the way in."""
        self.path = path
        self.lease = lease
        self._descriptor = descriptor
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="rtxscale-lease", daemon=True)
        self._thread.start()

    @classmethod
    def take(cls, path: Path) -> RunLock:
        """Take the lock, over a dead owner if need be.

        Raises:
            ResultsError: a living process holds it, or the file cannot be opened.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, FILE_MODE)
        except OSError as error:
            raise ResultsError(f"{path}: found {error.strerror}; expected to open the run's lock file") from error
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ResultsError(f"{path}: found something that is no regular file; expected the run's lock file")
            lease = own_lease()
            _refuse_if_held(path, descriptor, lease)
            _write_lease(descriptor, lease)
            return cls(path, descriptor, lease)
        except BaseException:
            os.close(descriptor)
            raise

    def check(self) -> None:
        """See that the lock is still ours.

        Raises:
            StorageOutage: that cannot be told just now.
            ResultsError: another process took it over, or the file is gone.
        """
        try:
            held = parse_lease(read_file(self.path, LEASE_BYTES))
        except OSError as error:
            if error.errno in OUTAGES:
                raise unwritable(self.path, error) from error
            raise ResultsError(f"{self.path}: found {error.strerror}; the run's lock file is gone") from error
        if held is None or held.token != self.lease.token:
            owner = held.describe() if held else "nobody"
            raise ResultsError(f"{self.path}: found it held by {owner}; this process lost the lock and must stop")

    def release(self, at_the_end: Callable[[], None] = lambda: None) -> None:
        """Give the lock back; a second call does nothing.

        `at_the_end` is called when nobody is named as the owner any more, and nobody else can have become it yet.
        """
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join()
        with contextlib.suppress(ResultsError, OSError):
            self.check()
            os.ftruncate(self._descriptor, 0)
            at_the_end()
        os.close(self._descriptor)

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_S):
            with contextlib.suppress(OSError):
                os.utime(self._descriptor)


def _refuse_if_held(path: Path, descriptor: int, here: Lease) -> None:
    flocked = _flock(path, descriptor)
    lease = parse_lease(os.pread(descriptor, LEASE_BYTES, 0))
    if lease is None:
        return
    age_s = 0.0 if (lease.host, lease.boot_id) == (here.host, here.boot_id) and flocked else _age_s(path)
    if not is_dead(lease, here, flocked=flocked, age_s=age_s, process_start=_process_start(lease.pid)):
        raise _held(path, lease)


def _flock(path: Path, descriptor: int) -> bool:
    """Whether the `flock` was taken; False where the file system has none."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _held(path, parse_lease(os.pread(descriptor, LEASE_BYTES, 0))) from None
    except OSError as error:
        if error.errno in NO_FLOCK:
            return False
        raise ResultsError(f"{path}: found {error.strerror} while locking the run") from error
    return True


def _held(path: Path, lease: Lease | None) -> ResultsError:
    owner = lease.describe() if lease else "a process that has not said its name yet"
    return ResultsError(
        f"{path.parent}: found the run held by {owner}; expected no other writer; wait for it to end (a lease "
        f"of a host that died expires after {LEASE_S:.0f} s), or start a new run with --fresh"
    )


def _write_lease(descriptor: int, lease: Lease) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(asdict(lease)).encode(), 0)
    os.fsync(descriptor)


def parse_lease(data: bytes) -> Lease | None:
    """The lease in the lock file; None when it is empty, was cut off while being written, or is something else."""
    try:
        content = parse_small(data)
    except ValueError:
        return None
    known = {field.name for field in fields(Lease)}
    needed = known - {"pid_namespace"}
    if not isinstance(content, dict) or not needed <= content.keys() or not is_whole(content["pid"], 1):
        return None
    lease = {name: content[name] for name in known & content.keys()}
    return Lease(**lease) if all(isinstance(lease[name], str) for name in lease.keys() - {"pid"}) else None


def _age_s(path: Path) -> float:
    """Seconds since the heartbeat, by the clock of the file system, which all hosts share."""
    probe = path.with_name(f".clock-{secrets.token_hex(4)}.tmp")
    try:
        write_file(probe, b"now")
        return probe.stat().st_mtime - path.stat().st_mtime
    finally:
        remove_file(probe)


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _process_start(pid: int) -> str:
    """Start time of a process in clock ticks since boot; empty if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # Fields are counted after the command's closing parenthesis, which may itself hold spaces (proc(5), field 22).
    return text.rpartition(")")[2].split()[19]
