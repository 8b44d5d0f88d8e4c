"""A dossier opened to be read: a ZIP or a directory, whose members' names and sizes are judged before any is read.

Nothing is unpacked: members are read where they are, and one whose name could leave a folder is refused. Called by
`dossier.verify`, `dossier.diff` and `cli.dossier`.
"""

from __future__ import annotations

import re
import stat
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from rtxscale.errors import BadInput

SMALL_MIB = 64
"""Most of a member that is read whole, in MiB."""
LARGEST_MIB = 64 * 1024
"""More than this, unpacked and all together, is no dossier."""
MOST_FILES = 20_000
"""More files and folders than this are no dossier."""
UNREADABLE = (OSError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)
"""What reading a damaged member raises."""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A dossier whose member names are safe; `size` is what a member says it holds, in bytes."""

    path: Path
    sizes: dict[str, int]
    stream: Callable[[str], IO[bytes]]

    def text(self, name: str) -> str:
        """A small member as text.

        Raises:
            BadInput: it is missing, too large, damaged or no text.
        """
        if name not in self.sizes:
            raise BadInput(f"{self.path}: found no {name}; expected a dossier; `rtxscale dossier` writes one")
        try:
            with self.stream(name) as file:
                content = file.read(SMALL_MIB * 2**20 + 1)
            if len(content) > SMALL_MIB * 2**20:
                raise BadInput(f"{self.path}: found more than {SMALL_MIB} MiB of {name}; expected a small file")
            return content.decode()
        except (*UNREADABLE, UnicodeDecodeError) as error:
            raise BadInput(
                f"{self.path}: found a {name} that cannot be read ({error}); get the dossier again"
            ) from error


@contextmanager
def opened(path: Path) -> Iterator[Opened]:
    """A dossier, packed or not.

    Raises:
        BadInput: it is neither a ZIP nor a directory, or a member's name leads out of it.
    """
    if path.is_dir():
        yield Opened(path=path, sizes=_files(path), stream=lambda name: (path / name).open("rb"))
        return
    if path.exists() and not path.is_file():
        raise BadInput(f"{path}: found neither a file nor a directory; expected a dossier: a ZIP or directory")
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = _members(path, archive)
            yield Opened(path=path, sizes=sizes, stream=archive.open)
    except (OSError, zipfile.BadZipFile, NotImplementedError) as error:
        raise BadInput(
            f"{path}: found no ZIP that can be read ({error}); expected a dossier: a ZIP or directory"
        ) from error


def _files(path: Path) -> dict[str, int]:
    """Names and sizes of the files in a directory, which holds nothing else and no more than a dossier does."""
    sizes: dict[str, int] = {}
    places = [path]
    seen = 0
    try:
        while places:
            for item in sorted(places.pop().iterdir()):
                name, kind = str(item.relative_to(path)), item.lstat()
                _refuse(path, [name] if stat.S_ISLNK(kind.st_mode) else [], "a link")
                seen += 1
                if stat.S_ISDIR(kind.st_mode):
                    places.append(item)
                elif not stat.S_ISREG(kind.st_mode):
                    _refuse(path, [name], "neither a file nor a directory")
                else:
                    sizes[name] = kind.st_size
            _refuse_size(path, seen, sum(sizes.values()))
    except OSError as error:
        raise BadInput(
            f"{error.filename or path}: cannot be read ({error.strerror}); expected a dossier: a ZIP or directory"
        ) from error
    return sizes


def _refuse_size(path: Path, number: int, size: int) -> None:
    """Refuses more files than a dossier has, or more bytes of them."""
    if number > MOST_FILES:
        raise BadInput(f"{path}: found more than {MOST_FILES} files; expected a dossier; nothing was read")
    if size > LARGEST_MIB * 2**20:
        raise BadInput(f"{path}: found more than {LARGEST_MIB // 1024} GiB when unpacked; expected a dossier")


def _members(path: Path, archive: zipfile.ZipFile) -> dict[str, int]:
    """Names and sizes of the files in an archive, once every name has been found safe."""
    _refuse_size(path, len(archive.infolist()), 0)
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    names = [entry.filename for entry in archive.infolist()]
    _refuse(path, [name for name in names if not is_safe(name)], "a path that leads out of the folder")
    _refuse(path, sorted(name for name, count in Counter(names).items() if count > 1), "a name twice")
    _refuse(path, [entry.filename for entry in entries if (entry.external_attr >> 16) & 0o170000 == 0o120000], "a link")
    _refuse(path, [entry.filename for entry in entries if entry.flag_bits & 1], "an encrypted file")
    _refuse_size(path, len(entries), sum(entry.file_size for entry in entries))
    return {entry.filename: entry.file_size for entry in entries}


def is_safe(name: str) -> bool:
    r"""Whether a member stays inside the folder it is unpacked into, on every system.

    >>> [is_safe(name) for name in ("tables/trials.parquet", "../x", "/etc/x", "a/../../x", "C:x", "a\\..\\x", "")]
    [True, False, False, False, False, False, False]
    """
    parts = PurePosixPath(name).parts
    plain = not re.search(r"[\\:\x00-\x1f\x7f]", name)
    return bool(parts) and plain and not name.startswith("/") and ".." not in name.split("/")


def _refuse(path: Path, names: list[str], found: str) -> None:
    if names:
        raise BadInput(
            f"{path}: found {found}: {', '.join(map(repr, names[:3]))}; expected a dossier; nothing was read"
        )
