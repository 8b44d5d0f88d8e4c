"""The gauges of one node in Ray's metrics: made once, set from the newest readings of each device.

What there is and what it means is data in `telemetry.gauges`. Caller: `run.watchers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rtxscale.telemetry.gauges import ALL_GAUGES, TAGS, TRIAL, TRIAL_TAGS, gauge_values


class Gauges:
    """All gauges of one process; needs Ray's own metrics agent, without which setting them does nothing."""

    def __init__(self) -> None:
        """Register them."""
        from ray.util.metrics import Gauge

        self._gauges: dict[str, Any] = {
            gauge.name: Gauge(gauge.name, description=gauge.description, tag_keys=TAGS) for gauge in ALL_GAUGES
        }
        self._trial: Any = Gauge(TRIAL.name, description=TRIAL.description, tag_keys=TRIAL_TAGS)
        self._shown: dict[str, str] | None = None
        """Tags of the trial that was shown last."""

    def show(self, devices: Mapping[str, Mapping[str, Any]], tags: Mapping[str, str], trial: str = "") -> None:
        """Set them from newest readings by GPU UUID, the host's under the empty name; `tags` are all but the GPU's.

        `trial` is the id of the trial that is running, empty between trials.
        """
        running = {**tags, "trial": trial} if trial else None
        if self._shown is not None and self._shown != running:
            self._trial.set(0.0, self._shown)
        if running is not None:
            self._trial.set(1.0, running)
        self._shown = running
        for gpu, readings in devices.items():
            for name, value in gauge_values(readings).items():
                self._gauges[name].set(value, {**tags, "gpu": gpu})
