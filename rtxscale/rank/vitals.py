"""Temperature and clock of a rank's own GPU while it works, and how long it has worked: kept for the whole session.

Read by the rank itself, at most once a second and only between chunks of steps, never inside a measured window. Not
telemetry of a run (`telemetry.sampler` is): it only feeds the steady-state criterion. Without a GPU it counts the load
and nothing else. Callers: `rank.warmup` and `rank.session`.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

from rtxscale.stats.steady import GpuTrends, Trend, trend
from rtxscale.telemetry.nvml import NvmlProbe, NvmlUnavailableError

SAMPLE_S = 1.0
"""Least time between two looks at the GPU; each costs two NVML calls."""

PAUSE_S = 30.0
"""A longer pause cools the card, and its slopes start anew.

After a pause p the part p/tau of a boost that decays by 4 % is back; a minute of warm-up later 4 % (1 - e^-p/tau)
e^-60/tau is left, at p = 30 s and whatever tau 0.6 % at most: within what `stats.steady` accepts anyway.
"""

TEMPERATURE, CLOCK = "temperature_c", "sm_clock_mhz"
UNREADABLE = GpuTrends(temperature=Trend(readable=False), clock=Trend(readable=False))


@dataclass(kw_only=True)
class Vitals:
    """One rank's load and its GPU's readings under load; times are monotonic, in seconds.

    `uuid` None: a rank without a GPU. `probe` None: its GPU cannot be read.
    """

    uuid: str | None = None
    probe: NvmlProbe | None = None
    now: Callable[[], float] = time.monotonic
    load_s: float = 0.0
    """Seconds in steps so far in this session; pauses, set-up and compilation left out."""
    t_s: list[float] = field(default_factory=list)
    temperature_c: list[float] = field(default_factory=list)
    clock_mhz: list[float] = field(default_factory=list)
    _since: int = 0
    _until_s: float | None = None
    _known: tuple[int, float, GpuTrends] | None = None

    def worked(self, seconds: float) -> None:
        """Count steps of `seconds` that have just ended, and look at the GPU if it is time to."""
        now_s = self.now()
        if self._until_s is not None and now_s - seconds - self._until_s > PAUSE_S:
            self._since = len(self.t_s)
        self._until_s = now_s
        self.load_s += seconds
        if self.probe is not None and (not self.t_s or now_s - self.t_s[-1] >= SAMPLE_S):
            self._look(self.probe, now_s)

    def trends(self, base_s: float) -> GpuTrends | None:
        """How temperature and clock move over the last `base_s` seconds since the last pause; None without a GPU."""
        if self.uuid is None or self.probe is None:
            return None if self.uuid is None else UNREADABLE
        if self._known is None or self._known[:2] != (len(self.t_s), base_s):
            since = self._since_base(base_s)
            times = self.t_s[since:]
            found = GpuTrends(
                temperature=trend(times, self.temperature_c[since:], base_s=base_s),
                clock=trend(times, self.clock_mhz[since:], base_s=base_s, relative=True),
            )
            self._known = (len(self.t_s), base_s, found)
        return self._known[2]

    def close(self) -> None:
        """Let go of NVML."""
        if self.probe is not None:
            self.probe.close()

    def _since_base(self, base_s: float) -> int:
        """The last sample that is old enough for the time base, or the first one since the last pause."""
        oldest_s = self.t_s[-1] - base_s if self.t_s else 0.0
        return max(self._since, bisect_right(self.t_s, oldest_s) - 1)

    def _look(self, probe: NvmlProbe, now_s: float) -> None:
        row = probe.read_named(self.uuid or "", (TEMPERATURE, CLOCK)) or {}
        self.t_s.append(now_s)
        self.temperature_c.append(row.get(TEMPERATURE, math.nan))
        self.clock_mhz.append(row.get(CLOCK, math.nan))


def open_vitals(uuid: str | None, open_probe: Callable[[], NvmlProbe] = NvmlProbe) -> Vitals:
    """Vitals of the GPU with this UUID, never of one by its number: CUDA and NVML count differently."""
    if uuid is None:
        return Vitals()
    try:
        probe = open_probe()
    except NvmlUnavailableError:
        return Vitals(uuid=uuid)
    if uuid not in [device.uuid for device in probe.devices()]:
        probe.close()
        return Vitals(uuid=uuid)
    return Vitals(uuid=uuid, probe=probe)
