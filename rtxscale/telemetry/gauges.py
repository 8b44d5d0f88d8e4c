"""The gauges that Ray's metrics endpoint shows: their names, what they mean, and their values from newest readings.

Data and one pure function; `run.gauges` sets them. Ray puts `ray_` before each name. They carry node, GPU, sweep and
session, not the trial: a series for each trial, GPU and gauge would grow without end. The trial has a gauge of its own,
which Prometheus can join with the others. The dashboard that `rtxscale grafana` prints names exactly these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rtxscale.telemetry.window import POWER_CAP, SLOWDOWNS

TAGS = ("node", "gpu", "sweep", "session")
TRIAL_TAGS = ("node", "sweep", "session", "trial")


@dataclass(frozen=True)
class GaugeText:
    """One gauge: its name without Ray's prefix, and its description with the unit."""

    name: str
    description: str


FIELD_GAUGES = {
    "power_w": GaugeText("rtxscale_gpu_power_watts", "GPU power draw in watts"),
    "energy_j": GaugeText("rtxscale_gpu_energy_joules", "total energy counter of the GPU in joules"),
    "temperature_c": GaugeText("rtxscale_gpu_temperature_celsius", "GPU core temperature in degrees Celsius"),
    "memory_temperature_c": GaugeText(
        "rtxscale_gpu_memory_temperature_celsius", "GPU memory temperature in degrees Celsius"
    ),
    "sm_clock_mhz": GaugeText("rtxscale_gpu_sm_clock_mhz", "SM clock in MHz"),
    "memory_clock_mhz": GaugeText("rtxscale_gpu_memory_clock_mhz", "memory clock in MHz"),
    "fan_percent": GaugeText("rtxscale_gpu_fan_percent", "fan speed in percent"),
    "pcie_rx_mb_s": GaugeText("rtxscale_gpu_pcie_receive_mb_s", "PCIe receive throughput in MB/s"),
    "pcie_tx_mb_s": GaugeText("rtxscale_gpu_pcie_transmit_mb_s", "PCIe transmit throughput in MB/s"),
    "pcie_replays": GaugeText("rtxscale_gpu_pcie_replays", "PCIe packets sent again, counted by the GPU"),
    "ecc_uncorrected": GaugeText("rtxscale_gpu_ecc_uncorrected", "uncorrected memory errors since the driver's start"),
    "utilisation": GaugeText("rtxscale_utilisation_ratio", "busy share of the GPU or of the host's CPUs"),
    "memory_used_mib": GaugeText("rtxscale_memory_used_mib", "used memory of the GPU or host in MiB"),
}
"""Gauges by the telemetry field that they show."""
SLOWDOWN = GaugeText("rtxscale_gpu_slowdown", "1 while a thermal or power-brake slowdown is active, else 0")
CAPPED = GaugeText("rtxscale_gpu_power_capped", "1 while the clock is held by the power limit, else 0")
TRIAL = GaugeText("rtxscale_trial_info", "1 for the trial that is running, 0 for the one before; by its id")
ALL_GAUGES = (*FIELD_GAUGES.values(), SLOWDOWN, CAPPED)


def gauge_values(readings: Mapping[str, Any]) -> dict[str, float]:
    """Values by gauge of one device's newest readings; what was not read has none.

    >>> gauge_values({"power_w": 300, "throttle_reasons": ["sw_power_cap"], "fan_percent": None})
    {'rtxscale_gpu_power_watts': 300.0, 'rtxscale_gpu_slowdown': 0.0, 'rtxscale_gpu_power_capped': 1.0}
    """
    values = {
        gauge.name: float(readings[field]) for field, gauge in FIELD_GAUGES.items() if readings.get(field) is not None
    }
    reasons = readings.get("throttle_reasons")
    if reasons is not None:
        values[SLOWDOWN.name] = float(bool(SLOWDOWNS & set(reasons)))
        values[CAPPED.name] = float(POWER_CAP in reasons)
    return values
