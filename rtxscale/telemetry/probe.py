"""The probe protocol: what a sampler needs of hardware, in four methods.

Implementations: `telemetry.nvml` (NVIDIA GPUs), `telemetry.host` (CPUs and memory), `telemetry.replay` (a recorded
trace); `JoinedProbe` puts several side by side. All pass the same conformance tests. `open_probe` picks what works
here and never fails: without a GPU or with a broken NVML library only the host is watched.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from rtxscale.telemetry.fields import Device, Row
from rtxscale.telemetry.host import HostProbe
from rtxscale.telemetry.nvml import NvmlProbe, NvmlUnavailableError


class Probe(Protocol):
    """A source of readings. Reads of the two cadences may run in two threads at once."""

    name: str

    def devices(self) -> tuple[Device, ...]:
        """The watched devices, GPUs in PCI bus order, with what has turned out to be absent so far."""

    def read_fast(self) -> Iterator[Row]:
        """One row per living device with its fast fields, read when the row is asked for."""

    def read_slow(self) -> Iterator[Row]:
        """The same for slow fields; devices without any give no row."""

    def close(self) -> None:
        """Let go of the hardware; later reads give no rows. May be called twice."""


class JoinedProbe:
    """Several probes as one."""

    def __init__(self, probes: tuple[Probe, ...]) -> None:
        """Own the probes: closing this closes them."""
        self._probes = probes
        self.name = "+".join(probe.name for probe in probes)

    def devices(self) -> tuple[Device, ...]:
        """Devices of all probes, in their order."""
        return tuple(device for probe in self._probes for device in probe.devices())

    def read_fast(self) -> Iterator[Row]:
        """Fast rows of all probes."""
        for probe in self._probes:
            yield from probe.read_fast()

    def read_slow(self) -> Iterator[Row]:
        """Slow rows of all probes."""
        for probe in self._probes:
            yield from probe.read_slow()

    def close(self) -> None:
        """Close all probes."""
        for probe in self._probes:
            probe.close()


def open_probe(nvml: Any = None) -> Probe:
    """A probe of this machine: its GPUs and the host, or the host alone where NVML does not work.

    All GPUs of the machine are watched, whatever CUDA_VISIBLE_DEVICES says.
    """
    host = HostProbe()
    try:
        return JoinedProbe((NvmlProbe(nvml), host))
    except NvmlUnavailableError:
        return host
