"""What an output of nccl-tests holds, as data, and the words and codes that its forms share.

Read by `nccl.nccl_tests` (text) and `nccl.nccl_tests_json`; used by whoever compares bandwidths with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

OPERATIONS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast",
    "alltoall": "all_to_all",
}
"""Names of nccl-tests' binaries, without `_perf`, and of the same operations here."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One way of running a collective: microseconds of one operation, bandwidths in GB/s, values that came out wrong.

    `wrong` is None where the data was not checked. Numbers are as printed; nccl-tests rounds them.
    """

    time_us: float | None
    algbw_gb_s: float | None
    busbw_gb_s: float | None
    wrong: float | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    """One message size; a side is None where it was not run."""

    size_bytes: int
    count: int
    dtype: str
    redop: str | None
    root: int | None
    out_of_place: Side | None
    in_place: Side | None


@dataclass(frozen=True, kw_only=True)
class NcclTests:
    """One output. What it does not say is None; `refused` counts rows that could not be read whole."""

    rows: tuple[Row, ...]
    refused: int = 0
    version: str | None = None
    nccl_version: str | None = None
    operation: str | None = None
    ranks: int | None = None
    warmup_iterations: int | None = None
    iterations: int | None = None
    out_of_bounds: int | None = None
    average_busbw_gb_s: float | None = None
    json_file: str | None = None
    """Where this call wrote its JSON: not always the name it was given, as it never overwrites a file."""


def version_text(code: int) -> str:
    """NCCL's version from its code.

    >>> version_text(22907), version_text(2708)
    ('2.29.7', '2.7.8')
    """
    if code < 10_000:  # up to 2.8
        return f"{code // 1000}.{code // 100 % 10}.{code % 100}"
    return f"{code // 10_000}.{code // 100 % 100}.{code % 100}"


def number(value: Any) -> float | None:
    """A finite number, printed or in JSON; None for every spelling of "no value"."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def operation_of(program: str | None) -> str | None:
    """Our name of the operation that a binary times.

    >>> operation_of("./build/all_reduce_perf"), operation_of("sendrecv_perf"), operation_of(None)
    ('all_reduce', 'sendrecv', None)
    """
    if not program:
        return None
    name = program.rpartition("/")[2].removesuffix("_perf")
    return OPERATIONS.get(name, name)
