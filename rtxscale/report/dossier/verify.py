"""Whether a dossier is whole: files against checksums, lines against the list, nothing empty, no path leading out.

Called by `cli.dossier` and `dossier.diff`.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rtxscale.errors import BadInput, SpecError
from rtxscale.report.dossier.facts import DECLARED, DOCUMENTED, MEASURED, NOBODY, VALUE
from rtxscale.report.dossier.lines import LINES
from rtxscale.report.dossier.members import UNREADABLE, Opened, is_safe
from rtxscale.report.dossier.pack import DATA, NEEDED, SUMS, SWEEP, TABLE_FOLDER
from rtxscale.report.dossier.record import MARK, SCHEMA_VERSION, completeness
from rtxscale.results.outcomes import SIMULATED
from rtxscale.spec.declare import NOT_APPLICABLE, UNKNOWN
from rtxscale.spec.load import parse_sweep

SUM_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")
TRIALS = f"{TABLE_FOLDER}/trials.parquet"
ATTEMPT = ("trial_id", "attempt")
"""What names a row of it."""
CHUNK = 1024 * 1024
ADDED = {"tables/logs.parquet": 2, "distribution.protocol_seen": 3}
"""Files and lines that older dossiers lack -> the first schema version that has them."""


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
    if type(version) is not int or not 1 <= version <= SCHEMA_VERSION:
        raise BadInput(
            f"{where}: found schema {version!r}; this rtxscale reads 1 to {SCHEMA_VERSION}; use a newer one, or get "
            "the dossier again"
        )
    return data


def problems(opened_dossier: Opened, data: dict[str, Any]) -> list[str]:
    """Everything wrong with a dossier, in words; empty for one that is whole."""
    return [
        *_checksum_problems(opened_dossier, data["schema_version"]),
        *_content_problems(opened_dossier),
        *line_problems(data),
    ]


def _content_problems(opened_dossier: Opened) -> Iterator[str]:
    """Tables that are no Parquet or count a trial twice, and a sweep that does not load: nobody could use those."""
    for name in sorted(opened_dossier.sizes):
        if not name.startswith(f"{TABLE_FOLDER}/"):
            continue
        if fault := _table_fault(opened_dossier, name):
            yield f"{name}: found no table that can be read ({fault}); expected Parquet"
        elif name == TRIALS and (doubled := _doubled_attempts(opened_dossier)):
            yield f"{name}: found {doubled} attempts of a trial more than once; expected each once"
    if SWEEP not in opened_dossier.sizes:
        return
    try:
        parse_sweep(opened_dossier.text(SWEEP), SWEEP)
    except SpecError as error:
        more = f" (and {len(error.problems) - 1} more)" if len(error.problems) > 1 else ""
        yield f"{error.problems[0]}{more}"
    except BadInput as error:
        yield str(error)


def _table(opened_dossier: Opened, name: str) -> pq.ParquetFile:
    with opened_dossier.stream(name) as file:
        return pq.ParquetFile(io.BytesIO(file.read(opened_dossier.sizes[name] + 1)))


def _doubled_attempts(opened_dossier: Opened) -> int:
    """How many attempts the table of trials holds more than once."""
    table = _table(opened_dossier, TRIALS)
    if not set(ATTEMPT) <= set(table.schema_arrow.names):
        return 0
    counts = table.read(columns=list(ATTEMPT)).group_by(list(ATTEMPT)).aggregate([([], "count_all")])
    return sum(count > 1 for count in counts["count_all"].to_pylist())


def _table_fault(opened_dossier: Opened, name: str) -> str:
    """Why a table cannot be read; empty for one that can. Every column is read once, a group of rows at a time."""
    try:
        table = _table(opened_dossier, name)
        for group in range(table.num_row_groups):
            table.read_row_group(group)
    except (*UNREADABLE, pa.ArrowException, ValueError) as error:
        return " ".join(str(error).split())[:200]
    return ""


def counted(data: dict[str, Any]) -> dict[str, Any]:
    """The same data with its score counted from its lines: what the file says of itself is nobody's word."""
    return {**data, "completeness": completeness(data["lines"])}


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
        elif digest_of(opened_dossier, name) != digest:
            yield f"{name}: its content is not what {SUMS} says"


def digest_of(opened_dossier: Opened, name: str) -> str:
    """SHA-256 of a member, read in pieces and no further than it says it is long; empty when it cannot be read."""
    digest, left = hashlib.sha256(), opened_dossier.sizes[name]
    try:
        with opened_dossier.stream(name) as file:
            while left >= 0 and (piece := file.read(CHUNK)):
                left -= len(piece)
                digest.update(piece)
    except UNREADABLE:
        return ""
    return digest.hexdigest() if left == 0 else ""


def line_problems(data: dict[str, Any]) -> Iterator[str]:
    """Lines that are missing, twice, empty, or declared by nobody while they have a value."""
    lines = data.get("lines")
    if not isinstance(lines, list) or not all(isinstance(line, dict) for line in lines):
        yield f"{DATA}: lines: found {type(lines).__name__}; expected a list of lines"
        return
    names = Counter(line["id"] for line in lines if isinstance(line.get("id"), str))
    since = data.get("schema_version", SCHEMA_VERSION)
    yield from (
        f"{DATA}: {line.id}: missing" for line in LINES if line.id not in names and ADDED.get(line.id, 1) <= since
    )
    yield from (f"{DATA}: {name}: there {count} times" for name, count in sorted(names.items()) if count > 1)
    yield from _score_problems(data)
    for line in lines:
        yield from (f"{DATA}: {line.get('id')}: {fault}" for fault in _faults(line))


def _score_problems(data: dict[str, Any]) -> Iterator[str]:
    """A score that is not what its lines count to."""
    try:
        score = completeness(data["lines"])
    except (KeyError, TypeError):
        return  # its lines are named
    if data.get("completeness") != score:
        yield f"{DATA}: completeness: not what its lines count to: {score['with_value']} of {score['of']} have a value"


def _faults(line: dict[str, Any]) -> Iterator[str]:
    if not isinstance(line.get("id"), str):
        yield "found a line whose id is no text"
    for name in ("value", "where", "text"):
        if not isinstance(line.get(name), str) or not line[name].strip():
            yield f"{name} is empty"
    status, by = line.get("status"), line.get("declared_by")
    if status not in (VALUE, UNKNOWN, NOT_APPLICABLE):
        yield f"status is {status!r}; expected {VALUE}, {UNKNOWN} or {NOT_APPLICABLE}"
    elif (by == NOBODY) != (status == UNKNOWN) or by not in (MEASURED, SIMULATED, DECLARED, DOCUMENTED, NOBODY):
        yield f"declared by {by!r} while its status is {status}"
