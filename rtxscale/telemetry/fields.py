"""What is sampled, and what a watched device is, as plain data.

`FIELDS` names every sampled quantity with its unit, cadence class and source; the names are columns of the "telemetry"
table. Nothing here reads a device: probes do (`telemetry.nvml`, `telemetry.host`, `telemetry.replay`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Row = dict[str, Any]
"""One reading of one device: `device`, `uuid` and the fields that could be read; what could not is left out."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """One sampled quantity. Slow ones cost milliseconds to read, or change rarely."""

    name: str
    unit: str
    cadence: Literal["fast", "slow"]
    source: str


FIELDS = (
    Field(name="power_w", unit="W", cadence="fast", source="NVML field 186 (instant), else nvmlDeviceGetPowerUsage"),
    Field(name="power_average_w", unit="W", cadence="fast", source="NVML field 185 (1-s average)"),
    Field(name="energy_j", unit="J", cadence="fast", source="nvmlDeviceGetTotalEnergyConsumption"),
    Field(name="temperature_c", unit="degC", cadence="fast", source="nvmlDeviceGetTemperature"),
    Field(name="memory_temperature_c", unit="degC", cadence="fast", source="NVML field 82"),
    Field(name="sm_clock_mhz", unit="MHz", cadence="fast", source="nvmlDeviceGetClockInfo(SM)"),
    Field(name="memory_clock_mhz", unit="MHz", cadence="fast", source="nvmlDeviceGetClockInfo(MEM)"),
    Field(
        name="throttle_reasons",
        unit="",
        cadence="fast",
        source="nvmlDeviceGetCurrentClocksEventReasons, else ...ThrottleReasons",
    ),
    Field(name="performance_state", unit="", cadence="fast", source="nvmlDeviceGetPerformanceState"),
    Field(name="utilisation", unit="1", cadence="fast", source="nvmlDeviceGetUtilizationRates; psutil.cpu_times"),
    Field(name="memory_used_mib", unit="MiB", cadence="fast", source="nvmlDeviceGetMemoryInfo; psutil.virtual_memory"),
    Field(name="fan_percent", unit="%", cadence="slow", source="nvmlDeviceGetFanSpeed"),
    Field(name="pcie_generation", unit="", cadence="slow", source="nvmlDeviceGetCurrPcieLinkGeneration"),
    Field(name="pcie_width", unit="lanes", cadence="slow", source="nvmlDeviceGetCurrPcieLinkWidth"),
    Field(name="pcie_rx_mb_s", unit="MB/s", cadence="slow", source="nvmlDeviceGetPcieThroughput(RX), 20 ms"),
    Field(name="pcie_tx_mb_s", unit="MB/s", cadence="slow", source="nvmlDeviceGetPcieThroughput(TX), 20 ms"),
    Field(name="pcie_replays", unit="", cadence="slow", source="nvmlDeviceGetPcieReplayCounter"),
    Field(name="hotspot_temperature_c", unit="degC", cadence="slow", source="none: NVML has no such reading"),
    Field(name="ecc_corrected", unit="", cadence="slow", source="nvmlDeviceGetTotalEccErrors(corrected, volatile)"),
    Field(name="ecc_uncorrected", unit="", cadence="slow", source="nvmlDeviceGetTotalEccErrors(uncorrected, volatile)"),
    Field(name="remapped_rows", unit="", cadence="slow", source="nvmlDeviceGetRemappedRows"),
    Field(name="xids", unit="", cadence="slow", source="NVML event set, Xid critical errors"),
    Field(name="processes", unit="", cadence="slow", source="nvmlDeviceGetComputeRunningProcesses"),
)
FAST = frozenset(field.name for field in FIELDS if field.cadence == "fast")
SLOW = frozenset(field.name for field in FIELDS if field.cadence == "slow")


@dataclass(frozen=True, kw_only=True)
class MigInstance:
    """One MIG instance of a GPU. Power and temperature exist for the whole board only."""

    uuid: str
    name: str
    memory_mib: int | None = None


@dataclass(frozen=True, kw_only=True)
class GpuProcess:
    """A process that holds a GPU. `pid` is the machine's; in a container it may mean nothing, or another process."""

    uuid: str
    pid: int
    used_mib: float | None = None


@dataclass(frozen=True, kw_only=True)
class Device:
    """A watched device and what does not change about it; None and the empty string are "unknown".

    `absent` maps a field that this device does not give to the reason, recorded once. `lost` is the reason why the
    device answers no more. `power_source` says what `power_w` is.
    """

    kind: Literal["gpu", "host"]
    uuid: str | None = None
    name: str = ""
    pci_bus_id: str = ""
    compute_capability: tuple[int, int] | None = None
    memory_mib: int | None = None
    power_limit_w: float | None = None
    power_default_w: float | None = None
    power_max_w: float | None = None
    pcie_max_generation: int | None = None
    pcie_max_width: int | None = None
    persistence: bool | None = None
    mig: bool | None = None
    mig_instances: tuple[MigInstance, ...] = ()
    power_source: str = ""
    absent: tuple[tuple[str, str], ...] = ()
    lost: str = ""
