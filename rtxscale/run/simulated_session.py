"""A session without processes: what ranks would report, made up from the planted law of a simulated workload.

It stands where a worker group stands, behind the same protocol, so that plan, agenda, Tune, hub, commits, analysis and
report are those of a real sweep. Nothing is measured, and every row says so. The numbers are the same each time: their
noise is seeded by session and trial. Not here: who runs the trial when (`run.foreman`). Caller: `run.start`.
"""

from __future__ import annotations

import platform
import time
from typing import Any

import numpy as np
import pyarrow as pa

import rtxscale
from rtxscale.rank.channel import Order, RankReport
from rtxscale.results.outcomes import SIMULATED, Outcome
from rtxscale.results.schema import table, table_from_columns
from rtxscale.run.crew import Crew
from rtxscale.run.failures import TrialEnd
from rtxscale.run.hub import Registered
from rtxscale.run.session import SessionSpec
from rtxscale.spec.cell import Cell, as_text, content_id
from rtxscale.spec.workload import SimulatedWorkload

DEVICE = SIMULATED
LINK_LOSS = {"cross_socket": "cross_socket_loss", "cross_node": "cross_node_loss"}
JITTER = 0.01
"""Relative standard deviation of a rank's steps around the trial's step time."""


class SimulatedSession:
    """A session that computes what its ranks report."""

    def __init__(self, spec: SessionSpec, crew: Crew) -> None:
        """Nothing is started, now or later."""
        self.session_id = spec.session_id
        self._placement = spec.placement
        self._planned_id = spec.session_id.rpartition("-")[0]

    def start(self) -> tuple[Registered, ...]:
        """Say for every rank that there is none."""
        facts = {"Python": platform.python_version(), "rtxscale": rtxscale.__version__, "workers": SIMULATED}
        software = tuple({"subject": "software", "name": name, "value": value} for name, value in facts.items())
        return tuple(Registered(rank=rank, pid=0, node="", software=software) for rank in range(self._placement.world))

    def run(self, order: Order, deadline_s: float) -> TrialEnd:
        """Reports of all ranks, at once."""
        began = time.monotonic()
        reports = {rank: RankReport(rank=rank, outcome=Outcome.OK) for rank in range(self._placement.world)}
        reports[0] = self._report(order)
        return TrialEnd(world=self._placement.world, reports=reports, waited_s=time.monotonic() - began)

    def close(self) -> None:
        """There is nothing to end."""

    def reap(self) -> None:
        """There is nothing to end."""

    def _report(self, order: Order) -> RankReport:
        """What rank 0 says, for all ranks: facts, every rank's steps, and that nothing was seen."""
        cell, place = order.trial.cell, self._placement
        workload, steps = cell.workload, cell.measure.resolved().min_steps or 1
        assert isinstance(workload, SimulatedWorkload)  # noqa: S101 - `run.start` chooses by it
        noise = noise_of(workload, self._planned_id, f"{order.trial_id}|{order.attempt}")
        work = float(workload.global_batch or place.world)
        step_s = work / (planted_rate(workload, place.world, place.link_class) * noise) + cell.planted.delay_ms / 1e3
        end_ns = time.time_ns()
        facts: dict[str, Any] = {
            "device": DEVICE,
            "device_names": [f"{SIMULATED} GPU"],
            "gpu_uuids": list(place.gpu_uuids),
            "warmup_s": 0.0,
            "window_s": steps * step_s,
            "window_steps": steps,
            "window_start_ns": end_ns - round(1e9 * steps * step_s),
            "window_end_ns": end_ns,
            "work": steps * work,
            "work_unit": "sample",
            "throughput_per_s": work / step_s,
            "step_time_mean_s": step_s,
            "step_time_p50_s": step_s,
            "step_time_p95_s": step_s * (1 + 1.645 * JITTER),
        }
        tables = {"steps": _steps(order, place.world, steps, step_s), "attestation": _attestation(order, workload)}
        return RankReport(rank=0, outcome=Outcome.OK, facts=facts, tables=tables)


def planted_rate(workload: SimulatedWorkload, workers: int, link_class: str | None) -> float:
    """Samples per second of so many workers by the planted law, less what the links between them cost.

    Source: N. J. Gunther, Guerrilla Capacity Planning (2007), universal scalability law.

    >>> planted_rate(SimulatedWorkload(kind="simulated", rate=100.0, contention=0.1), 11, None)
    550.0
    """
    extra = workload.contention * (workers - 1) + workload.coherency * workers * (workers - 1)
    loss = getattr(workload, LINK_LOSS[link_class]) if link_class in LINK_LOSS else 0.0
    return float(workers * workload.rate / (1 + extra) * (1 - loss))


def noise_of(workload: SimulatedWorkload, session: str, trial: str) -> float:
    """The factor by which a trial is off the law: its session's part times its own, both log-normal with median 1."""
    of_session, of_trial = (_chance(text).normal() for text in (session, trial))
    return float(np.exp(workload.session_noise * of_session + workload.noise * of_trial))


def _chance(text: str) -> np.random.Generator:
    return np.random.default_rng(int(content_id(text), 16))


def _steps(order: Order, world: int, steps: int, step_s: float) -> pa.Table:
    jitter = np.exp(_chance(f"steps|{order.trial_id}|{order.attempt}").normal(0.0, JITTER, world * steps))
    columns = {
        "trial_id": order.trial_id,
        "attempt": order.attempt,
        "rank": np.repeat(np.arange(world), steps),
        "step": np.tile(np.arange(steps), world),
        "phase": "window",
        "step_time_s": step_s * jitter,
    }
    return table_from_columns("steps", world * steps, columns)


def _attestation(order: Order, workload: SimulatedWorkload) -> pa.Table:
    """That nothing was measured, and that no forced setting was seen in force."""
    seen = f"{SIMULATED}: {workload.label}"
    rows: list[tuple[str, str, str | None, str]] = [("measurement", "a measurement", seen, "not applicable")]
    rows += [(f"nccl.{name}", as_text(value), None, "not attested") for name, value in _forced(order.trial.cell)]
    return table(
        "attestation",
        [
            {
                "trial_id": order.trial_id,
                "attempt": order.attempt,
                "subject": subject,
                "requested": requested,
                "observed": observed,
                "verdict": verdict,
                "evidence": f"{SIMULATED}: nothing ran",
            }
            for subject, requested, observed, verdict in rows
        ],
    )


def _forced(cell: Cell) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in cell.nccl if value not in ("auto", False)]
