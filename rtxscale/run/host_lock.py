"""One sweep at a time starts a Ray cluster of its own on a host, or two would both own all GPUs.

Caller: `run.cluster`.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from rtxscale.errors import RunError

PREDECESSOR_S = 5.0
"""How long to wait for a sweep that is just ending; a killed one frees its lock and its cluster in about 2 s."""


@contextmanager
def host_lock(path: Path, holder: str) -> Iterator[None]:
    """Hold this host's lock for clusters of our own; the kernel frees it when the process dies.

    Raises:
        RunError: another sweep on this host still holds it after a few seconds.
    """
    with _open_lock(path) as lock:
        deadline = time.monotonic() + PREDECESSOR_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(0.1)
                    continue
                lock.seek(0)
                raise RunError(
                    f"found another sweep running on this host ({lock.read().strip() or 'no name'}, {path}); expected "
                    "the GPUs for ourselves: wait for it, or run both on one Ray cluster one after the other"
                ) from None
        if lock.writable():
            lock.truncate(0)
            lock.write(f"process {os.getpid()}, run {holder}\n")
            lock.flush()
        yield


def _open_lock(path: Path) -> TextIO:
    """The lock file; another user's is opened for reading, which is enough to lock it."""
    try:
        return path.open("a+")
    except PermissionError:
        return path.open("r")
