"""All facts about this machine, each source guarded: one that fails is named and costs nothing but itself.

Impure: NVML, nvidia-smi, /proc, /sys, package metadata. Starts no CUDA and imports no torch. Callers: `cli.doctor`,
`doctor.preflight`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from rtxscale.doctor.facts import (
    DriverFacts,
    Facts,
    GpuState,
    HostFacts,
    PairState,
    SettingFacts,
    SmiFacts,
    SoftwareFacts,
)
from rtxscale.doctor.gpus import look_at_gpus
from rtxscale.doctor.host import look_at_host, look_at_settings
from rtxscale.doctor.smi import ask_smi
from rtxscale.doctor.software import look_at_software

T = TypeVar("T")
Seen = tuple[tuple[GpuState, ...], tuple[PairState, ...], DriverFacts, tuple[str, ...]]
NO_GPUS: Seen = ((), (), DriverFacts(), ())


@dataclass(kw_only=True)
class _Guard:
    unread: list[str] = field(default_factory=list)

    def read(self, name: str, look: Callable[[], T], otherwise: T) -> T:
        """What the source says, or `otherwise` with the reason noted."""
        try:
            return look()
        except Exception as error:  # whatever a broken machine raises, the other sources are still read
            self.unread.append(f"{name} could not be read: {type(error).__name__}: {error}")
            return otherwise


def collect(
    results_root: Path,
    *,
    quick: bool,
    environment: Mapping[str, str] | None = None,
    nvml: Any = None,
    root: Path = Path("/"),
    psu_w: float | None = None,
) -> Facts:
    """This machine's facts. Quick leaves out what takes long: nvidia-smi's long form, NCCL's own build."""
    environment = os.environ if environment is None else environment
    guard = _Guard()
    gpus, pairs, driver, notes = guard.read("GPUs", lambda: look_at_gpus(environment, nvml, root), NO_GPUS)
    none_asked: tuple[SmiFacts, dict[str, float]] = (SmiFacts(), {})
    smi, bar1 = guard.read(
        "nvidia-smi", lambda: ask_smi(gpus=len(gpus), quick=quick, cpu_count=os.cpu_count()), none_asked
    )
    settings = guard.read(
        "settings",
        lambda: look_at_settings(environment, results_root, Path.home(), root, psu_w),
        SettingFacts(psu_w=psu_w),
    )
    return Facts(
        gpus=tuple(completed(gpu, smi, bar1) for gpu in gpus),
        pairs=pairs,
        driver=driver,
        smi=smi,
        software=guard.read("software", lambda: look_at_software(quick=quick), SoftwareFacts()),
        host=guard.read("host", lambda: look_at_host(environment, root), HostFacts()),
        settings=replace(settings, visible_notes=notes),
        unread=tuple(guard.unread),
    )


def completed(gpu: GpuState, smi: SmiFacts, bar1_mib: Mapping[str, float]) -> GpuState:
    """The GPU with what NVML and the kernel did not tell taken from nvidia-smi: BAR1 and its NUMA node."""
    if gpu.bar1_mib is None and gpu.device.pci_bus_id.lower() in bar1_mib:
        gpu = replace(gpu, bar1_mib=int(bar1_mib[gpu.device.pci_bus_id.lower()]))
    placement = smi.topology.placements.get(f"GPU{gpu.index}") if smi.topology is not None else None
    numa = placement.numa if placement is not None else None
    if gpu.numa_node is None and numa is not None and numa.isdigit():
        gpu = replace(gpu, numa_node=int(numa))
    return gpu
