"""Whether a dossier is whole: files against checksums, lines against the list, nothing empty, no path leading out.

Nothing is unpacked: members are read where they are, and one whose name could leave a folder is refused before any is
read. Called by `cli.dossier` and `report.dossier_diff`.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from rtxscale.errors import BadInput
from rtxscale.report.dossier import MARK, SCHEMA_VERSION
from rtxscale.report.dossier_facts import DECLARED, DOCUMENTED, MEASURED, NOBODY, VALUE
from rtxscale.report.dossier_lines import LINES
from rtxscale.report.dossier_pack import DATA, NEEDED, SUMS
from rtxscale.results.outcomes import SIMULATED
from rtxscale.spec.declare import NOT_APPLICABLE, UNKNOWN

SUM_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")
SMALL_MIB = 64
"""Most of a member that is read whole, in MiB."""
LARGEST_MIB = 64 * 1024
"""More than this, unpacked and all together, is no dossier."""
CHUNK = 1024 * 1024
ADDED = {"tables/logs.parquet": 2}
"""Files that older dossiers lack -> the first schema version that has them."""


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
        except (OSError, zipfile.BadZipFile, zlib.error, UnicodeDecodeError, EOFError, RuntimeError) as error:
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
        found = sorted(item for item in path.rglob("*") if item.is_symlink() or item.is_file())
        _refuse(path, [str(item.relative_to(path)) for item in found if item.is_symlink()], "a link")
        sizes = {str(item.relative_to(path)): item.stat().st_size for item in found}
        yield Opened(path=path, sizes=sizes, stream=lambda name: (path / name).open("rb"))
        return
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = _members(path, archive)
            yield Opened(path=path, sizes=sizes, stream=archive.open)
    except (OSError, zipfile.BadZipFile, NotImplementedError) as error:
        raise BadInput(
            f"{path}: found no ZIP that can be read ({error}); expected a dossier: a ZIP or directory"
        ) from error


def _members(path: Path, archive: zipfile.ZipFile) -> dict[str, int]:
    """Names and sizes of the files in an archive, once every name has been found safe."""
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    names = [entry.filename for entry in archive.infolist()]
    _refuse(path, [name for name in names if not is_safe(name)], "a path that leads out of the folder")
    _refuse(path, sorted({name for name in names if names.count(name) > 1}), "a name twice")
    _refuse(path, [entry.filename for entry in entries if (entry.external_attr >> 16) & 0o170000 == 0o120000], "a link")
    _refuse(path, [entry.filename for entry in entries if entry.flag_bits & 1], "an encrypted file")
    if sum(entry.file_size for entry in entries) > LARGEST_MIB * 2**20:
        raise BadInput(f"{path}: found more than {LARGEST_MIB // 1024} GiB when unpacked; expected a dossier")
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


def read_dossier(opened_dossier: Opened) -> dict[str, Any]:
    """The data of a dossier.

    Raises:
        BadInput: it is not a dossier's, is damaged, or is of a newer schema.
    """
    where = f"{opened_dossier.path}: {DATA}"
    try:
        data = json.loads(opened_dossier.text(DATA))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where}: found text that is not JSON ({error}); get the dossier again") from error
    if not isinstance(data, dict) or data.get("rtxscale") != MARK:
        raise BadInput(f'{where}: found no "rtxscale": "{MARK}"; expected the data of a dossier')
    version = data.get("schema_version")
    if type(version) is not int or version > SCHEMA_VERSION:
        raise BadInput(
            f"{where}: found schema {version!r}; this rtxscale reads up to {SCHEMA_VERSION}; use a newer one"
        )
    return data


def problems(opened_dossier: Opened, data: dict[str, Any]) -> list[str]:
    """Everything wrong with a dossier, in words; empty for one that is whole."""
    return [*_checksum_problems(opened_dossier, data["schema_version"]), *line_problems(data)]


def _checksum_problems(opened_dossier: Opened, version: int) -> Iterator[str]:
    present = set(opened_dossier.sizes)
    yield from (f"{name}: missing" for name in NEEDED if name not in present and ADDED.get(name, 1) <= version)
    if SUMS not in present:
        return
    listed: dict[str, str] = {}
    for number, line in enumerate(opened_dossier.text(SUMS).splitlines(), start=1):
        found = SUM_LINE.fullmatch(line)
        if found is None or found[2] in listed or not is_safe(found[2]):
            yield f"{SUMS}:{number}: found {line[:120]!r}; expected a SHA-256, two spaces and a file, each file once"
            continue
        listed[found[2]] = found[1]
    yield from (f"{name}: not in {SUMS}" for name in sorted(present - {SUMS} - set(listed)))
    for name, digest in listed.items():
        if name not in present:
            yield f"{name}: in {SUMS}, but missing"
        elif _digest(opened_dossier, name) != digest:
            yield f"{name}: its content is not what {SUMS} says"


def _digest(opened_dossier: Opened, name: str) -> str:
    """SHA-256 of a member, read in pieces and no further than it says it is long; empty when it cannot be read."""
    digest, left = hashlib.sha256(), opened_dossier.sizes[name]
    try:
        with opened_dossier.stream(name) as file:
            while left >= 0 and (piece := file.read(CHUNK)):
                left -= len(piece)
                digest.update(piece)
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError):
        return ""
    return digest.hexdigest() if left == 0 else ""


def line_problems(data: dict[str, Any]) -> Iterator[str]:
    """Lines that are missing, twice, empty, or declared by nobody while they have a value."""
    lines = data.get("lines")
    if not isinstance(lines, list) or not all(isinstance(line, dict) for line in lines):
        yield f"{DATA}: lines: found {type(lines).__name__}; expected a list of lines"
        return
    names = [line.get("id") for line in lines]
    if data.get("schema_version") == SCHEMA_VERSION:
        yield from (f"{DATA}: {line.id}: missing" for line in LINES if line.id not in names)
    yield from (
        f"{DATA}: {name}: there {names.count(name)} times"
        for name in sorted({str(n) for n in names if names.count(n) > 1})
    )
    for line in lines:
        yield from (f"{DATA}: {line.get('id')}: {fault}" for fault in _faults(line))


def _faults(line: dict[str, Any]) -> Iterator[str]:
    for name in ("value", "where", "text"):
        if not isinstance(line.get(name), str) or not line[name].strip():
            yield f"{name} is empty"
    status, by = line.get("status"), line.get("declared_by")
    if status not in (VALUE, UNKNOWN, NOT_APPLICABLE):
        yield f"status is {status!r}; expected {VALUE}, {UNKNOWN} or {NOT_APPLICABLE}"
    elif (by == NOBODY) != (status == UNKNOWN) or by not in (MEASURED, SIMULATED, DECLARED, DOCUMENTED, NOBODY):
        yield f"declared by {by!r} while its status is {status}"
