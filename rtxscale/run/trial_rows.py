"""One trial's row of the `trials` table, and its tables from all ranks: pure.

What was planned comes from the `PlannedTrial`, what ranks measured from their reports, power and clocks from the
telemetry of the window, how it ended from the verdict. Caller: `run.foreman`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rtxscale.rank.channel import RankReport
from rtxscale.results.schema import TABLES, TRIALS, arrow_schema, table
from rtxscale.run.agenda import Todo
from rtxscale.run.failures import Verdict
from rtxscale.spec.cell import as_text
from rtxscale.telemetry.window import summarise

RANK_TABLES = tuple(name for name in TABLES if name not in ("trials", "telemetry", "environment"))
RANK_COLUMNS = frozenset(column.name for column in TRIALS if column.writer == "rank")
MEASURED_SPANS = ("soak_s", "warmup_s", "window_s", "collectives_s", "no_sync_s")


@dataclass(frozen=True, kw_only=True)
class Served:
    """Where and when a trial ran: everything `run` knows beside the plan.

    Of a trial that was not begun there is no session, no position in it and no node.
    """

    run_id: str
    sweep_id: str
    study: str
    environment_id: str | None
    session_id: str | None
    session_start_s: float | None
    position: int | None
    nodes: int | None
    started_ns: int
    ended_ns: int
    gpu_uuids: tuple[str, ...] = ()


def trial_row(
    todo: Todo, served: Served, verdict: Verdict, reports: Mapping[int, RankReport], telemetry: pa.Table
) -> dict[str, Any]:
    """The row of one attempt, complete as far as anybody knows."""
    facts = joined_facts(reports)
    wall_s = (served.ended_ns - served.started_ns) / 1e9
    row = {**planned_columns(todo), **facts}
    row |= {
        "run_id": served.run_id,
        "sweep_id": served.sweep_id,
        "study": served.study,
        "environment_id": served.environment_id,
        "session_id": served.session_id,
        "session_start_s": served.session_start_s,
        "position": served.position,
        "nodes": served.nodes,
        "started_ns": served.started_ns,
        "ended_ns": served.ended_ns,
        "wall_s": wall_s,
        "outside_s": outside_s(wall_s, facts),
        "outcome": str(verdict.outcome),
        "message": verdict.message,
    }
    return row | _window_facts(row, served, telemetry)


def planned_columns(todo: Todo) -> dict[str, Any]:
    """The columns that the plan decides."""
    trial, cell = todo.planned.trial, todo.planned.trial.cell
    workload = cell.workload
    return {
        "trial_id": todo.planned.trial_id,
        "attempt": todo.attempt,
        "cell_id": cell.cell_id,
        "visit": trial.visit,
        "repeat": trial.repeat,
        "slot": trial.slot,
        "stage": trial.stage,
        "cell_json": cell.canonical(),
        "axes_json": json.dumps(todo.planned.axes, sort_keys=True),
        "workload": workload.label,
        "gpus": cell.gpus,
        "batch_per_gpu": getattr(workload, "batch_per_gpu", None),
        "global_batch": getattr(workload, "global_batch", None),
        "precision": workload.precision,
        "compile": getattr(workload, "compile", None),
        "nccl_algorithm": cell.nccl.algorithm,
        "nccl_channels": str(cell.nccl.channels),
        "nccl_protocol": cell.nccl.protocol,
        "nccl_p2p": cell.nccl.p2p,
        "ddp_bucket_mib": as_text(cell.ddp.bucket_mib),
        "isolation": cell.isolation,
        "launcher": cell.launcher,
        "profile": cell.measure.profile,
    }


def outside_s(wall_s: float, facts: Mapping[str, Any]) -> float | None:
    """Seconds of a trial spent on none of `MEASURED_SPANS`; None where no window was measured.

    >>> outside_s(5.0, {"warmup_s": 1.0, "window_s": 3.0})
    1.0
    """
    if facts.get("window_s") is None and facts.get("collectives_s") is None:
        return None
    return max(0.0, wall_s - sum(facts.get(name) or 0.0 for name in MEASURED_SPANS))


def joined_facts(reports: Mapping[int, RankReport]) -> dict[str, Any]:
    """The ranks' facts together; they have agreed on joint figures themselves, so the lowest rank's word counts.

    Raises:
        KeyError: a fact is no column that ranks write.

    >>> joined_facts({1: RankReport(rank=1, outcome="ok"), 0: RankReport(rank=0, outcome="ok", facts={"steady": True})})
    {'steady': True}
    """
    facts: dict[str, Any] = {}
    for rank in sorted(reports, reverse=True):
        facts |= reports[rank].facts
    if unknown := facts.keys() - RANK_COLUMNS:
        raise KeyError(f"a rank reported {', '.join(sorted(unknown))}: no columns of ranks in the trials table")
    return facts


def rank_tables(reports: Mapping[int, RankReport]) -> dict[str, pa.Table]:
    """The ranks' tables, each over all ranks in rank order."""
    joined = {}
    for name in RANK_TABLES:
        parts = [reports[rank].tables[name] for rank in sorted(reports) if name in reports[rank].tables]
        if parts:
            joined[name] = pa.concat_tables([arrow_schema(name).empty_table(), *parts])
    return joined


def tag_telemetry(
    samples: pa.Table,
    *,
    session_id: str | None,
    trial: tuple[str, int] | None = None,
    span_ns: tuple[int, int] = (0, 0),
) -> pa.Table:
    """The same samples with their session, and those inside `span_ns` with their trial id and attempt."""
    inside = [span_ns[0] <= t_ns <= span_ns[1] for t_ns in samples.column("t_ns").to_pylist()]
    trial_id, attempt = trial or (None, None)
    columns = {
        "trial_id": pa.array([trial_id if within else None for within in inside], pa.string()),
        "attempt": pa.array([attempt if within else None for within in inside], pa.int64()),
        "session_id": pa.array([session_id] * len(inside), pa.string()),
    }
    for name, values in columns.items():
        samples = samples.set_column(samples.column_names.index(name), name, values)
    return samples.cast(arrow_schema("telemetry"))


def trials_table(row: Mapping[str, Any]) -> pa.Table:
    """The row as a table."""
    return table("trials", [row])


def _window_facts(row: Mapping[str, Any], served: Served, telemetry: pa.Table) -> dict[str, Any]:
    """Power, energy, temperature and clocks of the used GPUs over the window."""
    start, end = row.get("window_start_ns"), row.get("window_end_ns")
    uuids = row.get("gpu_uuids") or list(served.gpu_uuids)
    if start is None or end is None or not uuids:
        return {}
    return summarise(telemetry, uuids, start, end)
