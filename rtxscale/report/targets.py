"""Where reports and pictures may be written: over a regular file or where nothing is, in a directory that exists.

A device, pipe or link is never replaced, and no directory is made in a place that is not there. Looks only; called by
`page`, `export` and, before anything is concluded, by `cli.report`.
"""

from __future__ import annotations

import stat
from pathlib import Path

from rtxscale.errors import BadInput

KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)


def check_file(path: Path) -> Path:
    """Absolute path of a file that may be written or replaced.

    Raises:
        BadInput: something other than a regular file is there, or its directory is not.
    """
    path = _absolute(path)
    _check_parent(path)
    found = _found(path)
    if found not in ("", "a file"):
        raise BadInput(f"{path}: found {found}; expected a regular file, or nothing yet; nothing was written")
    return path


def check_directory(path: Path) -> Path:
    """Absolute path of a directory that is there, or can be made in one that is.

    Raises:
        BadInput: something else is there, or the directory above is missing.
    """
    path = _absolute(path)
    if path.is_dir():
        return path
    _check_parent(path)
    found = _found(path)
    if found:
        raise BadInput(f"{path}: found {found}; expected a directory, or nothing yet; nothing was written")
    return path


def _absolute(path: Path) -> Path:
    try:
        return path.expanduser().absolute()
    except RuntimeError as error:
        raise BadInput(f"{path}: found no such home directory; expected a path; nothing was written") from error


def _check_parent(path: Path) -> None:
    if not path.parent.is_dir():
        raise BadInput(f"{path}: found no directory {path.parent}; make it first; nothing was written")


def _found(path: Path) -> str:
    """What is at a path, in words; empty when nothing is."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return ""
    return next((words for is_kind, words in KINDS if is_kind(mode)), "a file")
