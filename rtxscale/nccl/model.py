"""NCCL's own model of its collectives, as it prints it when a communicator is made: latency and bandwidth per choice.

At `NCCL_DEBUG=INFO` with the subsystem TUNING, rank 0 prints a table of `latency in us / bandwidth in GB/s` for every
collective, algorithm and protocol; zeros are choices that it does not have. What NCCL expects is not what it measures.
Called by `report.charts.bandwidth`.

Source: NVIDIA/nccl, src/graph/tuning.cc (`ncclTopoTuneModel`, `ncclTopoGetAlgoTime`), 2.18 to 2.29.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from rtxscale.nccl.lines import parse_line
from rtxscale.nccl.log import snake_case

BUS_FACTORS = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0}
"""Operation -> bus bandwidth over algorithm bandwidth, times n / (n - 1); 1 for the others. Source: nccl-tests,
doc/PERFORMANCE.md."""
_CELL = re.compile(r"\s*(\d+(?:\.\d+)?)/\s*(\d+(?:\.\d+)?)\s*", re.ASCII)
_HEAD = re.compile(r"\s*(Algorithm|Protocol)\s*\|(.*)", re.ASCII)
_ROW = re.compile(r"\s*(\w+)\s*\|((?:\s*\d+\.\d+/\s*\d+\.\d+\s*\|)+)\s*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """What NCCL expects of one choice; `bandwidth_gb_s` is algorithm bandwidth."""

    operation: str
    algorithm: str
    protocol: str
    latency_us: float
    bandwidth_gb_s: float

    def time_s(self, size_bytes: int) -> float:
        """Expected time of one message, without NCCL's corrections for trees and medium sizes."""
        return self.latency_us * 1e-6 + size_bytes / (self.bandwidth_gb_s * 1e9)


def read_model(lines: Iterable[str]) -> tuple[Predicted, ...]:
    """The first table of each collective in a log, in order; empty where the log has none.

    A communicator's first table is made before settings of its algorithm and channels narrow it.
    """
    found: dict[tuple[str, str, str], Predicted] = {}
    algorithms: list[str] = []
    protocols: list[str] = []
    for raw in lines:
        line = parse_line(raw)
        text = raw if line is None else line.message
        if head := _HEAD.fullmatch(text):
            names = [name.strip().lower() for name in head[2].strip().strip("|").split("|")]
            algorithms, protocols = (names, protocols) if head[1] == "Algorithm" else (algorithms, names)
        elif row := _ROW.fullmatch(text):
            for one in _row(snake_case(row[1]), row[2], algorithms, protocols):
                found.setdefault((one.operation, one.algorithm, one.protocol), one)
    return tuple(found.values())


def expected_bus_gb_s(model: Iterable[Predicted], operation: str, size_bytes: int, ranks: int) -> float | None:
    """Bus bandwidth of the fastest choice for that message, in GB/s; None where the model has none.

    >>> ring = Predicted(operation="all_reduce", algorithm="ring", protocol="simple", latency_us=15.2,
    ...                  bandwidth_gb_s=360.0)
    >>> round(expected_bus_gb_s([ring], "all_reduce", 512 * 2**20, 2), 1)
    356.4
    """
    times = [one.time_s(size_bytes) for one in model if one.operation == operation]
    if not times or ranks < 2 or size_bytes <= 0:
        return None
    factor = BUS_FACTORS[operation] * (ranks - 1) / ranks if operation in BUS_FACTORS else 1.0
    return factor * size_bytes / min(times) / 1e9


def _row(operation: str, cells: str, algorithms: list[str], protocols: list[str]) -> Iterable[Predicted]:
    """The choices of one row that NCCL has; a row that does not fit its headings has none."""
    pairs = [_CELL.fullmatch(cell) for cell in cells.strip().strip("|").split("|")]
    if not algorithms or len(pairs) != len(protocols) or len(pairs) % len(algorithms):
        return
    each = len(pairs) // len(algorithms)
    for place, pair in enumerate(pairs):
        if pair is not None and float(pair[2]) > 0:
            yield Predicted(
                operation=operation,
                algorithm=algorithms[place // each],
                protocol=protocols[place],
                latency_us=float(pair[1]),
                bandwidth_gb_s=float(pair[2]),
            )
