"""Records everything that a probe gives into a trace of the telemetry table, which `telemetry.replay` plays back.

Not a sweep: no windows and no trials, only what the machine did meanwhile. Caller: `cli.record`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rtxscale.telemetry.fields import FIELDS, Device
from rtxscale.telemetry.probe import Probe
from rtxscale.telemetry.sampler import Sampler
from rtxscale.telemetry.window import SLOWDOWNS, counter_energy_j, integral_energy_j

SLOW_PERIOD_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A trace, the devices that it is of, and how sampling went."""

    samples: pa.Table
    devices: tuple[Device, ...]
    missed_ticks: int
    errors: int
    last_error: str = ""


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
    temperature_max_c: float | None
    slowdown_share: float | None
    absent: tuple[tuple[str, str], ...]


def record(probe: Probe, wait: Callable[[], None], *, node: str = "node0", period_s: float = 0.1) -> Recorded:
    """Sample the probe while `wait` runs, all rows in memory; closes the probe."""
    sampler = Sampler(probe, node, period_s, slow_period_s=SLOW_PERIOD_S, capacity_rows=5_000_000, learning_s=0)
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
    )


def write_trace(samples: pa.Table, path: Path) -> None:
    """Keep a trace as a Parquet file of the telemetry table."""
    pq.write_table(samples, path, compression="zstd")


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


def _totals(samples: pa.Table, device: Device) -> GpuTotals:
    rows = samples.filter(pc.equal(samples["uuid"], device.uuid)).to_pylist()
    powers = _series(rows, "power_w")
    span = (powers[0][0], powers[-1][0]) if powers else (0, 0)
    integral = integral_energy_j(powers, *span)
    reasons = [set(row["throttle_reasons"]) for row in rows if row["throttle_reasons"] is not None]
    return GpuTotals(
        uuid=device.uuid or "",
        name=device.name,
        samples=len(powers),
        power_mean_w=None if integral is None else integral * 1e9 / (span[1] - span[0]),
        power_max_w=max((power for _, power in powers), default=None),
        energy_counter_j=counter_energy_j(_series(rows, "energy_j"), *span),
        energy_integral_j=integral,
        temperature_max_c=max((value for _, value in _series(rows, "temperature_c")), default=None),
        slowdown_share=sum(bool(SLOWDOWNS & active) for active in reasons) / len(reasons) if reasons else None,
        absent=device.absent,
    )


def _series(rows: Sequence[Mapping[str, object]], name: str) -> list[tuple[int, float]]:
    return [(int(str(row["t_ns"])), float(str(row[name]))) for row in rows if row[name] is not None]
