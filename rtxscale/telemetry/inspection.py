"""What NVML says once about GPUs and pairs of them, beyond what is sampled: for judging a machine, not a run.

Every value is guarded on its own, as in `telemetry.nvml`; None is "not told". Changes no setting. Callers: the doctor,
`telemetry.facts` for the links.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from rtxscale.telemetry.fields import Device, GpuProcess
from rtxscale.telemetry.nvml import NvmlProbe, load_nvml, pci_order
from rtxscale.telemetry.nvml_errors import value_or_none
from rtxscale.telemetry.nvml_readers import CLOCK_SM, MIB, text

NVLINKS_MAX = 36
REMOTE_IS_SWITCH = 2
PEER_READ, PEER_WRITE = 0, 1
# Source: nvml.h, nvmlGpuP2PStatus_t; the labels are those of `nvidia-smi topo -p2p`.
PEER_LABELS = {0: "OK", 1: "CNS", 2: "GNS", 3: "TNS", 4: "DR", 5: "NS", 6: "U"}


@dataclass(frozen=True, kw_only=True)
class InspectedGpu:
    """One GPU: what it is, and its state at the moment of asking. Clocks in MHz, memory in MiB, utilisation 0 to 1."""

    device: Device
    bar1_mib: int | None = None
    core_offset_mhz: int | None = None
    memory_offset_mhz: int | None = None
    application_clock_mhz: int | None = None
    default_application_clock_mhz: int | None = None
    card_pcie_generation: int | None = None
    utilisation: float | None = None
    memory_used_mib: float | None = None
    throttle_reasons: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class InspectedPair:
    """Two GPUs by their places: common-ancestor level, active NVLinks between them, and the claim about peer access."""

    a: int
    b: int
    level: int | None = None
    nvlinks: int | None = None
    peer_label: str | None = None


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """All GPUs in PCI bus order, their pairs, and the driver; `unreachable` are GPUs that cannot be opened."""

    gpus: tuple[InspectedGpu, ...]
    pairs: tuple[InspectedPair, ...]
    processes: tuple[GpuProcess, ...]
    driver: str
    cuda_driver: str
    unreachable: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Nvlinks:
    bus: tuple[int, ...]
    to: tuple[tuple[int, ...], ...]
    to_switch: int


def inspect_gpus(nvml: Any = None) -> Inspection:
    """What NVML says of this machine's GPUs now.

    Raises:
        NvmlUnavailableError: NVML cannot be used, or there is no GPU; the message says why.
    """
    nvml = load_nvml() if nvml is None else nvml
    probe = NvmlProbe(nvml)
    try:
        readings = {row["uuid"]: row for row in probe.read_fast()}
        devices = probe.devices()
        handles = _handles(nvml)
        gpus = tuple(_gpu(nvml, device, handles, readings.get(device.uuid, {})) for device in devices)
        return Inspection(
            gpus=gpus,
            pairs=tuple(_pairs(nvml, devices, handles)),
            processes=probe.processes(),
            unreachable=probe.unreachable,
            driver=probe.system()["driver"],
            cuda_driver=probe.system()["cuda_driver"],
        )
    finally:
        probe.close()


def _handles(nvml: Any) -> dict[str, Any]:
    """Handles by UUID; in `telemetry.nvml` a GPU without one is named after its index."""
    handles: dict[str, Any] = {}
    for index in range(value_or_none(lambda: nvml.nvmlDeviceGetCount()) or 0):
        handle = value_or_none(lambda index=index: nvml.nvmlDeviceGetHandleByIndex(index))
        if handle is not None:
            handles[value_or_none(text, _call, nvml, "nvmlDeviceGetUUID", handle) or f"unknown-{index}"] = handle
    return handles


def _gpu(nvml: Any, device: Device, handles: dict[str, Any], reading: dict[str, Any]) -> InspectedGpu:
    handle = handles.get(device.uuid or "")
    if handle is None or device.lost:
        return InspectedGpu(device=device)

    def ask(function: str, *arguments: Any) -> Any:
        return value_or_none(_call, nvml, function, handle, *arguments)

    bar1 = value_or_none(lambda: int(_call(nvml, "nvmlDeviceGetBAR1MemoryInfo", handle).bar1Total // MIB))
    return InspectedGpu(
        device=device,
        bar1_mib=bar1,
        core_offset_mhz=ask("nvmlDeviceGetGpcClkVfOffset"),
        memory_offset_mhz=ask("nvmlDeviceGetMemClkVfOffset"),
        application_clock_mhz=ask("nvmlDeviceGetApplicationsClock", CLOCK_SM),
        default_application_clock_mhz=ask("nvmlDeviceGetDefaultApplicationsClock", CLOCK_SM),
        card_pcie_generation=ask("nvmlDeviceGetGpuMaxPcieLinkGeneration"),
        utilisation=reading.get("utilisation"),
        memory_used_mib=reading.get("memory_used_mib"),
        throttle_reasons=tuple(reading.get("throttle_reasons") or ()),
    )


def _pairs(nvml: Any, devices: tuple[Device, ...], handles: dict[str, Any]) -> Iterator[InspectedPair]:
    living = [
        (place, handles[device.uuid or ""])
        for place, device in enumerate(devices)
        if not device.lost and (device.uuid or "") in handles
    ]
    nvlinks = {place: _nvlinks(nvml, handle, devices[place].pci_bus_id) for place, handle in living}
    for (a, one), (b, other) in combinations(living, 2):
        statuses = [
            value_or_none(_call, nvml, "nvmlDeviceGetP2PStatus", one, other, capability)
            for capability in (PEER_READ, PEER_WRITE)
        ]
        yield InspectedPair(
            a=a,
            b=b,
            level=value_or_none(_call, nvml, "nvmlDeviceGetTopologyCommonAncestor", one, other),
            nvlinks=_between(nvlinks[a], nvlinks[b]),
            peer_label=peer_label(statuses),
        )


def peer_label(statuses: list[int | None]) -> str | None:
    """The worse of the claims about reading and writing, as nvidia-smi's label; None where NVML says nothing.

    >>> peer_label([0, 0]), peer_label([0, 2]), peer_label([None, None])
    ('OK', 'GNS', None)
    """
    known = [status for status in statuses if status is not None]
    refused = [status for status in known if status != 0]
    return PEER_LABELS.get(refused[0], "U") if refused else ("OK" if known else None)


def _nvlinks(nvml: Any, handle: Any, bus_id: str) -> _Nvlinks:
    to: list[tuple[int, ...]] = []
    to_switch = 0
    for link in range(NVLINKS_MAX):
        state = value_or_none(_call, nvml, "nvmlDeviceGetNvLinkState", handle, link)
        if state is None:
            break  # this GPU has no more links
        if not state:
            continue
        if value_or_none(_call, nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", handle, link) == REMOTE_IS_SWITCH:
            to_switch += 1
        else:
            found = value_or_none(text, lambda link=link: nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId)
            to.append(pci_order(found or ""))
    return _Nvlinks(pci_order(bus_id), tuple(to), to_switch)


def _between(a: _Nvlinks, b: _Nvlinks) -> int:
    return a.to.count(b.bus) or min(a.to_switch, b.to_switch)


def _call(nvml: Any, function: str, *arguments: Any) -> Any:
    return getattr(nvml, function)(*arguments)
