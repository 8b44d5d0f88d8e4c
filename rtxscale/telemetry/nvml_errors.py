"""Every way an NVML call can fail, translated once into what it means for sampling.

`ERRORS` covers every NVML return code that nvidia-ml-py knows (a test checks it). Used by `telemetry.nvml` alone; it
imports no NVML library, so it works where that library is broken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Outcome(Enum):
    """What a failed NVML call means."""

    UNSUPPORTED = "unsupported"
    """This device or driver never gives the value: null, not asked again."""
    UNAVAILABLE = "unavailable"
    """No value this time: null, asked again."""
    LOST = "lost"
    """The device is gone until it is reset: recorded, the others go on."""
    BROKEN = "broken"
    """NVML itself cannot be used."""


ERRORS: dict[int, tuple[str, Outcome]] = {
    1: ("NVML is not initialised", Outcome.BROKEN),
    2: ("invalid argument", Outcome.UNSUPPORTED),
    3: ("not supported by this GPU", Outcome.UNSUPPORTED),
    4: ("no permission", Outcome.UNSUPPORTED),
    5: ("already initialised", Outcome.UNAVAILABLE),
    6: ("not found", Outcome.UNSUPPORTED),
    7: ("buffer too small", Outcome.UNAVAILABLE),
    8: ("power cables of the GPU are not attached", Outcome.LOST),
    9: ("the NVIDIA driver is not loaded", Outcome.BROKEN),
    10: ("timed out", Outcome.UNAVAILABLE),
    11: ("interrupt problem of the GPU", Outcome.UNAVAILABLE),
    12: ("the NVML library libnvidia-ml.so.1 was not found", Outcome.BROKEN),
    13: ("the driver's NVML library lacks the function", Outcome.UNSUPPORTED),
    14: ("corrupted infoROM", Outcome.UNSUPPORTED),
    15: ("the GPU is lost: it fell off the bus", Outcome.LOST),
    16: ("the GPU needs a reset", Outcome.LOST),
    17: ("blocked by the operating system", Outcome.UNAVAILABLE),
    18: ("the driver's kernel module and its library have different versions: reboot", Outcome.BROKEN),
    19: ("in use", Outcome.UNAVAILABLE),
    20: ("insufficient memory", Outcome.UNAVAILABLE),
    21: ("no data", Outcome.UNAVAILABLE),
    22: ("not supported on a vGPU with ECC", Outcome.UNSUPPORTED),
    23: ("insufficient resources", Outcome.UNAVAILABLE),
    24: ("frequency not supported", Outcome.UNSUPPORTED),
    25: ("the driver's NVML library has another version of the structure", Outcome.UNSUPPORTED),
    26: ("deprecated and removed", Outcome.UNSUPPORTED),
    27: ("not ready", Outcome.UNAVAILABLE),
    28: ("GPU not found", Outcome.LOST),
    29: ("invalid state", Outcome.UNAVAILABLE),
    30: ("reset type not supported", Outcome.UNSUPPORTED),
    999: ("unknown NVML error", Outcome.UNAVAILABLE),
}


MISSING_IN_BINDING = "the installed nvidia-ml-py lacks the function"
NOT_IN_NVML = "NVML has no such reading"


class NotInNvmlError(Exception):
    """A field that other sources may give, but NVML never."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a call gave no value."""

    outcome: Outcome
    reason: str


def explain(error: Exception) -> Failure:
    """What an exception of an NVML call means."""
    code = getattr(error, "value", None)
    if isinstance(code, int):
        reason, outcome = ERRORS.get(code, (f"NVML error code {code}", Outcome.UNAVAILABLE))
        return Failure(outcome=outcome, reason=reason)
    if isinstance(error, NotInNvmlError):
        return Failure(outcome=Outcome.UNSUPPORTED, reason=NOT_IN_NVML)
    if isinstance(error, AttributeError):
        return Failure(outcome=Outcome.UNSUPPORTED, reason=MISSING_IN_BINDING)
    return Failure(outcome=Outcome.UNAVAILABLE, reason=f"{type(error).__name__}: {error}")


def attempt(call: Callable[..., Any], *arguments: Any) -> Any:
    """The call's result, or a `Failure`; never raises."""
    try:
        return call(*arguments)
    except Exception as error:  # one failing value must not take the others with it, whatever the binding raises
        return explain(error)


def value_or_none(call: Callable[..., Any], *arguments: Any) -> Any:
    """The call's result, or None if it failed; for static facts, where None says "unknown"."""
    result = attempt(call, *arguments)
    return None if isinstance(result, Failure) else result
