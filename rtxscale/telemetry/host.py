"""The machine's own counters: CPU utilisation and used memory, through psutil.

It is the whole telemetry of a machine without a GPU, and stands beside the GPUs elsewhere. Called through
`telemetry.probe`.
"""

from __future__ import annotations

from collections.abc import Iterator

import psutil

from rtxscale.telemetry.fields import Device, Row
from rtxscale.telemetry.nvml_errors import value_or_none

MIB = 1024 * 1024


class HostProbe:
    """CPUs and memory of this machine."""

    name = "host"

    def __init__(self) -> None:
        """Take the first CPU times, so that the first read has something to compare with."""
        self._open = True
        self._times = value_or_none(_cpu_times_s)

    def devices(self) -> tuple[Device, ...]:
        """The host, as one device."""
        memory = value_or_none(psutil.virtual_memory)
        return (Device(kind="host", name="host", memory_mib=None if memory is None else memory.total // MIB),)

    def read_fast(self) -> Iterator[Row]:
        """Busy share of all CPUs since the last read, and used memory."""
        if not self._open:
            return
        row: Row = {"device": "host", "uuid": None}
        now = value_or_none(_cpu_times_s)
        share = None if now is None or self._times is None else busy_share(self._times, now)
        if share is not None:
            row["utilisation"] = share
            self._times = now
        memory = value_or_none(psutil.virtual_memory)
        if memory is not None:
            row["memory_used_mib"] = memory.used / MIB
        yield row

    def read_slow(self) -> Iterator[Row]:
        """Nothing: the host has no slow fields."""
        yield from ()

    def close(self) -> None:
        """Later reads give no rows."""
        self._open = False


def busy_share(before: tuple[float, float], after: tuple[float, float]) -> float | None:
    """Share of CPU time spent busy between two (busy, total) readings; None if no time has passed between them.

    >>> busy_share((10.0, 100.0), (13.0, 104.0))
    0.75
    """
    busy, total = after[0] - before[0], after[1] - before[1]
    return min(1.0, max(0.0, busy / total)) if total > 0 else None


def _cpu_times_s() -> tuple[float, float]:
    times = psutil.cpu_times()
    # Linux counts guest time inside user and nice as well.
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return total - times.idle - getattr(times, "iowait", 0.0), total


def interface_of(address: str) -> str | None:
    """Name of the network interface that has this address; None where no interface has it.

    >>> interface_of("127.0.0.1"), interface_of("203.0.113.1")
    ('lo', None)
    """
    found = (
        name
        for name, holds in psutil.net_if_addrs().items()
        for one in holds
        if one.address.partition("%")[0] == address
    )
    return next(found, None)
