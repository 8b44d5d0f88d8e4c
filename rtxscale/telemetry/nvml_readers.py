"""How each field is read from NVML: one small function per field, in the table's unit.

Each takes the NVML module and a device handle and raises what the module raises; `telemetry.nvml` guards every call on
its own. Numeric identifiers are NVML's stable ABI, so an older nvidia-ml-py without a name for one still works.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Reader = Callable[[Any, Any], Any]

TEMPERATURE_GPU = 0
CLOCK_SM = 1
CLOCK_MEMORY = 2
PCIE_TX = 0
PCIE_RX = 1
FIELD_MEMORY_TEMPERATURE = 82
FIELD_POWER_AVERAGE = 185
FIELD_POWER_INSTANT = 186
MEMORY_V2 = 0x02000028
PSTATE_UNKNOWN = 32
MIB = 1024 * 1024

VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Member of a field value's union, by NVML value type."""

EVENT_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}


def reason_names(bits: int) -> list[str]:
    """Names of the set clock event reasons, unknown bits as one hexadecimal number.

    >>> reason_names(0x44)
    ['sw_power_cap', 'hw_thermal_slowdown']
    >>> reason_names(0x9001)
    ['gpu_idle', 'other 0x9000']
    """
    names = [name for bit, name in EVENT_REASONS.items() if bits & bit]
    other = bits & ~sum(EVENT_REASONS)
    return [*names, f"other {other:#x}"] if other else names


def text(call: Callable[..., Any], *arguments: Any) -> str:
    """A name from NVML as text: some versions give bytes, and some drivers bytes that are not UTF-8."""
    try:
        value = call(*arguments)
    except UnicodeDecodeError as error:
        value = error.object
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes | bytearray) else str(value)


def field_value(nvml: Any, handle: Any, field: int) -> float:
    """One NVML field in its own unit; the call can succeed while the field failed, so both are checked."""
    value = nvml.nvmlDeviceGetFieldValues(handle, [field])[0]
    if value.nvmlReturn != 0:
        raise nvml.NVMLError(value.nvmlReturn)
    return float(getattr(value.value, VALUE_MEMBERS[value.valueType]))


def power_instant_w(nvml: Any, handle: Any) -> float:
    """Power draw at this moment, W."""
    return field_value(nvml, handle, FIELD_POWER_INSTANT) / 1000


def power_usage_w(nvml: Any, handle: Any) -> float:
    """Power draw, W: a 1-s average on most GPUs since Ampere, instantaneous on others."""
    return float(nvml.nvmlDeviceGetPowerUsage(handle) / 1000)


def memory_used_mib(nvml: Any, handle: Any) -> float:
    """Used device memory, MiB, without what the driver reserves where NVML can tell."""
    try:
        used = nvml.nvmlDeviceGetMemoryInfo(handle, MEMORY_V2).used
    except Exception:  # an older driver or nvidia-ml-py has the first form only; if that fails too, its error counts
        used = nvml.nvmlDeviceGetMemoryInfo(handle).used
    return float(used / MIB)


def throttle_reasons(nvml: Any, handle: Any) -> list[str]:
    """Active clock event reasons by name; driver 535 renamed the call."""
    try:
        bits = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except Exception:  # missing in the driver or in nvidia-ml-py; if the old name fails too, its error counts
        bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return reason_names(int(bits))


def performance_state(nvml: Any, handle: Any) -> int | None:
    """P-state, 0 to 15; NVML says 32 for "unknown"."""
    state = int(nvml.nvmlDeviceGetPerformanceState(handle))
    return None if state == PSTATE_UNKNOWN else state


def throughput_mb_s(direction: int) -> Reader:
    """A reader of the PCIe throughput in one direction, MB/s; NVML measures it for 20 ms and gives KB/s."""
    return lambda nvml, handle: nvml.nvmlDeviceGetPcieThroughput(handle, direction) / 1000


FAST_READERS: dict[str, Reader] = {
    "power_w": power_instant_w,
    "power_average_w": lambda nvml, handle: field_value(nvml, handle, FIELD_POWER_AVERAGE) / 1000,
    "energy_j": lambda nvml, handle: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000,
    "temperature_c": lambda nvml, handle: float(nvml.nvmlDeviceGetTemperature(handle, TEMPERATURE_GPU)),
    "memory_temperature_c": lambda nvml, handle: field_value(nvml, handle, FIELD_MEMORY_TEMPERATURE),
    "sm_clock_mhz": lambda nvml, handle: float(nvml.nvmlDeviceGetClockInfo(handle, CLOCK_SM)),
    "memory_clock_mhz": lambda nvml, handle: float(nvml.nvmlDeviceGetClockInfo(handle, CLOCK_MEMORY)),
    "throttle_reasons": throttle_reasons,
    "performance_state": performance_state,
    "utilisation": lambda nvml, handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
    "memory_used_mib": memory_used_mib,
}

SLOW_READERS: dict[str, Reader] = {
    "fan_percent": lambda nvml, handle: float(nvml.nvmlDeviceGetFanSpeed(handle)),
    "pcie_generation": lambda nvml, handle: int(nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
    "pcie_width": lambda nvml, handle: int(nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)),
    "pcie_rx_mb_s": throughput_mb_s(PCIE_RX),
    "pcie_tx_mb_s": throughput_mb_s(PCIE_TX),
}
