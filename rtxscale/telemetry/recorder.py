"""Records everything that a probe gives into a trace of the telemetry table, which `telemetry.replay` plays back.

Not a sweep: no windows and no trials, only what the machine did meanwhile. Caller: `cli.record`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rtxscale.stats.intervals import geometric_mean_interval, log_moments
from rtxscale.telemetry.fields import FIELDS, Device
from rtxscale.telemetry.probe import Probe
from rtxscale.telemetry.sampler import Sampler
from rtxscale.telemetry.window import SLOWDOWNS, Series, counter_energy_j, integral_energy_j

SLOW_PERIOD_S = 1.0
CAPACITY_ROWS = 5_000_000
BLOCKS, LEAST_BLOCK_S = 10, 2.0
"""A trace is cut into so many blocks at most, none shorter than this, to see how sure its ratio of energies is."""


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A trace, the devices that it is of, and how sampling went."""

    samples: pa.Table
    devices: tuple[Device, ...]
    missed_ticks: int
    errors: int
    last_error: str = ""
    dropped_rows: int = 0
    """The oldest rows, for which there was no room."""


@dataclass(frozen=True, kw_only=True)
class EnergyRatio:
    """Energy by counter over energy by integral: mean of the blocks of one trace with its 95 % interval."""

    ratio: float
    low: float
    high: float
    blocks: int
    block_s: float


@dataclass(frozen=True, kw_only=True)
class GpuTotals:
    """What one GPU did over the whole trace; None where it was not told. Energy in J by counter and by integral."""

    uuid: str
    name: str
    samples: int
    power_mean_w: float | None
    power_max_w: float | None
    energy_counter_j: float | None
    energy_integral_j: float | None
    energy_ratio: EnergyRatio | None
    temperature_max_c: float | None
    slowdown_share: float | None
    absent: tuple[tuple[str, str], ...]


def record(probe: Probe, wait: Callable[[], None], *, node: str = "node0", period_s: float = 0.1) -> Recorded:
    """Sample the probe while `wait` runs, all rows in memory; closes the probe."""
    sampler = Sampler(probe, node, period_s, slow_period_s=SLOW_PERIOD_S, capacity_rows=CAPACITY_ROWS, learning_s=0)
    sampler.start()
    try:
        wait()
        devices, state = probe.devices(), sampler.latest()
    finally:
        sampler.stop()
    samples = sampler.drain().sort_by("monotonic_ns")
    return Recorded(
        samples=samples,
        devices=devices,
        missed_ticks=state["missed_ticks"],
        errors=state["errors"],
        last_error=state["last_error"],
        dropped_rows=state["dropped_rows"],
    )


def write_trace(samples: pa.Table, path: Path) -> None:
    """Keep a trace as a Parquet file of the telemetry table; where that fails, what was there before stays."""
    part = path.with_name(f"{path.name}.part")
    pq.write_table(samples, part, compression="zstd")  # takes away what it could not finish
    part.replace(path)


def pseudonymous(recorded: Recorded) -> tuple[pa.Table, dict[str, str]]:
    """The samples with GPUs called `GPU-0`, `GPU-1`, ... in PCI bus order, and the new names by UUID."""
    uuids = [device.uuid for device in recorded.devices if device.kind == "gpu" and device.uuid]
    names = {uuid: f"GPU-{place}" for place, uuid in enumerate(uuids)}
    renamed = pa.array([names.get(uuid, uuid) for uuid in recorded.samples["uuid"].to_pylist()], pa.string())
    at = recorded.samples.column_names.index("uuid")
    return recorded.samples.set_column(at, recorded.samples.schema.field(at), renamed), names


def totals(recorded: Recorded) -> tuple[GpuTotals, ...]:
    """What each GPU did, in PCI bus order."""
    return tuple(_totals(recorded.samples, device) for device in recorded.devices if device.kind == "gpu")


def fields_seen(samples: pa.Table) -> tuple[str, ...]:
    """The sampled fields of which the trace holds at least one value, in the order of the field table."""
    return tuple(field.name for field in FIELDS if samples[field.name].null_count < samples.num_rows)


def energy_ratio(energies: Series, powers: Series) -> EnergyRatio | None:
    """How a GPU's energy counter compares with its power samples, block by block over the whole trace.

    Student's t on the logarithms of the blocks' ratios; None with fewer than two blocks that have both. It says how
    sure the ratio is in this trace. Both come from one sensor: agreement shows that sampling is right, not the sensor.
    """
    if not powers:
        return None
    start_ns, end_ns = powers[0][0], powers[-1][0]
    blocks = min(BLOCKS, int((end_ns - start_ns) / 1e9 / LEAST_BLOCK_S))
    edges = [start_ns + (end_ns - start_ns) * place // blocks for place in range(blocks + 1)] if blocks else []
    both = [(counter_energy_j(energies, *span), integral_energy_j(powers, *span)) for span in pairwise(edges)]
    ratios = [counter / integral for counter, integral in both if counter and integral]
    if len(ratios) < 2:
        return None
    found = geometric_mean_interval(log_moments(ratios))
    ratio, low, high = (float(value) for value in (found.estimate, found.low, found.high))
    block_s = (end_ns - start_ns) / 1e9 / blocks
    return EnergyRatio(ratio=ratio, low=low, high=high, blocks=len(ratios), block_s=block_s)


def _totals(samples: pa.Table, device: Device) -> GpuTotals:
    rows = samples.filter(pc.equal(samples["uuid"], device.uuid)).to_pylist()
    powers, energies = _series(rows, "power_w"), _series(rows, "energy_j")
    known = powers or energies
    span = (known[0][0], known[-1][0]) if known else (0, 0)
    integral = integral_energy_j(powers, *span)
    reasons = [set(row["throttle_reasons"]) for row in rows if row["throttle_reasons"] is not None]
    return GpuTotals(
        uuid=device.uuid or "",
        name=device.name,
        samples=len(powers),
        power_mean_w=None if integral is None else integral * 1e9 / (span[1] - span[0]),
        power_max_w=max((power for _, power in powers), default=None),
        energy_counter_j=counter_energy_j(energies, *span),
        energy_integral_j=integral,
        energy_ratio=energy_ratio(energies, powers),
        temperature_max_c=max((value for _, value in _series(rows, "temperature_c")), default=None),
        slowdown_share=sum(bool(SLOWDOWNS & active) for active in reasons) / len(reasons) if reasons else None,
        absent=device.absent,
    )


def _series(rows: Sequence[Mapping[str, object]], name: str) -> list[tuple[int, float]]:
    # By the monotonic clock: the other one may be set while a trace is recorded.
    return [(int(str(row["monotonic_ns"])), float(str(row[name]))) for row in rows if row[name] is not None]
