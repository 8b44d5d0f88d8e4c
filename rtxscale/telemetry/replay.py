"""A recorded trace played back as a probe, so that everything above probes is tested without hardware.

A trace is rows of the "telemetry" table, from memory or from Parquet. Each read gives the next recorded tick; after
the last one, no rows. It does not wait: the sampler's period decides how fast the trace is played.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import pyarrow.parquet as pq

from rtxscale.telemetry.fields import FAST, SLOW, Device, Row

Tick = list[Row]


class ReplayProbe:
    """Recorded rows, tick by tick."""

    name = "replay"

    def __init__(
        self,
        rows: Iterable[Mapping[str, Any]],
        devices: tuple[Device, ...] = (),
        times: Literal["recorded", "now"] = "recorded",
    ) -> None:
        """Split the rows into ticks; `times="now"` leaves the recorded times out, so that the sampler sets its own."""
        rows = [dict(row) for row in rows]
        self._devices = devices or recorded_devices(rows)
        self._fast = iter(ticks(rows, FAST, keep_times=times == "recorded"))
        self._slow = iter(ticks(rows, SLOW, keep_times=times == "recorded"))
        self._open = True

    @classmethod
    def from_parquet(cls, path: Path, times: Literal["recorded", "now"] = "recorded") -> ReplayProbe:
        """Play a Parquet file of the "telemetry" table."""
        return cls(pq.read_table(path).to_pylist(), times=times)

    def devices(self) -> tuple[Device, ...]:
        """The devices that occur in the trace, in their order there."""
        return self._devices

    def read_fast(self) -> Iterator[Row]:
        """The next recorded tick with fast fields."""
        yield from next(self._fast, []) if self._open else []

    def read_slow(self) -> Iterator[Row]:
        """The next recorded tick with slow fields."""
        yield from next(self._slow, []) if self._open else []

    def close(self) -> None:
        """Later reads give no rows."""
        self._open = False


def ticks(rows: Iterable[Mapping[str, Any]], fields: frozenset[str], *, keep_times: bool) -> list[Tick]:
    """Rows cut down to `fields` and grouped: a tick ends where a device comes up again. Nulls are left out."""
    kept = {"device", "uuid", *fields, *(("t_ns", "monotonic_ns") if keep_times else ())}
    found: list[Tick] = []
    seen: set[tuple[str, str | None]] = set()
    for row in rows:
        if all(row.get(name) is None for name in fields):
            continue
        key = (row["device"], row.get("uuid"))
        if not found or key in seen:
            found.append([])
            seen = set()
        seen.add(key)
        values = {name: value for name, value in row.items() if name in kept and value is not None}
        found[-1].append({"uuid": None, **values})
    return found


def recorded_devices(rows: Iterable[Mapping[str, Any]]) -> tuple[Device, ...]:
    """The devices of a trace; it holds no names, so these stay empty."""
    keys = dict.fromkeys((row["device"], row.get("uuid")) for row in rows)
    return tuple(Device(kind=device, uuid=uuid) for device, uuid in keys)
