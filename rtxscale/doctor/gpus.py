"""GPUs and driver of this machine as facts, through `telemetry`. Impure; never raises. Caller: `doctor.collect`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rtxscale.doctor.facts import DriverFacts, GpuState, PairState
from rtxscale.telemetry.facts import driver_from_kernel_module, kernel_module_kind
from rtxscale.telemetry.inspection import InspectedPair, Inspection, inspect_gpus
from rtxscale.telemetry.nvml import NO_GPU, NvmlUnavailableError, pci_order
from rtxscale.telemetry.nvml_errors import ERRORS
from rtxscale.telemetry.visible import Visible, visible_devices
from rtxscale.topology.links import nvml_link

NVML_MISSING = 12
"""NVML's code for a library that is not there: no driver here, which is no fault by itself."""
NO_FAULT = frozenset({"", NO_GPU, ERRORS[NVML_MISSING][0]})
"""What NVML may say on a machine where nothing is broken."""
LIBRARY_FOLDERS = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib")
PACKAGE_LISTS = (
    (
        "var/lib/dpkg/info",
        r"((?:nvidia-driver|libnvidia-compute|nvidia-kernel-(?:open|source|common))-\d[\w.-]*)(?::\w+)?\.list",
    ),
    ("var/lib/pacman/local", r"(nvidia(?:-open|-dkms|-open-dkms)?-\d[\w.-]*)"),
)
LIBRARY = re.compile(r"libnvidia-ml\.so\.(\d+\.\d+(?:\.\d+)?)")


def look_at_gpus(
    environment: Mapping[str, str], nvml: Any = None, root: Path = Path("/")
) -> tuple[tuple[GpuState, ...], tuple[PairState, ...], DriverFacts, tuple[str, ...]]:
    """GPUs in PCI bus order, their pairs, the driver, and what CUDA_VISIBLE_DEVICES really means."""
    problem, found = "", None
    try:
        found = inspect_gpus(nvml)
    except NvmlUnavailableError as error:
        problem = str(error)
    driver = _driver(found, problem, root)
    if found is None:
        return (), (), driver, ()
    visible = _visible(found, environment)
    return _gpus(found, visible, root), tuple(_pair(pair) for pair in found.pairs), driver, visible.notes


def _visible(found: Inspection, environment: Mapping[str, str]) -> Visible:
    devices = [gpu.device for gpu in found.gpus]
    instances = [instance.uuid for device in devices for instance in device.mig_instances]
    return visible_devices(
        environment.get("CUDA_VISIBLE_DEVICES"), [device.uuid or "" for device in devices], instances
    )


def _gpus(found: Inspection, visible: Visible, root: Path) -> tuple[GpuState, ...]:
    states = []
    for index, gpu in enumerate(found.gpus):
        device = gpu.device
        shown = {device.uuid, *(instance.uuid for instance in device.mig_instances)} & set(visible.uuids)
        states.append(
            GpuState(
                index=index,
                device=device,
                visible=bool(shown),
                bar1_mib=gpu.bar1_mib,
                core_offset_mhz=gpu.core_offset_mhz,
                memory_offset_mhz=gpu.memory_offset_mhz,
                application_clock_mhz=gpu.application_clock_mhz,
                default_application_clock_mhz=gpu.default_application_clock_mhz,
                numa_node=numa_node(root, device.pci_bus_id),
                utilisation=gpu.utilisation,
                memory_used_mib=gpu.memory_used_mib,
                throttle_reasons=gpu.throttle_reasons,
                pids=tuple(process.pid for process in found.processes if process.uuid == device.uuid),
            )
        )
    return tuple(states)


def _pair(pair: InspectedPair) -> PairState:
    return PairState(a=pair.a, b=pair.b, link=nvml_link(pair.level, pair.nvlinks), peer_label=pair.peer_label)


def numa_node(root: Path, bus_id: str) -> int | None:
    """The NUMA node whose CPUs are nearest to a PCI device, as the kernel knows it; None where it does not (-1).

    Not NVML's NUMA node of a GPU: that is the GPU's own memory, which has no CPUs, and few machines have it.
    """
    numbers = pci_order(bus_id)
    if len(numbers) != len(("domain", "bus", "device", "function")):
        return None
    domain, bus, device, function = numbers
    text = _read(root / f"sys/bus/pci/devices/{domain:04x}:{bus:02x}:{device:02x}.{function:x}/numa_node").strip()
    return int(text) if text.isdecimal() else None


def _driver(found: Inspection | None, problem: str, root: Path) -> DriverFacts:
    module = _read(root / "proc/driver/nvidia/version")
    kind = kernel_module_kind(module)
    return DriverFacts(
        version=_known(found.driver if found else None) or driver_from_kernel_module(module),
        cuda=_known(found.cuda_driver if found else None),
        nvml_problem=problem,
        nvml_broken=problem not in NO_FAULT,
        module_kind=_known(kind),
        module_version=driver_from_kernel_module(module),
        unreachable=found.unreachable if found else (),
        packages=_packages(root),
        uninstaller=(root / "usr/bin/nvidia-uninstall").exists(),
        libraries=_libraries(root),
    )


def _packages(root: Path) -> tuple[str, ...]:
    """Names of the distribution's driver packages."""
    names = []
    for folder, pattern in PACKAGE_LISTS:
        names += [match[1] for name in _names(root / folder) if (match := re.fullmatch(pattern, name))]
    return tuple(sorted(set(names)))


def _libraries(root: Path) -> tuple[str, ...]:
    """Versions of the driver's NVML library on disk."""
    versions = [
        match[1] for folder in LIBRARY_FOLDERS for name in _names(root / folder) if (match := LIBRARY.fullmatch(name))
    ]
    return tuple(sorted(set(versions)))


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:
        return []


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _known(text: str | None) -> str | None:
    return None if text in (None, "", "unknown") else text
