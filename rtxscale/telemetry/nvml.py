"""NVIDIA GPUs through NVML: every metric of every GPU guarded on its own.

One GPU's missing metric is null with its reason recorded once; a lost GPU stops and the others go on. It never changes
a setting and never reads CUDA_VISIBLE_DEVICES (`telemetry.visible` does). The NVML module is passed in or imported
here; called through `telemetry.probe` and `telemetry.facts`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from rtxscale.telemetry.fields import Device, GpuProcess, MigInstance, Row
from rtxscale.telemetry.nvml_errors import Failure, Outcome, attempt, explain, value_or_none
from rtxscale.telemetry.nvml_readers import (
    FAST_READERS,
    MIB,
    POWER_INSTANT_W,
    SLOW_READERS,
    FieldReading,
    Reader,
    XidReader,
    compute_processes,
    field_answers,
    power_usage_w,
    text,
)

POWER_INSTANT = "instant (NVML field 186)"
POWER_USAGE = "nvmlDeviceGetPowerUsage (1-s average on most GPUs since Ampere, else instant)"
NO_GPU = "the driver works, but there is no NVIDIA GPU"
POWER_FIELDS = frozenset({"power_w", "power_average_w"})
GARBAGE_OVER_MAX = 1.5
"""Instant readings exceed a board's largest power limit for milliseconds; a driver's garbage is far above it."""
GARBAGE_W = 5000.0
"""The same bound for a board that does not tell its largest limit."""
GARBAGE_COUNT = 2**63 - 1
"""A counter beyond it, such as the all ones of a GPU that is falling off the bus, fits into no table."""
GARBAGE_OF = {
    "energy_j": 1e13,
    "temperature_c": 1e3,
    "memory_temperature_c": 1e3,
    "sm_clock_mhz": 1e5,
    "memory_clock_mhz": 1e5,
}
"""The same bound where a reading is divided or has fewer bits, in its field's unit: far above anything real."""
NEVER_ZERO = POWER_FIELDS | {"energy_j"}
"""A GPU that answers draws power, and has since its driver was loaded: zero stands for no reading."""


class NvmlUnavailableError(Exception):
    """NVML cannot be used here; the message says why. Expected on a machine without an NVIDIA GPU."""


@dataclass(kw_only=True)
class _Watched:
    """A GPU with its handle and what has been learnt about it while reading; what is silent leaves the readers."""

    handle: Any
    device: Device
    fast: dict[str, Reader]
    slow: dict[str, Reader]
    xids: XidReader
    absent: dict[str, str] = field(default_factory=dict)
    lost: str = ""
    parted: bool = False
    """Whether it was asked, once lost, for the Xid errors that say why."""

    def facts(self) -> Device:
        # A copy: the reading threads may add a field meanwhile.
        return replace(self.device, absent=tuple(sorted(self.absent.copy().items())), lost=self.lost)

    def is_plausible(self, name: str, value: Any) -> bool:
        """Whether it is no garbage; that there was some is recorded once."""
        is_power = name in POWER_FIELDS
        bound = garbage_bound_w(self.device.power_max_w) if is_power else GARBAGE_OF.get(name, GARBAGE_COUNT)
        if isinstance(value, list) or (value <= bound and not (value == 0 and name in NEVER_ZERO)):
            return True
        said = f"{value:.0f} W" if is_power else value
        self.absent.setdefault(name, f"implausible reading of {said} dropped")
        return False

    def note(self, name: str, failure: Failure) -> None:
        """Record a failure once; stop asking for what will never come."""
        self.absent.setdefault(name, failure.reason)
        if failure.outcome is Outcome.UNSUPPORTED:
            self.fast, self.slow = (
                {key: one for key, one in readers.items() if key != name} for readers in (self.fast, self.slow)
            )
        if failure.outcome is Outcome.LOST:
            self.lost = failure.reason


class NvmlProbe:
    """All NVIDIA GPUs of this machine, in PCI bus order."""

    name = "nvml"

    def __init__(self, nvml: Any = None) -> None:
        """Start NVML and look at every GPU once.

        Raises:
            NvmlUnavailableError: no binding, no library, no driver, or no GPU.
        """
        self._nvml = load_nvml() if nvml is None else nvml
        started = attempt(_call, self._nvml, "nvmlInit")
        if isinstance(started, Failure):
            raise NvmlUnavailableError(started.reason)
        self._open = True
        self._watched: list[_Watched] = []
        self.unreachable: tuple[str, ...] = ()
        """GPUs that NVML counts but cannot open, with the reason."""
        self._watched = self._find(self._count())
        if not self._watched and not self.unreachable:
            self.close()
            raise NvmlUnavailableError(NO_GPU)

    def devices(self) -> tuple[Device, ...]:
        """The GPUs in PCI bus order, with what has turned out to be absent so far."""
        return tuple(watched.facts() for watched in self._watched)

    def read_fast(self) -> Iterator[Row]:
        """One row per living GPU with its fast fields."""
        for watched in self._watched:
            yield from self._read(watched, watched.fast)

    def read_named(self, uuid: str, fields: Iterable[str]) -> Row | None:
        """One GPU's row with only these fast fields: cheap enough between steps. None for no such or a lost GPU."""
        for watched in self._watched:
            if watched.device.uuid == uuid:
                return next(
                    self._read(watched, {name: watched.fast[name] for name in fields if name in watched.fast}), None
                )
        return None

    def read_slow(self) -> Iterator[Row]:
        """One row per living GPU with its slow fields; of a lost one, once, the Xid errors that it left."""
        for watched in self._watched:
            if self._open and watched.lost and not watched.parted:
                watched.parted = True
                if xids := value_or_none(watched.xids, self._nvml, watched.handle):
                    yield {"device": "gpu", "uuid": watched.device.uuid, "xids": xids}
            yield from self._read(watched, watched.slow)

    def close(self) -> None:
        """Shut NVML down for this probe; later reads give no rows."""
        if self._open:
            self._open = False
            for watched in self._watched:
                attempt(watched.xids.close, self._nvml)
            attempt(_call, self._nvml, "nvmlShutdown")

    def system(self) -> dict[str, str]:
        """Driver and CUDA driver version as text; what NVML does not say is "unknown"."""
        driver = value_or_none(text, _call, self._nvml, "nvmlSystemGetDriverVersion")
        cuda = value_or_none(_call, self._nvml, "nvmlSystemGetCudaDriverVersion_v2")
        return {"driver": driver or "unknown", "cuda_driver": cuda_version(cuda)}

    def processes(self) -> tuple[GpuProcess, ...]:
        """The compute processes on every living GPU; a GPU that does not tell has none in the answer."""
        found = []
        for watched in self._watched:
            if not self._can_read(watched):
                continue
            seen = value_or_none(compute_processes, self._nvml, watched.handle) or ()
            for process in seen:
                used = process.usedGpuMemory
                found.append(
                    GpuProcess(
                        uuid=watched.device.uuid or "",
                        pid=int(process.pid),
                        used_mib=None if used is None else used / MIB,
                    )
                )
        return tuple(found)

    def _read(self, watched: _Watched, readers: Mapping[str, Reader]) -> Iterator[Row]:
        row: Row = {"device": "gpu", "uuid": watched.device.uuid}
        if not self._can_read(watched):
            return
        answers = self._answers(watched, readers)
        for name, reader in readers.items():
            try:
                value = answers[name]() if name in answers else reader(self._nvml, watched.handle)
            except Exception as error:  # whatever the binding raises, the other metrics and GPUs go on
                watched.note(name, explain(error))
            else:
                if value is not None and watched.is_plausible(name, value):
                    row[name] = value
            if not self._can_read(watched):
                break
        if len(row) > len(("device", "uuid")):
            yield row

    def _can_read(self, watched: _Watched) -> bool:
        return self._open and not watched.lost

    def _answers(self, watched: _Watched, readers: Mapping[str, Reader]) -> Mapping[str, Callable[[], float]]:
        """Values of all field readings among the readers, asked for in one call; none where that call fails."""
        asked = {name: reader for name, reader in readers.items() if isinstance(reader, FieldReading)}
        answers = attempt(field_answers, self._nvml, watched.handle, tuple(asked.values())) if asked else ()
        if isinstance(answers, Failure):
            return {}
        pairs = zip(asked.items(), answers, strict=True)
        return {name: partial(reading.value_of, self._nvml, answer) for (name, reading), answer in pairs}

    def _count(self) -> int:
        """How many GPUs there are; that NVML does not tell is no reason to say that there is none."""
        count = attempt(_call, self._nvml, "nvmlDeviceGetCount")
        if isinstance(count, Failure):
            self.close()
            raise NvmlUnavailableError(f"NVML does not count the GPUs: {count.reason}")
        return int(count)

    def _find(self, count: int) -> list[_Watched]:
        found: list[tuple[tuple[Any, ...], _Watched]] = []
        for index in range(count):
            handle = attempt(_call, self._nvml, "nvmlDeviceGetHandleByIndex", index)
            if isinstance(handle, Failure):
                self.unreachable += (f"GPU {index}: {handle.reason}",)
                continue
            device = describe(self._nvml, handle, index)
            instant = not isinstance(attempt(POWER_INSTANT_W, self._nvml, handle), Failure)
            device = replace(device, power_source=POWER_INSTANT if instant else POWER_USAGE)
            power = POWER_INSTANT_W if instant else power_usage_w
            fast = {**FAST_READERS, "power_w": power}
            xids = XidReader()
            watched = _Watched(handle=handle, device=device, fast=fast, slow={**SLOW_READERS, "xids": xids}, xids=xids)
            found.append(((pci_order(device.pci_bus_id), index), watched))
        return [watched for _, watched in sorted(found, key=lambda pair: pair[0])]


def load_nvml() -> Any:
    """The NVML module of nvidia-ml-py.

    Raises:
        NvmlUnavailableError: it cannot be imported.
    """
    try:
        return importlib.import_module("pynvml")
    except Exception as error:  # a shadowing or broken package may raise anything at import
        raise NvmlUnavailableError(f"nvidia-ml-py cannot be imported: {type(error).__name__}: {error}") from error


def describe(nvml: Any, handle: Any, index: int) -> Device:
    """What does not change about a GPU. A GPU without a readable UUID gets one made of its index."""

    def ask(function: str) -> Any:
        return value_or_none(_call, nvml, function, handle)

    def ask_text(function: str) -> str | None:
        found: str | None = value_or_none(text, _call, nvml, function, handle)
        return found

    limits = ask("nvmlDeviceGetPowerManagementLimitConstraints")
    capability = ask("nvmlDeviceGetCudaComputeCapability")
    persistence = ask("nvmlDeviceGetPersistenceMode")
    mig_modes = ask("nvmlDeviceGetMigMode")
    return Device(
        kind="gpu",
        uuid=ask_text("nvmlDeviceGetUUID") or f"unknown-{index}",
        name=ask_text("nvmlDeviceGetName") or "unknown",
        pci_bus_id=value_or_none(text, lambda: nvml.nvmlDeviceGetPciInfo(handle).busId) or "",
        compute_capability=tuple(capability) if capability else None,
        memory_mib=_mebibytes(ask("nvmlDeviceGetMemoryInfo")),
        power_limit_w=_watts(ask("nvmlDeviceGetPowerManagementLimit")),
        power_default_w=_watts(ask("nvmlDeviceGetPowerManagementDefaultLimit")),
        power_max_w=_watts(limits[1]) if limits else None,
        pcie_max_generation=ask("nvmlDeviceGetMaxPcieLinkGeneration"),
        pcie_max_width=ask("nvmlDeviceGetMaxPcieLinkWidth"),
        persistence=None if persistence is None else bool(persistence),
        mig=None if mig_modes is None else bool(mig_modes[0]),
        mig_instances=mig_instances(nvml, handle) if mig_modes and mig_modes[0] else (),
    )


def mig_instances(nvml: Any, handle: Any) -> tuple[MigInstance, ...]:
    """The MIG instances of a GPU, in NVML's order."""
    found = []
    for index in range(value_or_none(_call, nvml, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        instance = value_or_none(_call, nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
        uuid = None if instance is None else value_or_none(text, _call, nvml, "nvmlDeviceGetUUID", instance)
        if uuid is None:
            continue
        found.append(
            MigInstance(
                uuid=uuid,
                name=value_or_none(text, _call, nvml, "nvmlDeviceGetName", instance) or "unknown",
                memory_mib=_mebibytes(value_or_none(_call, nvml, "nvmlDeviceGetMemoryInfo", instance)),
            )
        )
    return tuple(found)


def garbage_bound_w(power_max_w: float | None) -> float:
    """Power above this, W, is a driver's garbage and not a reading."""
    return power_max_w * GARBAGE_OVER_MAX if power_max_w else GARBAGE_W


def cuda_version(number: int | None) -> str:
    """NVML's CUDA driver version as text.

    >>> cuda_version(12080), cuda_version(None)
    ('12.8', 'unknown')
    """
    return f"{number // 1000}.{number % 1000 // 10}" if number else "unknown"


def pci_order(bus_id: str) -> tuple[int, ...]:
    """A sort key for a PCI bus id; an unreadable one comes last.

    >>> pci_order("00000000:C1:00.0")
    (0, 193, 0, 0)
    """
    try:
        return tuple(int(part, 16) for part in bus_id.replace(".", ":").split(":"))
    except ValueError:
        return (1 << 32,)


def _call(nvml: Any, function: str, *arguments: Any) -> Any:
    # Looked up inside the guard: an older nvidia-ml-py lacks functions.
    return getattr(nvml, function)(*arguments)


def _mebibytes(memory: Any) -> int | None:
    return None if memory is None else int(memory.total // MIB)


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000
