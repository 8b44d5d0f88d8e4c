"""Processes of this host, as /proc shows them: who is below whom, what they were started with, whether they live.

Only reads and sends signals; whose processes they are is the caller's to know. Callers: `run.cluster`, `run.watchers`,
`run.occupancy`, `run.torchrun_session`.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")
MACHINES_OWN_PIDS = "pid:[4026531836]"
"""The process id namespace of the machine itself (Linux, include/linux/proc_ns.h, PROC_PID_INIT_INO); a container has
another, in which the machine's ids mean nothing."""


def is_alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        return (PROC / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def descendants(pid: int) -> list[int]:
    """All processes below `pid`, nearest first."""
    children: dict[int, list[int]] = {}
    for status in PROC.glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError):
            continue
        children.setdefault(parent, []).append(int(status.parent.name))
    found = children.get(pid, [])[:]
    for child in found:
        found += children.get(child, [])
    return found


def exists(pid: int) -> bool:
    """Whether this host knows a process of this id, dead or alive."""
    return (PROC / str(pid)).exists()


def ancestors(pid: int) -> list[int]:
    """The process that started `pid`, the one that started that, and so on; nothing if it is gone."""
    found: list[int] = []
    while pid > 1:
        try:
            pid = int((PROC / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError, ValueError):
            break
        found.append(pid)
    return found


def name_of(pid: int) -> str:
    """The program's short name, without path, arguments or user; empty if it is gone."""
    try:
        return " ".join((PROC / str(pid) / "comm").read_text(errors="replace").split())
    except OSError:
        return ""


def knows_machine() -> bool:
    """Whether process ids here are those of the machine, as the driver tells them; not so in most containers."""
    try:
        return str((PROC / "self" / "ns" / "pid").readlink()) == MACHINES_OWN_PIDS
    except OSError:
        return False


def has_open(pid: int, prefix: str) -> bool:
    """Whether the process has a file open whose path begins so; False where this user may not see."""
    try:
        links = list((PROC / str(pid) / "fd").iterdir())
    except OSError:
        return False
    return any(_target(link).startswith(prefix) for link in links)


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


def environment_of(pid: int) -> dict[str, str]:
    """The variables a process was started with; nothing if it is gone or another user's."""
    try:
        text = (PROC / str(pid) / "environ").read_text(errors="replace")
    except OSError:
        return {}
    return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)


def started_with(name: str) -> dict[int, str]:
    """Value of a variable by process, for those that were started with it."""
    pids = [int(directory.name) for directory in PROC.glob("[0-9]*")]
    found = {pid: environment_of(pid).get(name) for pid in pids}
    return {pid: value for pid, value in found.items() if value is not None}


def kill(pids: Iterable[int]) -> None:
    """SIGKILL to each; those that are gone already are passed over."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
