"""How each field is read from NVML: one small function per field, in the table's unit.

Each takes the NVML module and a device handle and raises what the module raises; `telemetry.nvml` guards every call on
its own. Numeric identifiers are NVML's stable ABI, so an older nvidia-ml-py without a name for one still works.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rtxscale.telemetry.nvml_errors import NotInNvmlError

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
ECC_CORRECTED, ECC_UNCORRECTED = 0, 1
ECC_VOLATILE = 0
XID_EVENT = 0x8
FUNCTION_NOT_FOUND = 13
DEPRECATED = 26
TIMEOUT = 10
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


@lru_cache(maxsize=256)
def reason_names(bits: int) -> list[str]:
    """Names of the set clock event reasons, unknown bits as one hexadecimal number; not to be changed by who gets it.

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


@dataclass(frozen=True)
class FieldReading:
    """A reader of one NVML field, in the field's unit divided by `divisor`; several are read in one call."""

    number: int
    divisor: float = 1.0

    def __call__(self, nvml: Any, handle: Any) -> float:
        """This field alone."""
        return self.value_of(nvml, nvml.nvmlDeviceGetFieldValues(handle, [self.number])[0])

    def value_of(self, nvml: Any, answer: Any) -> float:
        """What one answer says; the call can succeed while the field failed, so both are checked."""
        if answer.nvmlReturn != 0:
            raise nvml.NVMLError(answer.nvmlReturn)
        return float(getattr(answer.value, VALUE_MEMBERS[answer.valueType]) / self.divisor)


def field_answers(nvml: Any, handle: Any, readings: Sequence[FieldReading]) -> Sequence[Any]:
    """NVML's answers to several fields, in one call to the driver."""
    answers: Sequence[Any] = nvml.nvmlDeviceGetFieldValues(handle, [reading.number for reading in readings])
    return answers


POWER_INSTANT_W = FieldReading(FIELD_POWER_INSTANT, 1000)
"""Power draw at this moment, W."""


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


def is_gone(error: Exception) -> bool:
    """Whether a call was taken out of nvidia-ml-py, or out of the driver that it calls."""
    return isinstance(error, AttributeError) or getattr(error, "value", None) in (FUNCTION_NOT_FOUND, DEPRECATED)


def fan_percent(nvml: Any, handle: Any) -> float:
    """Fan speed, %: of all fans, or of the first one where only the newer call exists."""
    try:
        return float(nvml.nvmlDeviceGetFanSpeed(handle))
    except Exception as error:
        if not is_gone(error):
            raise
        return float(nvml.nvmlDeviceGetFanSpeed_v2(handle, 0))


def temperature_c(nvml: Any, handle: Any) -> float:
    """Core temperature, degC; the call is on its way to another name."""
    try:
        return float(nvml.nvmlDeviceGetTemperature(handle, TEMPERATURE_GPU))
    except Exception as error:
        if not is_gone(error):
            raise
        return float(nvml.nvmlDeviceGetTemperatureV(handle, TEMPERATURE_GPU))


def hotspot_temperature_c(nvml: Any, handle: Any) -> float:
    """Nothing: NVML tells no hot-spot temperature.

    Raises:
        NotInNvmlError: always.
    """
    raise NotInNvmlError


def ecc_errors(kind: int) -> Reader:
    """A reader of memory errors since the driver was loaded."""
    return lambda nvml, handle: int(nvml.nvmlDeviceGetTotalEccErrors(handle, kind, ECC_VOLATILE))


def remapped_rows(nvml: Any, handle: Any) -> int:
    """Memory rows replaced after corrected and uncorrected errors."""
    corrected, uncorrected, _, _ = nvml.nvmlDeviceGetRemappedRows(handle)
    return int(corrected + uncorrected)


def compute_processes(nvml: Any, handle: Any) -> list[Any]:
    """The compute processes on a GPU; a driver older than the binding knows an older structure only."""
    try:
        return list(nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    except Exception as error:
        # The binding words a missing function in its own exception, which has no code.
        if getattr(error, "value", FUNCTION_NOT_FOUND) != FUNCTION_NOT_FOUND:
            raise
        return list(nvml.nvmlDeviceGetComputeRunningProcesses_v2(handle))


class XidReader:
    """A reader of the Xid errors of one GPU since the read before; the first read begins to listen."""

    def __init__(self) -> None:
        """Not listening yet."""
        self._events: Any = None

    def __call__(self, nvml: Any, handle: Any) -> list[int]:
        """Numbers of the errors in order, empty for none; never waits."""
        if self._events is None:
            events = nvml.nvmlEventSetCreate()
            nvml.nvmlDeviceRegisterEvents(handle, XID_EVENT, events)
            self._events = events
        found = []
        while True:
            try:
                found.append(int(nvml.nvmlEventSetWait_v2(self._events, 0).eventData))
            except Exception as error:
                # What was found before a failure counts; the failure comes again.
                if getattr(error, "value", None) != TIMEOUT and not found:
                    raise
                return found

    def close(self, nvml: Any) -> None:
        """Stop listening."""
        events, self._events = self._events, None
        if events is not None:
            nvml.nvmlEventSetFree(events)


def throughput_mb_s(direction: int) -> Reader:
    """A reader of the PCIe throughput in one direction, MB/s; NVML measures it for 20 ms and gives KB/s."""
    return lambda nvml, handle: nvml.nvmlDeviceGetPcieThroughput(handle, direction) / 1000


FAST_READERS: dict[str, Reader] = {
    "power_w": POWER_INSTANT_W,
    "power_average_w": FieldReading(FIELD_POWER_AVERAGE, 1000),
    "energy_j": lambda nvml, handle: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000,
    "temperature_c": temperature_c,
    "memory_temperature_c": FieldReading(FIELD_MEMORY_TEMPERATURE),
    "sm_clock_mhz": lambda nvml, handle: float(nvml.nvmlDeviceGetClockInfo(handle, CLOCK_SM)),
    "memory_clock_mhz": lambda nvml, handle: float(nvml.nvmlDeviceGetClockInfo(handle, CLOCK_MEMORY)),
    "throttle_reasons": throttle_reasons,
    "performance_state": performance_state,
    "utilisation": lambda nvml, handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
    "memory_used_mib": memory_used_mib,
}

SLOW_READERS: dict[str, Reader] = {
    "fan_percent": fan_percent,
    "pcie_generation": lambda nvml, handle: int(nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
    "pcie_width": lambda nvml, handle: int(nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)),
    "pcie_rx_mb_s": throughput_mb_s(PCIE_RX),
    "pcie_tx_mb_s": throughput_mb_s(PCIE_TX),
    "pcie_replays": lambda nvml, handle: int(nvml.nvmlDeviceGetPcieReplayCounter(handle)),
    "hotspot_temperature_c": hotspot_temperature_c,
    "ecc_corrected": ecc_errors(ECC_CORRECTED),
    "ecc_uncorrected": ecc_errors(ECC_UNCORRECTED),
    "remapped_rows": remapped_rows,
    "processes": lambda nvml, handle: len(compute_processes(nvml, handle)),
}
"""Each GPU has a reader of `xids` of its own beside these: it remembers."""
