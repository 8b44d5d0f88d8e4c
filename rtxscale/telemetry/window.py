"""What telemetry says about one window of time: power, energy, temperature, clock and throttling of the used GPUs.

Pure: rows in, numbers out. What was not measured is None, never zero; a sum over GPUs is None unless every GPU has its
part. Called by `run` for each trial's window.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Series = list[tuple[int, float]]
"""(Unix time in ns, value), in order of time."""

SLOWDOWNS = frozenset({"hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown"})
"""Reasons that mean a GPU ran slower than it should. Idle, clock settings and the stock power cap do not."""
POWER_CAP = "sw_power_cap"
WALL = "wall"
"""The device of rows that hold the power at the wall, and nothing else."""
EDGE_NS = 2_000_000_000
"""How far outside the window a sample may be to fix the value at its edge."""
LOOKS_BACK_NS = 1_000_000_000
"""Utilisation is that of up to a second before it was read, says NVML."""
COVERED_SHARE = 0.5
"""Samples that span less of the window than this say too little about it."""
REACH_STEPS = 3
"""Power is drawn from one sample to the next over so many usual steps, or `EDGE_NS`: between others nobody looked."""
CLOCK_SET_NS, SLEWED_SHARE = 100_000_000, 0.001
"""A Unix clock that leaves the monotonic one by more, and by more of the window than slewing does, has been set."""


@dataclass(kw_only=True)
class _GpuSamples:
    power: Series = field(default_factory=list)
    energy: Series = field(default_factory=list)


def summarise(telemetry: pa.Table, uuids: Sequence[str], start_ns: int, end_ns: int) -> dict[str, Any]:
    """Power, energy, temperature, clock and throttling of the GPUs `uuids` between two Unix times.

    `power_w` is the mean over time of the sampled power, summed over GPUs; `energy_j` comes from the GPUs' energy
    counters if all of them have one that ran through, else from the integral of the sampled power, and
    `energy_source` says which; both are given beside it, to be compared, and neither where a clock was set meanwhile.
    `throttle_share` is the share of the window with a real slowdown, `power_cap_share` of that at the software power
    cap, which is a loaded card's normal state; they and the clock are means over time, then over the GPUs that tell.
    `gpu_busy_share` is the mean utilisation, the share of time in which any kernel ran, of the least used GPU.
    """
    rows = _rows(telemetry, uuids, start_ns - EDGE_NS, end_ns + EDGE_NS)
    inside = [row for row in rows if start_ns <= row["t_ns"] <= end_ns]
    gpus = {uuid: _GpuSamples() for uuid in uuids}
    for row in rows:
        if row["power_w"] is not None:
            gpus[row["uuid"]].power.append((row["t_ns"], row["power_w"]))
        if row["energy_j"] is not None:
            gpus[row["uuid"]].energy.append((row["t_ns"], row["energy_j"]))
    if _was_clock_set(rows, start_ns, end_ns):
        gpus = {uuid: _GpuSamples() for uuid in uuids}
    counted = _total(gpus, lambda gpu: counter_energy_j(gpu.energy, start_ns, end_ns))
    integral = _total(gpus, lambda gpu: integral_energy_j(gpu.power, start_ns, end_ns))
    energy = integral if counted is None else counted
    power_energy = counted if integral is None else integral
    source = None if energy is None else ("integral" if counted is None else "counter")
    return {
        "power_w": None if power_energy is None else power_energy * 1e9 / (end_ns - start_ns),
        "energy_j": energy,
        "energy_source": source,
        "energy_counter_j": counted,
        "energy_integral_j": integral,
        "energy_updates": None if counted is None else _updates(rows, gpus, start_ns, end_ns),
        "temperature_max_c": max(_values(inside, "temperature_c"), default=None),
        "sm_clock_mhz": _of_all(inside, uuids, "sm_clock_mhz", float),
        "throttle_share": _of_all(inside, uuids, "throttle_reasons", lambda active: bool(SLOWDOWNS & set(active))),
        "power_cap_share": _of_all(inside, uuids, "throttle_reasons", lambda active: POWER_CAP in active),
        "gpu_busy_share": _least_busy(inside, uuids, start_ns + LOOKS_BACK_NS),
    }


def wall_summary(telemetry: pa.Table, start_ns: int, end_ns: int) -> dict[str, float | None]:
    """Mean power and energy at the wall between two Unix times; None where its samples span too little.

    Nothing of the GPUs' own power is in it or taken off it.
    """
    columns = ["device", "node", "t_ns", "monotonic_ns", "wall_power_w"]
    near = _between_times(telemetry, columns, start_ns - EDGE_NS, end_ns + EDGE_NS)
    wall = [row for row in near if row["device"] == WALL and row["wall_power_w"] is not None]
    nodes = {row["node"] for row in wall}
    beside = [row for row in near if row["node"] in nodes]
    series = [] if _was_clock_set(beside, start_ns, end_ns) else [(row["t_ns"], row["wall_power_w"]) for row in wall]
    energy = integral_energy_j(series, start_ns, end_ns)
    power = None if energy is None or end_ns <= start_ns else energy * 1e9 / (end_ns - start_ns)
    return {"wall_power_w": power, "wall_energy_j": energy}


def reason_shares(telemetry: pa.Table, uuids: Sequence[str], start_ns: int, end_ns: int) -> dict[str, float]:
    """Clock event reason -> share of the window's samples in which it was active; empty where none could be read."""
    samples = _values(_rows(telemetry, uuids, start_ns, end_ns), "throttle_reasons")
    counts = Counter(reason for reasons in samples for reason in set(reasons))
    return {reason: count / len(samples) for reason, count in sorted(counts.items())}


def counter_energy_j(series: Series, start_ns: int, end_ns: int) -> float | None:
    """Energy between two times from a counter, J: last minus first sample, plus the two edges.

    An edge is interpolated to the sample just outside the window, or extrapolated with the mean power where there is
    none. None when the counter went backwards in the window (the driver restarted), stood still, which no powered GPU's
    does, or spans too little of it.
    """
    inside = _inside(series, start_ns, end_ns)
    if sum(_steps_ns(inside)) < _least_ns(start_ns, end_ns) or any(b[1] < a[1] for a, b in pairwise(inside)):
        return None
    (first_ns, first), (last_ns, last) = inside[0], inside[-1]
    if last == first:
        return None
    power = (last - first) / (last_ns - first_ns)
    before, after = _neighbours(series, start_ns, end_ns)
    # A neighbour beyond a restart of the counter fixes no edge.
    head = power if before is None or before[1] > first else (first - before[1]) / (first_ns - before[0])
    tail = power if after is None or after[1] < last else (after[1] - last) / (after[0] - last_ns)
    return last - first + head * (first_ns - start_ns) + tail * (end_ns - last_ns)


def integral_energy_j(series: Series, start_ns: int, end_ns: int) -> float | None:
    """Energy between two times from power samples, J: trapezoids, with the value at each edge interpolated or held.

    None when samples are within reach of each other for too little of the window: a hole is no measurement.
    """
    inside = _inside(series, start_ns, end_ns)
    steps = _steps_ns(inside)
    reach = max(EDGE_NS, REACH_STEPS * statistics.median(steps)) if steps else 0
    if sum(step for step in steps if step <= reach) < _least_ns(start_ns, end_ns):
        return None
    before, after = _neighbours(series, start_ns, end_ns)
    first = inside[0][1] if before is None else _between(before, inside[0], start_ns)
    last = inside[-1][1] if after is None else _between(inside[-1], after, end_ns)
    points = [(start_ns, first), *inside, (end_ns, last)]
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(points)) / 1e9


def _least_busy(inside: list[dict[str, Any]], uuids: Sequence[str], from_ns: int) -> float | None:
    """Mean utilisation of the GPU that was used least; None unless all of them told theirs."""
    told = [[row for row in inside if row["uuid"] == uuid and row["t_ns"] >= from_ns] for uuid in uuids]
    shares = [_mean(_values(rows, "utilisation")) for rows in told]
    known = [share for share in shares if share is not None]
    return min(known) if known and len(known) == len(shares) else None


def mean_over_time(points: Series) -> float:
    """Mean of at least one value, each weighed with half the time to its neighbours, however densely it was sampled.

    >>> mean_over_time([(0, 0.0), (3, 1.0), (4, 1.0)])
    0.5
    """
    steps = [min(step, EDGE_NS) for step in _steps_ns(points)]
    if not any(steps):
        return sum(value for _, value in points) / len(points)
    weights = [before + after for before, after in pairwise([steps[0], *steps, steps[-1]])]
    return sum(weight * value for weight, (_, value) in zip(weights, points, strict=True)) / sum(weights)


def _was_clock_set(rows: Sequence[dict[str, Any]], start_ns: int, end_ns: int) -> bool:
    """Whether a node's Unix clock was set, or its machine suspended: by it no time between samples is known."""
    offsets: dict[str | None, list[int]] = {}
    for row in rows:
        if row["monotonic_ns"] is not None:
            offsets.setdefault(row["node"], []).append(row["t_ns"] - row["monotonic_ns"])
    most = max(CLOCK_SET_NS, SLEWED_SHARE * (end_ns - start_ns))
    return any(max(seen) - min(seen) > most for seen in offsets.values())


def _of_all(
    inside: list[dict[str, Any]], uuids: Sequence[str], name: str, value: Callable[[Any], float]
) -> float | None:
    """Mean over time of each GPU that tells, then over these GPUs: how often each was asked does not weigh."""
    series: dict[str, Series] = {uuid: [] for uuid in uuids}
    for row in inside:
        if row[name] is not None:
            series[row["uuid"]].append((row["t_ns"], value(row[name])))
    return _mean([mean_over_time(points) for points in series.values() if points])


def _updates(rows: Sequence[dict[str, Any]], gpus: dict[str, _GpuSamples], start_ns: int, end_ns: int) -> float:
    """Steps of the slowest counter in the window: with few of them its edges weigh.

    By its update period; of a counter too slow for one to have been seen at first, the steps between samples.
    """
    periods_s = {row["uuid"]: row["energy_update_s"] for row in rows if row["energy_update_s"]}
    seen = {
        uuid: sum(b[1] != a[1] for a, b in pairwise(_inside(gpu.energy, start_ns, end_ns)))
        for uuid, gpu in gpus.items()
    }
    return min(
        (end_ns - start_ns) / 1e9 / periods_s[uuid] if uuid in periods_s else float(steps)
        for uuid, steps in seen.items()
    )


def _rows(telemetry: pa.Table, uuids: Sequence[str], start_ns: int, end_ns: int) -> list[dict[str, Any]]:
    columns = [
        "node",
        "uuid",
        "t_ns",
        "monotonic_ns",
        "power_w",
        "energy_j",
        "energy_update_s",
        "temperature_c",
        "sm_clock_mhz",
        "throttle_reasons",
        "utilisation",
    ]
    used = pc.is_in(telemetry["uuid"], value_set=pa.array(list(uuids), pa.string()))
    return _between_times(telemetry.select(columns).filter(used), columns, start_ns, end_ns)


def _between_times(telemetry: pa.Table, columns: list[str], start_ns: int, end_ns: int) -> list[dict[str, Any]]:
    wanted = pc.and_(pc.greater_equal(telemetry["t_ns"], start_ns), pc.less_equal(telemetry["t_ns"], end_ns))
    rows: list[dict[str, Any]] = telemetry.select(columns).filter(wanted).sort_by("t_ns").to_pylist()
    return rows


def _total(gpus: dict[str, _GpuSamples], energy: Callable[[_GpuSamples], float | None]) -> float | None:
    parts = [energy(gpu) for gpu in gpus.values()]
    known = [part for part in parts if part is not None]
    return sum(known) if known and len(known) == len(parts) else None


def _inside(series: Series, start_ns: int, end_ns: int) -> Series:
    return [point for point in series if start_ns <= point[0] <= end_ns]


def _steps_ns(series: Series) -> list[int]:
    return [b[0] - a[0] for a, b in pairwise(series)]


def _least_ns(start_ns: int, end_ns: int) -> float:
    return max(1.0, COVERED_SHARE * (end_ns - start_ns))


def _neighbours(
    series: Series, start_ns: int, end_ns: int
) -> tuple[tuple[int, float] | None, tuple[int, float] | None]:
    before = [point for point in series if point[0] < start_ns]
    after = [point for point in series if point[0] > end_ns]
    return before[-1] if before else None, after[0] if after else None


def _between(a: tuple[int, float], b: tuple[int, float], at_ns: int) -> float:
    return a[1] + (b[1] - a[1]) * (at_ns - a[0]) / max(1, b[0] - a[0])


def _values(rows: list[dict[str, Any]], name: str) -> list[Any]:
    return [row[name] for row in rows if row[name] is not None]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
