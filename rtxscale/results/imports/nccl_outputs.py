"""An output of nccl-tests in our tables: one trial of a collectives workload, and a row per message size.

Its in-place columns are taken, as everywhere here. Version and iterations go into the environment: the number of
warm-up iterations changed between versions, so small messages of old and new outputs are unlike. The text does not say
with which NCCL settings it ran, so they are marked as not recorded unless the mapping says some, and the id of the
trial comes from the text as well. Called by `cli.import_results`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from rtxscale.errors import BadInput
from rtxscale.nccl.nccl_tests import read_nccl_tests
from rtxscale.nccl.nccl_tests_rows import NcclTests, Row
from rtxscale.results.imports.run import Imported, axes_of, environment
from rtxscale.results.imports.trials import cell_of
from rtxscale.results.outcomes import Outcome
from rtxscale.results.schema import table
from rtxscale.spec.cell import content_id, trial_id_of
from rtxscale.spec.mapping import ImportMapping

DTYPES = {"float": "fp32", "half": "fp16", "bfloat16": "bf16"}
MIB = 2**20
SIGNED = ("nccl-tests version", "nccl-tests structured output")
"""How outputs call themselves."""
SAY_SETTINGS = (
    "nccl-tests does not write with which NCCL settings it ran: say them under constants of a mapping, such as "
    "nccl.p2p: disabled, or nccl.p2p: auto where none was set"
)
UNTOLD = ("nccl.settings", "not recorded")
"""Stands in a cell for settings of NCCL that nobody has told: such a cell is none of ours, and not the default one."""


def looks_like_nccl_tests(text: str) -> bool:
    """Whether a text may be an output of nccl-tests, as text or JSON.

    >>> looks_like_nccl_tests("#  size count type redop root time algbw busbw"), looks_like_nccl_tests("gpus,busbw")
    (True, False)
    """
    head = text[:20_000]
    bare = head.lstrip()[:1] in ("{", "[")
    words = {"algbw", "busbw"} <= set(head.replace('"', " ").split()) or any(name in head for name in SIGNED)
    return words or (bare and "out_of_place" in head)


def import_nccl_tests(text: str, file: str, mapping: ImportMapping, source: str) -> Imported:
    """One output of nccl-tests as a trial with its collectives.

    Raises:
        BadInput: it cannot be read, or does not say the operation or the number of GPUs and no constant does.
    """
    try:
        found = read_nccl_tests(text)
    except ValueError as error:
        raise BadInput(f"{file}: {error}") from error
    constants = mapping.constants
    operation = found.operation or _constant(constants, "operation")
    ranks = found.ranks or constants.get("gpus")
    if not isinstance(ranks, int) or isinstance(ranks, bool) or ranks < 1 or operation is None:
        raise BadInput(
            f"{file}: found {operation or 'no operation'} on {ranks or 'an unknown number of'} GPUs; expected both; "
            "give what is missing in a mapping, such as constants: {gpus: 4, operation: all_reduce}"
        )
    rows = [row for row in found.rows if row.in_place is not None and row.size_bytes > 0]
    if not rows:
        raise BadInput(f"{file}: found no row with an in-place result; expected at least one")
    try:
        return _tables(replace(found, rows=tuple(rows)), operation, ranks, mapping, source, len(found.rows) - len(rows))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError) as error:
        raise BadInput(
            f"{file}: found a value of another type ({' '.join(str(error).split())[:200]}); expected the file as "
            "nccl-tests writes it"
        ) from error


def _tables(
    found: NcclTests, operation: str, ranks: int, mapping: ImportMapping, source: str, without: int
) -> Imported:
    dtypes = {row.dtype for row in found.rows}
    settings: dict[str, Any] = {name: value for name, value in mapping.constants.items() if "." in name}
    settings |= {
        "workload.kind": "collectives",
        "workload.operations": [operation],
        "workload.sizes_mib": sorted({row.size_bytes / MIB for row in found.rows}),
        "workload.precision": DTYPES.get(next(iter(dtypes)), next(iter(dtypes))) if len(dtypes) == 1 else "mixed",
    }
    told = {path: value for path, value in settings.items() if path.startswith("nccl.")} or dict([UNTOLD])
    canonical = cell_of(ranks, settings | told)[0]
    # Outputs that differ in what the text does not say have one cell, but are other trials.
    trial_id = trial_id_of(f"{canonical}|{source}", 1, 1, 0)
    trial = {
        "trial_id": trial_id,
        "attempt": 1,
        "cell_id": content_id(canonical),
        "session_id": "imported-1",
        "visit": 1,
        "repeat": 1,
        "slot": 0,
        "study": mapping.study,
        "cell_json": canonical,
        "axes_json": "{}",
        "workload": "collectives",
        "gpus": ranks,
        "device": "cuda",
        "device_names": [name] if (name := _constant(mapping.constants, "device_name")) else None,
        "outcome": Outcome.OK,
        "message": "",
        "source": source,
    }
    collectives = [_collective(row, operation, found, trial_id) for row in found.rows]
    facts = {
        "nccl-tests": found.version,
        "nccl": found.nccl_version,
        "warm-up iterations": _text(found.warmup_iterations),
        "iterations": _text(found.iterations),
    }
    return Imported(
        tables={
            "trials": table("trials", [trial]),
            "collectives": table("collectives", collectives),
            "environment": environment(source, facts),
        },
        axes={**axes_of([{"gpus": ranks}], mapping.study), **{path: (value,) for path, value in told.items()}},
        notes=(*_notes(found, without), *([SAY_SETTINGS] if UNTOLD[0] in told else [])),
    )


def _collective(row: Row, operation: str, found: NcclTests, trial_id: str) -> dict[str, Any]:
    side = row.in_place
    assert side is not None, "rows without an in-place side were left out"  # noqa: S101  told to mypy
    time_s = None if side.time_us is None else side.time_us / 1e6
    return {
        "trial_id": trial_id,
        "attempt": 1,
        "operation": operation,
        "size_bytes": row.size_bytes,
        "dtype": DTYPES.get(row.dtype, row.dtype),
        "iterations": found.iterations,
        "time_mean_s": time_s,
        "time_p50_s": None,
        "algbw_gb_s": side.algbw_gb_s,
        "busbw_gb_s": side.busbw_gb_s,
        "data_ok": None if side.wrong is None else side.wrong == 0,
    }


def _notes(found: NcclTests, without: int) -> tuple[str, ...]:
    notes = []
    if found.refused:
        notes.append(f"not read whole, as when log lines break them up, and left out: {_rows(found.refused)}")
    if without:
        notes.append(f"without an in-place result or without bytes, and left out: {_rows(without)}")
    if found.ranks == 1:
        notes.append("one GPU has no bus: its bandwidths are no evidence")
    if found.out_of_bounds:
        values = "value" if found.out_of_bounds == 1 else "values"
        notes.append(f"nccl-tests found {found.out_of_bounds} wrong {values}: trust none of its numbers")
    return tuple(notes)


def _rows(count: int) -> str:
    return f"{count} row{'s' * (count != 1)}"


def _constant(constants: Mapping[str, Any], name: str) -> str | None:
    value = constants.get(name)
    return None if value is None else str(value)


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)
