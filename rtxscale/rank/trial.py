"""One trial from order to report: build, warm up, measure the window, time collectives, gather the evidence.

The no_sync arm, where one is asked for, comes after all of that and touches none of it.

All ranks walk through it in step. What can go wrong is sorted out by `rank.loop`, not here. Caller: `rank.loop`.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from rtxscale.nccl.attest import Attested
from rtxscale.rank import rows
from rtxscale.rank.apart import Arm, no_sync_arm
from rtxscale.rank.channel import Order, RankReport
from rtxscale.rank.communicator import communicator, knobs_of
from rtxscale.rank.evidence import attest_buckets, attest_nccl, refuted
from rtxscale.rank.logs import logs_table, nccl_lines
from rtxscale.rank.roof import with_roof
from rtxscale.rank.session import Session
from rtxscale.rank.target import seed_of, train_to_target
from rtxscale.rank.warmup import Stepper, WarmUp, first_step, soak, warm_up, window_steps
from rtxscale.results.outcomes import Outcome
from rtxscale.spec.cell import Cell
from rtxscale.spec.workload import CollectivesWorkload
from rtxscale.stats.steady import steepest
from rtxscale.workloads.delay import with_delay
from rtxscale.workloads.links.collectives import request_of, time_request
from rtxscale.workloads.links.timing import Request, Timing
from rtxscale.workloads.networks.flops import training_flops
from rtxscale.workloads.protocol import Context, Restartable, Running, work_of_latest
from rtxscale.workloads.registry import IMPLEMENTATIONS
from rtxscale.workloads.training.updates import skipped_steps

MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Window:
    """The measured window on this rank; times of rank 0 are the ones that count."""

    seconds: float
    steps: int
    start_ns: int
    end_ns: int
    skipped_steps: int | None = None


def run_trial(order: Order, session: Session) -> RankReport:
    """Measure one order; every rank of the session must have the same one.

    Raises:
        Stopped: the trial ended on all ranks alike.
    """
    _same_order(order, session)
    cell = order.trial.cell
    if session.log is not None:
        session.log.begin()
    started = time.perf_counter()
    with communicator(cell, session.place, session.device) as group:
        session.control.exchange(None)  # nobody fails and leaves while others are still connecting to it
        context = _context(cell, group, session)
        with closing(IMPLEMENTATIONS[cell.workload.kind].prepare(context)) as running:
            session.control.exchange(None)
            built_s = time.perf_counter() - started
            report = _measure(order, session, context, with_delay(running, cell.planted, context), built_s)
            report = _to_target(order, session, running, report)
        return with_roof(report, session, None if training_flops(cell.workload) is None else cell.workload.precision)


def _to_target(order: Order, session: Session, running: Running, report: RankReport) -> RankReport:
    """The report with what the run to the target found, for the sweep's own trials that ended well."""
    target = order.trial.cell.target
    if target is None or order.trial.stage != "sweep":
        return report
    if session.control.exchange(report.outcome)[0] is not Outcome.OK:
        return report
    if not isinstance(running, Restartable):
        raise TypeError(f"found a target for a workload of kind {order.trial.cell.workload.kind}; expected training")
    seed, start = seed_of(order.trial), time.perf_counter()
    running.restart(seed)
    session.control.exchange(None)
    approach = train_to_target(target, running, session)
    found = {**approach.facts(seed), "target_run_s": time.perf_counter() - start}
    return report if report.rank != 0 else replace(report, facts={**report.facts, **found})


def _same_order(order: Order, session: Session) -> None:
    """Refuse to start unless every rank holds the same order."""
    held = session.control.exchange((order.trial_id, order.attempt))
    if len(set(held)) > 1:
        raise RuntimeError(f"ranks hold different orders: {held}; the giver of work must hand each order to all")


def _context(cell: Cell, group: dist.ProcessGroup | None, session: Session) -> Context:
    """The workload's view of this rank."""
    return Context(
        workload=cell.workload,
        bucket_mib=_bucket_mib(cell),
        device=session.device,
        rank=session.place.rank,
        world=session.place.world,
        group=group,
        exchange=session.control.exchange,
        kept=session.kept,
    )


def _measure(order: Order, session: Session, context: Context, running: Running, built_s: float) -> RankReport:
    """Warm-up, window, collectives and evidence of a prepared workload."""
    cell, rank = order.trial.cell, session.place.rank
    stepper = Stepper(
        running=running,
        control=session.control,
        device=session.device,
        rank=rank,
        vitals=session.vitals,
        slope_s=cell.measure.resolved().slope_s or 0.0,
    )
    warm = _warmed_up(stepper, cell, session)
    load_s = session.vitals.load_s
    window = None
    if running.work_per_step is not None:
        window = _window(stepper, warm, cell, session)
    shares = session.control.exchange(_share(session, running, stepper, window))
    timings, collectives_s = _collectives(cell, context)
    attested = _evidence(cell, session, running) if rank == 0 else ()
    arm = _arm(order, stepper, window)
    tables = {"steps": rows.steps_table(order, rank, stepper.phases)}
    tables["logs"] = logs_table(order, rank, {"nccl": nccl_lines(session.log, rank)})
    if rank != 0:
        return RankReport(rank=rank, outcome=Outcome.OK, tables=tables)
    attested = attested if arm is None else (*attested, arm.attested)
    tables |= {
        "buckets": rows.buckets_table(order, running.buckets()),
        "collectives": rows.collectives_table(order, timings),
        "attestation": rows.attestation_table(order, attested),
    }
    outcome, message = conclude(warm, timings, refuted(attested))
    facts = {
        "device": session.place.device,
        "threads": session.place.threads,
        "build_s": built_s,
        "collectives_s": collectives_s,
        "no_sync_s": None if arm is None else arm.seconds,
        "work_unit": running.unit,
        "flops_per_work": training_flops(cell.workload),
        "load_s": load_s,
        **_warm_up_facts(warm),
        **_window_facts(window),
        **rows.joint_facts(shares, window.seconds if window else None),
    }
    return RankReport(rank=rank, outcome=outcome, message=message, facts=facts, tables=tables)


def _warmed_up(stepper: Stepper, cell: Cell, session: Session) -> WarmUp:
    """First step, what the session still owes this workload and precision of their soak, and warm-up until steady."""
    subject, soak_s = (*cell.workload.identity, cell.workload.precision), cell.measure.resolved().soak_s or 0.0
    first_step_s = first_step(stepper)
    soaked_s = soak(stepper, session.soak_owed_s(subject, soak_s))
    session.note_soak(subject, soak_s)
    return warm_up(stepper, cell.measure, first_step_s=first_step_s, soak_s=soaked_s)


def _window(stepper: Stepper, warm: WarmUp, cell: Cell, session: Session) -> Window:
    """Run a number of steps that rank 0 fixed beforehand, barrier to barrier, without waiting in between."""
    if session.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(session.device)
    planned = window_steps(warm.step_s, cell.measure.resolved())
    steps = session.control.exchange(planned)[0]
    skipped = skipped_steps(stepper.running)
    start_ns, start = time.time_ns(), time.perf_counter()
    pending = stepper.window(steps)
    pending.wait()
    session.control.exchange(None)
    seconds, end_ns = time.perf_counter() - start, time.time_ns()
    stepper.record("window", pending.block())
    if skipped is not None:
        skipped = (skipped_steps(stepper.running) or 0) - skipped
    return Window(seconds=seconds, steps=steps, start_ns=start_ns, end_ns=end_ns, skipped_steps=skipped)


def _share(session: Session, running: Running, stepper: Stepper, window: Window | None) -> rows.Share:
    """This rank's part, for rank 0 to join."""
    fields: dict[str, Any] = {"device_name": session.device_name, "gpu_uuid": session.gpu_uuid}
    if session.device.type == "cuda":
        fields["memory_peak_mib"] = torch.cuda.max_memory_allocated(session.device) / MIB
        fields["memory_reserved_mib"] = torch.cuda.max_memory_reserved(session.device) / MIB
    if window is not None:
        block = stepper.phases[-1].block
        fields |= {"work": work_of_latest(running, window.steps), "step_s": block.step_s}
        fields["loss"] = running.loss()
        fields["input_share"] = float(block.waited_s.sum()) / window.seconds
        if block.host_bound is not None:
            fields["host_bound_share"] = float(block.host_bound.mean())
    return rows.Share(**fields)


def _collectives(cell: Cell, context: Context) -> tuple[list[Timing], float | None]:
    """Timings of the collectives asked for, and the seconds they took; nothing at one worker."""
    request = collectives_of(cell)
    if request is None or context.group is None:
        return [], None
    start = time.perf_counter()
    return time_request(request, context), time.perf_counter() - start


def _arm(order: Order, stepper: Stepper, window: Window | None) -> Arm | None:
    """The no_sync arm as long as the window, where the sweep's own trials ask for a loss budget."""
    trial = order.trial
    if window is None or trial.stage != "sweep" or not trial.cell.measure.loss_budget:
        return None
    return no_sync_arm(stepper, window.steps, trial.cell.gpus)


def collectives_of(cell: Cell) -> Request | None:
    """What the cell wants timed: its workload if that is collectives, else its probe, in the gradients' fp32."""
    workload = cell.workload
    if isinstance(workload, CollectivesWorkload):
        return request_of(workload, _bucket_mib(cell))
    if cell.collectives is None:
        return None
    return Request(operations=cell.collectives.operations, sizes_mib=cell.collectives.sizes_mib)


def _evidence(cell: Cell, session: Session, running: Running) -> tuple[Attested, ...]:
    """Everything that can be said about what was really active."""
    world = session.place.world
    rows_of_nccl = attest_nccl(knobs_of(cell.nccl), session.log, world)
    own = running.attest()
    if running.work_per_step is None:
        return (*rows_of_nccl, *own)
    return (*rows_of_nccl, attest_buckets(_bucket_mib(cell), running.buckets(), world), *own)


def conclude(warm: WarmUp, timings: list[Timing], refutation: str) -> tuple[Outcome, str]:
    """Outcome and message of a trial that came to its end."""
    wrong = [f"{timing.operation} of {timing.size_bytes} bytes" for timing in timings if not timing.data_ok]
    if wrong:
        return Outcome.CRASHED, f"wrong data after {', '.join(wrong)}; do not trust this transport"
    if refutation:
        return Outcome.NOT_HONOURED, refutation
    if not warm.steady:
        return Outcome.UNSTEADY, warm.criterion
    return Outcome.OK, ""


def _warm_up_facts(warm: WarmUp) -> dict[str, Any]:
    return {
        "first_step_s": warm.first_step_s,
        "soak_s": warm.soak_s,
        "warmup_s": warm.warmup_s,
        "warmup_steps": warm.steps,
        "steady": warm.steady,
        "steady_criterion": warm.criterion,
        "temperature_slope": steepest([gpu.temperature for gpu in warm.gpus]),
        "sm_clock_slope": steepest([gpu.clock for gpu in warm.gpus]),
    }


def _window_facts(window: Window | None) -> dict[str, Any]:
    if window is None:
        return {}
    return {
        "window_s": window.seconds,
        "window_steps": window.steps,
        "skipped_steps": window.skipped_steps,
        "window_start_ns": window.start_ns,
        "window_end_ns": window.end_ns,
    }


def _bucket_mib(cell: Cell) -> float | None:
    return None if cell.ddp.bucket_mib == "auto" else cell.ddp.bucket_mib
