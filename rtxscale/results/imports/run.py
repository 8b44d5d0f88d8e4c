"""Results that rtxscale did not measure, in its tables: everything that reads a run then works on them.

Pure: rows and a mapping in, Arrow tables out. What the source does not say stays null; nothing is guessed, and a number
that cannot be made from what is there is refused in words. A row without any result is left out, and that is said. Rows
of equal settings are repeats of one session unless the mapping says that they are independent. Called by
`cli.import_results`, which writes through `results.write`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rtxscale.errors import BadInput
from rtxscale.results.imports.foreign import ForeignTable
from rtxscale.results.imports.trials import Numbering, batches, trial_row
from rtxscale.results.imports.values import folded, in_our_words, seen, value_of
from rtxscale.results.schema import table
from rtxscale.spec.cell import Ddp, Nccl, canonical_json, content_id
from rtxscale.spec.mapping import FIELDS, ImportMapping
from rtxscale.spec.sweep import COMMUNICATION_AXES

NODE = "workers"
"""Stands for a node's name, as in every run where a fact holds for all workers: nobody's name, so no pseudonym."""
LEFT_OUT, UNUSED = "rows left out", "columns not used"
"""Names of the environment's facts that say which rows gave no result, and which columns nobody has read."""
LONGEST_NAME = 60
NAMED, COLUMNS_NAMED = 4, 12
"""Most rows and columns that are named one by one."""
SETTING = re.compile(r"(workload|nccl|ddp)(\.[a-z0-9_]{1,64})+")
"""A column that is called like a cell's setting."""
OWN = {
    f"{name}_{field}": f"{name}.{field}"
    for name, section in (("nccl", Nccl), ("ddp", Ddp))
    for field in section.model_fields
}
"""Columns of our own table of trials that hold a setting."""
ALIKE = {f"workload.{name}": name for name in ("batch_per_gpu", "global_batch", "precision")}
"""Settings that are fields of their own as well."""
APART = {"work_unit": "workload.unit", "device_name": "hardware.gpu", "device": "hardware.device"}
"""Fields that are no settings of ours, but of which a mean or a ratio over several values says nothing: where a table
has several, they tell cells apart."""


@dataclass(frozen=True, kw_only=True)
class Imported:
    """Tables ready to be committed, the axes that vary, and what a reader must know about the import."""

    tables: dict[str, pa.Table]
    axes: dict[str, tuple[Any, ...]]
    notes: tuple[str, ...] = ()


def columns_of(foreign: ForeignTable, mapping: ImportMapping) -> dict[str, str]:
    """Our field -> their column: as mapped, else by a name that is known.

    Raises:
        BadInput: a mapped column is not there.
    """
    missing = [f"{name}: {theirs}" for name, theirs in mapping.columns.items() if theirs not in foreign.columns]
    if missing:
        raise BadInput(
            f"{foreign.file}: found no column {', '.join(missing)}; expected one of {', '.join(foreign.columns)}"
        )
    known: dict[str, str] = {}
    for name in foreign.columns:
        known.setdefault(folded(name), name)
    taken = set(mapping.columns.values())
    found = dict(mapping.columns)
    known |= {OWN[word]: theirs for word, theirs in known.items() if word in OWN and OWN[word] not in known}
    for name in [*FIELDS, *(word for word in known if SETTING.fullmatch(word))]:
        theirs = next((known[word] for word in (name, *FIELDS.get(name, ())) if word in known), None)
        if name not in found and name not in mapping.constants and theirs is not None and theirs not in taken:
            found[name] = theirs
            taken.add(theirs)
    return found


def import_table(foreign: ForeignTable, mapping: ImportMapping, source: str) -> Imported:
    """Somebody's table as ours; `source` says where it is from.

    Raises:
        BadInput: a column or value is missing or cannot be what it should be; names row and column.
    """
    columns = columns_of(foreign, mapping)
    rows = _told_apart([_fields(foreign, place, columns, mapping) for place in range(len(foreign.rows))])
    rows, again = _once(rows, foreign, by_id="trial" in columns)
    numbering = Numbering()
    read = [trial_row(row, place, mapping, numbering, source) for place, row in enumerate(rows, start=1)]
    empty = [row["number"] for row, one in zip(rows, read, strict=True) if one is None]
    if len(empty) == len(rows):
        raise BadInput(
            f"{foreign.file}: found no row with a result; expected throughput_per_s, steps_per_s, step_time_s or "
            "efficiency in one at least; give other columns their place in a mapping"
        )
    read += [trial_row(row, 0, mapping, numbering, source) for row in _base_rows(rows)]
    made = [one for one in read if one is not None]
    facts = {LEFT_OUT: _left_out(empty), UNUSED: _unused(foreign, columns)}
    notes = [_again(again)] if again else []
    retried = sum(count - 1 for count in numbering.attempts.values())
    notes += [_retried(retried)] if retried else []
    notes += [facts[LEFT_OUT]] if facts[LEFT_OUT] else []
    notes += [f"{UNUSED}: {facts[UNUSED]}"] if facts[UNUSED] else []
    trials = [row for _, row in made]
    cells = [cell for cell, _ in made]
    try:
        measured = table("trials", trials)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise BadInput(
            f"{foreign.file}: found a number too large to be kept ({' '.join(str(error).split())[:200]}); expected "
            "whole numbers of at most 18 digits, and batches whose product with the GPUs is one"
        ) from error
    return Imported(
        tables={
            "trials": measured,
            "environment": environment(source, {name: words for name, words in facts.items() if words}),
        },
        axes=axes_of(cells, mapping.study),
        notes=tuple(notes),
    )


def environment(source: str, facts: Mapping[str, str | None]) -> pa.Table:
    """The environment of an import: its source and what that says about itself."""
    known = {"source": source, **{name: value or "unknown" for name, value in facts.items()}}
    identity = content_id(canonical_json(known))
    return table(
        "environment",
        [
            {"environment_id": identity, "node": NODE, "subject": "import", "name": name, "value": value}
            for name, value in known.items()
        ],
    )


def axes_of(cells: Iterable[Mapping[str, Any]], study: str) -> dict[str, tuple[Any, ...]]:
    """Dotted paths that vary, with their values; a batch that follows from the other one and the GPUs is no axis.

    Settings of the communication are axes even of one value: that they are told is worth knowing.
    """
    values: dict[str, dict[Any, None]] = {"gpus": {}}
    for cell in cells:
        for section, content in cell.items():
            items = content.items() if isinstance(content, dict) else [("", content)]
            for name, value in items:
                values.setdefault(f"{section}.{name}".removesuffix("."), {})[value] = None
    follows = "workload.batch_per_gpu" if study == "strong" else "workload.global_batch"
    return {
        path: tuple(found)
        for path, found in values.items()
        if path == "gpus" or path.startswith(COMMUNICATION_AXES) or (len(found) > 1 and path != follows)
    }


def _again(rows: int) -> str:
    if rows == 1:
        return "1 row that repeats another one word by word is counted once"
    return f"{rows} rows that repeat another one word by word are counted once"


def _retried(rows: int) -> str:
    what = "row is a further attempt" if rows == 1 else "rows are further attempts"
    return f"{rows} {what} at a trial: its last good one counts"


def _unused(foreign: ForeignTable, columns: Mapping[str, str]) -> str:
    """The columns without a place; empty where all have one."""
    unused = [name[:LONGEST_NAME] for name in foreign.columns if name not in columns.values()]
    more = len(unused) - COLUMNS_NAMED
    return ", ".join([*unused[:COLUMNS_NAMED], *([f"{more} more"] if more > 0 else [])])


def _left_out(numbers: Sequence[int]) -> str:
    """Which rows of the file gave no result; empty where all did."""
    if not numbers:
        return ""
    named = ", ".join(map(str, numbers[:NAMED])) + (", ..." if len(numbers) > NAMED else "")
    if len(numbers) == 1:
        return f"row {named} holds neither a number nor a failure, so no result is given, and is left out"
    return f"{len(numbers)} rows ({named}) hold neither a number nor a failure, so no result is given: left out"


def _once(rows: list[dict[str, Any]], foreign: ForeignTable, *, by_id: bool) -> tuple[list[dict[str, Any]], int]:
    """Rows without those that say the same of the same named trial again."""
    if not by_id:
        return rows, 0
    kept: dict[str, dict[str, Any]] = {}
    for row, raw in zip(rows, foreign.rows, strict=True):
        kept.setdefault(json.dumps(raw, sort_keys=True, default=str), row)
    return list(kept.values()), len(rows) - len(kept)


def _fields(foreign: ForeignTable, place: int, columns: Mapping[str, str], mapping: ImportMapping) -> dict[str, Any]:
    """One row by our names, numbers as numbers, null where there is no value.

    Raises:
        BadInput: a value cannot be what it should be, or is said twice, in two ways.
    """
    where = f"{foreign.file}, row {foreign.numbers[place]}"
    raw = foreign.rows[place]
    told = [(name, raw[theirs], f"{where}, column {theirs}") for name, theirs in columns.items()]
    told += [(name, value, f"constant {name}") for name, value in mapping.constants.items()]
    row: dict[str, Any] = {}
    for name, text, source in told:
        field = ALIKE.get(name, name)
        value, known = value_of(field, text, source), row.get(field)
        if None not in (value, known) and value != known:
            raise BadInput(f"{source}: found {seen(text)}; expected {known!r}, as another column says of {field}")
        row[field] = known if value is None else value
    row |= {"where": where, "number": foreign.numbers[place], "throughput column": columns.get("throughput_per_s")}
    return row | in_our_words(row)


def _told_apart(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with a setting for each field of `APART` of which the table has several values."""
    varied = {name for name in APART if len({row[name] for row in rows if row.get(name) is not None}) > 1}
    return [row | {APART[name]: row[name] for name in varied if row.get(name) is not None} for row in rows]


def _base_rows(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """One GPU's row for efficiencies that came with their base's throughput, where the table has none itself."""
    bases: dict[tuple[Any, ...], dict[str, Any]] = {}
    rows = list(rows)
    if any(row["gpus"] == 1 for row in rows):
        return
    for row in rows:
        if row.get("efficiency") is None or row.get("base_throughput_per_s") is None:
            continue
        batch = batches(row, row["gpus"])[0]
        kept = {name: value for name, value in row.items() if "." in name and not name.startswith(("nccl.", "ddp."))}
        base = {
            **kept,
            **{name: row.get(name) for name in ("workload", "work_unit", "precision", "device", "device_name")},
            "where": row["where"],
            "gpus": 1,
            "batch_per_gpu": batch,
            "throughput_per_s": row["base_throughput_per_s"],
        }
        bases.setdefault((batch, row["base_throughput_per_s"], json.dumps(kept, sort_keys=True)), base)
    yield from bases.values()
