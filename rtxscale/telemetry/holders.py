"""Who holds this machine's GPUs and how much of their memory is in use, looked at when asked; nothing is sampled.

Only compute processes: a desktop's graphics contexts hold memory, but run nothing beside a measurement. Whose a process
is, is the caller's to know (`run.occupancy`). Called by the per-node actor in `run`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rtxscale.telemetry.fields import GpuProcess
from rtxscale.telemetry.nvml import NvmlProbe, NvmlUnavailableError


@dataclass(frozen=True, kw_only=True)
class GpuUse:
    """The compute processes on the GPUs, and each GPU's used memory in MiB by UUID, as far as NVML tells."""

    processes: tuple[GpuProcess, ...] = ()
    used_mib: Mapping[str, float] = field(default_factory=dict)


class GpuHolders:
    """Looks at this machine's GPUs through a probe of its own; without a usable NVML nothing is ever seen."""

    def __init__(self, nvml: Any = None) -> None:
        """Open NVML once: the next looks are cheap."""
        self._probe: NvmlProbe | None
        try:
            self._probe = NvmlProbe(nvml)
        except NvmlUnavailableError:
            self._probe = None

    def processes(self) -> tuple[GpuProcess, ...]:
        """The compute processes now; one call to the driver per GPU."""
        return () if self._probe is None else self._probe.processes()

    def look(self) -> GpuUse:
        """The compute processes and the used memory now."""
        if self._probe is None:
            return GpuUse()
        used = {row["uuid"]: row["memory_used_mib"] for row in self._probe.read_fast() if "memory_used_mib" in row}
        return GpuUse(processes=self._probe.processes(), used_mib=used)

    def close(self) -> None:
        """Let go of NVML; later looks see nothing."""
        if self._probe is not None:
            self._probe.close()
