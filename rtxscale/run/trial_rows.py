"""One trial's row of the `trials` table, and its tables from all ranks: pure.

What was planned comes from the `PlannedTrial`, what ranks measured from their reports, power and clocks from the
telemetry of the window, how it ended from the verdict. Caller: `run.foreman`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rtxscale.nccl.attest import Verdict as Attested
from rtxscale.plan.model import Placement
from rtxscale.rank.channel import RankReport
from rtxscale.results.outcomes import SIMULATED
from rtxscale.results.schema import TABLES, TRIALS, arrow_schema, table
from rtxscale.run.agenda import Todo
from rtxscale.run.failures import Verdict
from rtxscale.spec.cell import Cell, as_text, content_id
from rtxscale.spec.workload import SimulatedWorkload, Workload, names_files
from rtxscale.telemetry.window import summarise, wall_summary

RANK_TABLES = tuple(name for name in TABLES if name not in ("trials", "telemetry", "environment"))
RANK_COLUMNS = frozenset(column.name for column in TRIALS if column.writer == "rank")
SHOWN_GPUS = 8
MEASURED_SPANS = ("soak_s", "warmup_s", "window_s", "collectives_s", "no_sync_s", "target_run_s")
"""Columns of wall times, none of which overlaps another: what `outside_s` leaves out."""


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
    started_ns: int
    ended_ns: int
    placement: Placement | None
    device: str | None = None
    """What the plan runs on, of a trial whose ranks have not lived to say it."""
    wall_source: str = ""
    """What kind of meter reads the power at the wall; empty without one."""


def trial_row(
    todo: Todo, served: Served, verdict: Verdict, reports: Mapping[int, RankReport], telemetry: pa.Table
) -> dict[str, Any]:
    """The row of one attempt, complete as far as anybody knows."""
    facts = on_drivers_clock(joined_facts(reports), served.placement, telemetry)
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
        **placed_columns(served.placement),
        "device": facts.get("device") or served.device,
        "started_ns": served.started_ns,
        "ended_ns": served.ended_ns,
        "wall_s": wall_s,
        "outside_s": outside_s(wall_s, facts),
        "outcome": str(verdict.outcome),
        "message": verdict.message,
    }
    measured = _window_facts(row, served, telemetry) | _wall_facts(row, served, telemetry)
    return row | measured | simulated_columns(todo.planned.trial.cell)


def on_drivers_clock(facts: Mapping[str, Any], placement: Placement | None, telemetry: pa.Table) -> dict[str, Any]:
    """The facts with the window's times by the driver's clock, as samples have them: rank 0 took them by its node's."""
    rows = zip(telemetry["node"].to_pylist(), telemetry["clock_offset_s"].to_pylist(), strict=True)
    offsets = {node: offset_s for node, offset_s in rows if offset_s is not None}
    offset_ns = round(offsets.get(placement.nodes[0], 0.0) * 1e9) if placement is not None else 0
    times = ("window_start_ns", "window_end_ns")
    return {**facts, **{name: facts[name] - offset_ns for name in times if facts.get(name) is not None}}


def simulated_columns(cell: Cell) -> dict[str, Any]:
    """What marks a trial that nobody has measured; empty for any other."""
    if not isinstance(cell.workload, SimulatedWorkload):
        return {}
    message = "simulated: from a planted law, nothing was measured"
    return {"source": SIMULATED, "flags": [SIMULATED], "message": message, "outside_s": None}


def placed_columns(placement: Placement | None) -> dict[str, Any]:
    """The columns that say where the workers were; empty for a trial that was not begun."""
    if placement is None:
        return {}
    nodes = len(placement.distinct_nodes)
    return {"nodes": nodes, "node_names": list(placement.nodes), "link_class": placement.link_class}


def misplaced(placement: Placement, reports: Mapping[int, RankReport]) -> str:
    """Which GPUs the ranks used instead of those that the plan has chosen, in words; empty where they are the same."""
    used = joined_facts(reports).get("gpu_uuids") or []
    if not used or not placement.gpu_uuids or sorted(used) == sorted(placement.gpu_uuids):
        return ""
    return f"used GPUs {_told(used)}; planned were {_told(placement.gpu_uuids)}"


def with_placement(
    tables: Mapping[str, pa.Table], trial: tuple[str, int], placement: Placement, reports: Mapping[int, RankReport]
) -> dict[str, pa.Table]:
    """The ranks' tables with the attestation, by UUID, that they used the GPUs that the plan has chosen."""
    used = joined_facts(reports).get("gpu_uuids")
    if not placement.gpu_uuids or not used or joined_facts(reports).get("device") == SIMULATED:
        return dict(tables)
    row = {
        "trial_id": trial[0],
        "attempt": trial[1],
        "subject": "placement",
        "requested": _told(placement.gpu_uuids),
        "observed": _told(used),
        "verdict": str(Attested.REFUTED if misplaced(placement, reports) else Attested.HONOURED),
        "evidence": "UUID of each rank's GPU, as the rank read it",
    }
    rows = [table("attestation", [row]), *(tables[name] for name in ("attestation",) if name in tables)]
    return {**tables, "attestation": pa.concat_tables(rows)}


def with_directory(
    tables: Mapping[str, pa.Table], trial: tuple[str, int], workload: Workload, directory: str
) -> dict[str, pa.Table]:
    """The ranks' tables with where the sweep file lies, if its files are needed and no rank has lived to say it."""
    if "attestation" in tables or not directory or not names_files(workload):
        return dict(tables)
    row = {
        "trial_id": trial[0],
        "attempt": trial[1],
        "subject": "workload.directory",
        "requested": getattr(workload, "directory", "."),
        "observed": directory,
        "verdict": str(Attested.NOT_ATTESTED),
        "evidence": "the sweep file's directory, as the sweep command knows it",
    }
    return {**tables, "attestation": table("attestation", [row])}


def _told(uuids: Sequence[str]) -> str:
    """UUIDs in order, or how many and their hash where they are many."""
    text = " ".join(sorted(uuids))
    return text if len(uuids) <= SHOWN_GPUS else f"{len(uuids)} GPUs, SHA-256 of their UUIDs {content_id(text)}"


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
        "gpus_per_node": cell.gpus_per_node,
        "placement": cell.placement,
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
    >>> outside_s(9.0, {"warmup_s": 1.0, "window_s": 3.0, "target_run_s": 4.0, "target_s": 2.5})
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


def with_notes(tables: Mapping[str, pa.Table], trial: tuple[str, int], notes: Sequence[str]) -> dict[str, pa.Table]:
    """The ranks' tables with what the driver of the sweep has said since the attempt before this one."""
    if not notes:
        return dict(tables)
    identity = {"trial_id": trial[0], "attempt": trial[1], "source": "driver", "count": 1}
    lines = [line for note in notes for line in note.splitlines()]
    rows = table("logs", [{**identity, "place": place, "line": line} for place, line in enumerate(lines)])
    return {**tables, "logs": pa.concat_tables([tables["logs"], rows]) if "logs" in tables else rows}


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


def _wall_facts(row: Mapping[str, Any], served: Served, telemetry: pa.Table) -> dict[str, Any]:
    """Power and energy at the wall over the window, where there is a meter; beside the GPUs', never in them."""
    start, end = row.get("window_start_ns"), row.get("window_end_ns")
    if start is None or end is None or not served.wall_source:
        return {}
    return {"wall_source": served.wall_source, **wall_summary(telemetry, start, end)}


def _window_facts(row: Mapping[str, Any], served: Served, telemetry: pa.Table) -> dict[str, Any]:
    """Power, energy, temperature and clocks of the used GPUs over the window."""
    start, end = row.get("window_start_ns"), row.get("window_end_ns")
    uuids = row.get("gpu_uuids") or list(served.placement.gpu_uuids if served.placement else ())
    if start is None or end is None or not uuids:
        return {}
    return summarise(telemetry, uuids, start, end)
