"""What a trial measured, as rows of the result tables.

Pure: steps, buckets, timings and verdicts in, Arrow tables and facts out. Caller: `rank.trial`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rtxscale.nccl.attest import Attested
from rtxscale.rank.channel import Order
from rtxscale.rank.clock import Seconds
from rtxscale.rank.warmup import Phase
from rtxscale.results.schema import table, table_from_columns
from rtxscale.workloads.links.timing import Timing
from rtxscale.workloads.protocol import Bucket


@dataclass(frozen=True, kw_only=True)
class Share:
    """One rank's part in a trial; the window's fields are empty where there was none."""

    device_name: str
    gpu_uuid: str | None = None
    work: float | None = None
    step_s: Seconds | None = None
    host_bound_share: float | None = None
    input_share: float | None = None
    loss: float | None = None
    memory_peak_mib: float | None = None
    memory_reserved_mib: float | None = None


def identity(order: Order) -> dict[str, Any]:
    """The columns every row starts with."""
    return {"trial_id": order.trial_id, "attempt": order.attempt}


def steps_table(order: Order, rank: int, phases: Sequence[Phase]) -> pa.Table:
    """Every step of one rank, numbered from 0."""
    sizes = [phase.block.step_s.size for phase in phases]
    names = [phase.name for phase in phases for _ in range(phase.block.step_s.size)]
    columns = {
        **identity(order),
        "rank": rank,
        "step": np.arange(sum(sizes)),
        "phase": names,
        "step_time_s": _joined([phase.block.step_s for phase in phases]),
        "input_s": _joined([phase.block.input_s for phase in phases]),
    }
    return table_from_columns("steps", sum(sizes), columns)


def buckets_table(order: Order, buckets: Sequence[Bucket]) -> pa.Table:
    """DDP's buckets in order of reduction."""
    return table("buckets", [{**identity(order), "bucket": place, **asdict(one)} for place, one in enumerate(buckets)])


def collectives_table(order: Order, timings: Sequence[Timing]) -> pa.Table:
    """Timed collectives with their bandwidths."""
    rows = []
    for timing in timings:
        fields = asdict(timing)
        fields.pop("world")
        rows.append({**identity(order), **fields, "algbw_gb_s": timing.algbw_gb_s, "busbw_gb_s": timing.busbw_gb_s})
    return table("collectives", rows)


def attestation_table(order: Order, attested: Sequence[Attested]) -> pa.Table:
    """One row per setting."""
    return table("attestation", [{**identity(order), **asdict(one), "verdict": str(one.verdict)} for one in attested])


def joint_facts(shares: Sequence[Share], window_s: float | None) -> dict[str, Any]:
    """Facts that need every rank's share, in rank order: work, throughput, step times, memory, devices."""
    work = _known([share.work for share in shares])
    facts: dict[str, Any] = {
        "device_names": sorted({share.device_name for share in shares}),
        "gpu_uuids": [share.gpu_uuid for share in shares if share.gpu_uuid is not None],
        "host_bound_share": _mean(_known([share.host_bound_share for share in shares])),
        "input_share": _mean(_known([share.input_share for share in shares])),
        "loss_last": _mean(_known([share.loss for share in shares])),
        "memory_peak_mib": max(_known([share.memory_peak_mib for share in shares]), default=None),
        "memory_reserved_mib": max(_known([share.memory_reserved_mib for share in shares]), default=None),
    }
    if work and window_s:
        facts |= {"work": sum(work), "throughput_per_s": sum(work) / window_s}
    steps = [share.step_s for share in shares if share.step_s is not None]
    if steps:
        pooled = np.concatenate(steps)
        p50, p95 = np.percentile(pooled, (50, 95)).tolist()
        facts |= {"step_time_mean_s": float(pooled.mean()), "step_time_p50_s": p50, "step_time_p95_s": p95}
    return facts


def _joined(parts: Sequence[Seconds]) -> Seconds:
    return np.concatenate(parts) if parts else np.zeros(0)


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
