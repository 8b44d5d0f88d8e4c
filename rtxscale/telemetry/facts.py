"""What this machine is: its node for the plan, and its environment rows for the results.

Works without a GPU and with a broken NVML library: then there are no GPUs, and the rows say why. Host, user and serial
names are never collected. Called by the per-node actor in `run`.
"""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from rtxscale.devices.inventory import Gpu, GpuLink, Node
from rtxscale.telemetry.fields import Device
from rtxscale.telemetry.inspection import inspect_gpus
from rtxscale.telemetry.nvml import NvmlProbe, NvmlUnavailableError
from rtxscale.telemetry.nvml_errors import ERRORS, MISSING_IN_BINDING, Outcome, value_or_none
from rtxscale.telemetry.visible import visible_devices
from rtxscale.topology.links import nvml_link

UNKNOWN = "unknown"
MIB = 1024 * 1024
KERNEL_MODULE = Path("/proc/driver/nvidia/version")
CPU_INFO = Path("/proc/cpuinfo")
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
DRIVER_VERSION = re.compile(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s")
PERMANENT = {reason for reason, outcome in ERRORS.values() if outcome is Outcome.UNSUPPORTED} | {MISSING_IN_BINDING}


def local_node(node_id: str, environment: Mapping[str, str] | None = None, nvml: Any = None) -> Node:
    """This machine's GPUs, in PCI bus order, as far as CUDA_VISIBLE_DEVICES shows them, their links, its usable CPUs.

    `environment` is where CUDA_VISIBLE_DEVICES is read, `os.environ` by default. Pass the user's: a process started
    by a scheduler may have the variable emptied.
    """
    return describe_node(node_id, environment, nvml)[0]


def describe_node(
    node_id: str, environment: Mapping[str, str] | None = None, nvml: Any = None
) -> tuple[Node, tuple[str, ...]]:
    """Like `local_node`, with what the user should know: why there is no GPU, what CUDA_VISIBLE_DEVICES hides."""
    environment = os.environ if environment is None else environment
    devices, _, notes = _look(nvml)
    uuids = [device.uuid or "" for device in devices]
    instances = [instance.uuid for device in devices for instance in device.mig_instances]
    visible = visible_devices(environment.get("CUDA_VISIBLE_DEVICES"), uuids, instances)
    gpus = tuple(gpu for gpu in _gpus(devices) if gpu.uuid in visible.uuids)
    links = tuple(_links(nvml, frozenset(gpu.uuid for gpu in gpus))) if len(gpus) > 1 else ()
    return Node(node_id=node_id, cpus=usable_cpus(), gpus=gpus, links=links), (*notes, *visible.notes)


def _links(nvml: Any, uuids: frozenset[str]) -> Iterator[GpuLink]:
    """How pairs of these GPUs are connected, as far as NVML tells."""
    try:
        seen = inspect_gpus(nvml)
    except NvmlUnavailableError:
        return
    for pair in seen.pairs:
        link = nvml_link(pair.level, pair.nvlinks)
        a, b = (seen.gpus[place].device.uuid or "" for place in (pair.a, pair.b))
        if link is not None and {a, b} <= uuids:
            yield GpuLink(a=a, b=b, label=link.label)


def host_environment(nvml: Any = None) -> list[dict[str, str]]:
    """Rows (subject, name, value) about driver, host and every GPU of this machine; the same at each call.

    Only what stays the same from one measurement to the next is in it, so that it can identify the machine.
    """
    devices, system, notes = _look(nvml)
    rows = [*_software_rows(system, notes), *_host_rows()]
    for index, device in enumerate(devices):
        rows += [_row("gpu", f"gpu{index} {name}", value) for name, value in _gpu_values(device).items()]
    return rows


def usable_cpus() -> int:
    """CPUs that this process may use: its affinity, cut by the container's quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity else os.cpu_count() or 1
    quota, _, period = _read(CPU_QUOTA).partition(" ")
    if quota.isdigit() and period.strip().isdigit() and int(period) > 0:
        count = min(count, math.ceil(int(quota) / int(period)))
    return max(1, count)


def driver_from_kernel_module(text: str) -> str | None:
    """The driver version in the kernel module's own words, None if it is not there.

    >>> driver_from_kernel_module("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build")
    '580.95.05'
    """
    found = DRIVER_VERSION.search(text)
    return found.group(1) if found else None


def kernel_module_kind(text: str) -> str:
    """`open` or `proprietary`; Blackwell needs the open one.

    >>> kernel_module_kind("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03")
    'proprietary'
    """
    if "Kernel Module" not in text:
        return UNKNOWN
    return "open" if "Open Kernel Module" in text else "proprietary"


def _look(nvml: Any) -> tuple[tuple[Device, ...], dict[str, str], tuple[str, ...]]:
    """GPUs, driver versions, and why something is missing."""
    try:
        probe = NvmlProbe(nvml)
    except NvmlUnavailableError as error:
        return (), {}, (f"no GPU can be seen: {error}",)
    try:
        for _ in (*probe.read_fast(), *probe.read_slow()):
            pass  # what a GPU does not give is known after one read
        devices = probe.devices()
        return (
            devices,
            probe.system(),
            (*(f"cannot be opened: {text}" for text in probe.unreachable), *_remarks(devices)),
        )
    finally:
        probe.close()


def _remarks(devices: Iterable[Device]) -> Iterable[str]:
    for index, device in enumerate(devices):
        if device.lost:
            yield f"GPU {index} ({device.name}): {device.lost}"
        if device.mig:
            yield f"GPU {index} ({device.name}) is in MIG mode: no scaling over its instances, power is the board's"


def _gpus(devices: Iterable[Device]) -> Iterable[Gpu]:
    for index, device in enumerate(devices):
        if device.lost:
            continue
        yield Gpu(
            name=device.name,
            uuid=device.uuid or "",
            index=index,
            memory_mib=device.memory_mib,
            power_limit_w=device.power_limit_w,
        )
        for instance in device.mig_instances:
            yield Gpu(name=instance.name, uuid=instance.uuid, index=index, memory_mib=instance.memory_mib)


def _software_rows(system: Mapping[str, str], notes: Iterable[str]) -> list[dict[str, str]]:
    module = _read(KERNEL_MODULE)
    driver = system.get("driver", UNKNOWN)
    return [
        _row("software", "driver", driver_from_kernel_module(module) if driver == UNKNOWN else driver),
        _row("software", "CUDA driver", system.get("cuda_driver")),
        _row("software", "NVIDIA kernel module", kernel_module_kind(module)),
        _row("software", "NVML", "; ".join(notes) or "works"),
        _row("software", "nvidia-ml-py", _version("nvidia-ml-py")),
    ]


def _host_rows() -> list[dict[str, str]]:
    memory = value_or_none(psutil.virtual_memory)
    return [
        _row("host", "os", _os_name()),
        _row("host", "kernel", platform.release()),
        _row("host", "machine", platform.machine()),
        _row("host", "cpu model", _cpu_model()),
        _row("host", "cpu cores", value_or_none(psutil.cpu_count, False)),
        _row("host", "cpu threads", value_or_none(psutil.cpu_count, True)),
        _row("host", "cpus usable", usable_cpus()),
        _row("host", "memory", None if memory is None else f"{memory.total // MIB} MiB"),
    ]


def _gpu_values(device: Device) -> dict[str, Any]:
    capability = device.compute_capability
    absent = [f"{name} ({reason})" for name, reason in device.absent if reason in PERMANENT]
    return {
        "name": device.name,
        "uuid": device.uuid,
        "pci bus id": device.pci_bus_id,
        "compute capability": None if capability is None else f"{capability[0]}.{capability[1]}",
        "memory": _with_unit(device.memory_mib, "MiB"),
        "power limit": _with_unit(device.power_limit_w, "W"),
        "default power limit": _with_unit(device.power_default_w, "W"),
        "largest power limit": _with_unit(device.power_max_w, "W"),
        "pcie max": _pcie(device),
        "persistence mode": _on_off(device.persistence),
        "mig": "not applicable" if device.mig is None else _on_off(device.mig),
        "power reading": device.power_source,
        "telemetry not given": ", ".join(absent) or "none",
    }


def _pcie(device: Device) -> str | None:
    if device.pcie_max_generation is None or device.pcie_max_width is None:
        return None
    return f"generation {device.pcie_max_generation}, {device.pcie_max_width} lanes"


def _on_off(value: bool | None) -> str | None:
    return None if value is None else ("on" if value else "off")


def _with_unit(value: float | None, unit: str) -> str | None:
    return None if value is None else f"{value} {unit}"


def _row(subject: str, name: str, value: Any) -> dict[str, str]:
    return {"subject": subject, "name": name, "value": UNKNOWN if value in (None, "") else str(value)}


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return platform.system()


def _cpu_model() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", _read(CPU_INFO), re.MULTILINE)
    return found.group(1).strip() if found else platform.processor()
