"""What a plan will cost in wall time and energy, from the measure profile and a few start-up times.

A rough figure to decide by before a sweep starts: it knows nothing of the model's speed. `run` counts what is left
from what trials really took. Pure; called by `plan.expand`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from rtxscale.devices.gpus import find_gpu
from rtxscale.devices.inventory import Gpu, Inventory
from rtxscale.plan.model import Estimate, PlannedSession
from rtxscale.spec.cell import Cell
from rtxscale.spec.workload import CollectivesWorkload, SimulatedWorkload

FIRST_SESSION_S = 9.0
SESSION_S = 8.0
"""Start-up of a session on a warm host; the first one may have to wait for the host.

Measured on 2026-12-01: two CPU workers on 2 cores that other work kept busy (load 2 to 8), Ray 2.60: 8.2 to 8.9 s."""

OUTSIDE_S = 0.3
"""Hand-over, rebuild and clean-up of a warm trial."""

COLLECTIVE_S = {"cuda": 0.3, "cpu": 1.0}
"""One operation at one size, checked and timed."""

COMPILE_S = {"off": 0.0, "default": 30.0, "reduce-overhead": 40.0, "max-autotune": 180.0}
"""Compiling a model the size of ResNet-50."""

SIMULATED_S = 0.06
"""A simulated trial: what the sweep itself costs. Measured on 2 cores, Ray 2.60, 10,500 trials."""

WARMUP_FACTOR = 1.5
"""The steady-state criterion usually holds a little after the least warm-up."""


def estimate_cost(
    sessions: Iterable[PlannedSession], inventory: Inventory, device: str, max_hours: float | None = None
) -> Estimate:
    """Wall time in seconds, energy in Wh where the GPUs' board power is known, and trials within `max_hours`."""
    wall_s, gpu_s, start_s = 0.0, 0.0, FIRST_SESSION_S
    seconds: dict[int, float] = {}
    begins_s: list[float] = []
    for session in sessions:
        cells = [planned.trial.cell for planned in session.trials]
        took_s = [seconds.setdefault(id(cell), trial_s(cell, device)) for cell in cells]
        began_s, ready_s = wall_s, wall_s + start_s + _soak_s(cells)
        *begin_s, wall_s = accumulate(took_s, initial=ready_s)
        begins_s += [began_s, *begin_s[1:]]  # a session's first trial is given out before it starts
        gpu_s += (wall_s - began_s) * session.key.gpus
        start_s = SIMULATED_S if isinstance(cells[0].workload, SimulatedWorkload) else SESSION_S
    watts, power_basis = board_power(inventory, device)
    basis = (
        f"measure profile, {SESSION_S:g} s a session start, {OUTSIDE_S:g} s a trial outside measurement; {power_basis}"
    )
    energy_wh = None if watts is None else gpu_s * watts / 3600
    in_budget = None if max_hours is None else sum(begin_s < 3600 * max_hours for begin_s in begins_s)
    return Estimate(wall_s=wall_s, energy_wh=energy_wh, basis=basis, in_budget=in_budget)


def trial_s(cell: Cell, device: str) -> float:
    """Seconds one trial takes in a warm session, soak left out."""
    measure = cell.measure.resolved()
    if isinstance(cell.workload, SimulatedWorkload):
        return SIMULATED_S
    collectives_s = COLLECTIVE_S[device] * _timings(cell)
    if isinstance(cell.workload, CollectivesWorkload):
        return OUTSIDE_S + collectives_s
    warmup_s = (measure.warmup_min_s or 0.0) * WARMUP_FACTOR + _compile_s(cell)
    windows = 1 + (measure.loss_budget and cell.gpus > 1)
    target_s = 0.0 if cell.target is None else cell.target.max_time_s
    return OUTSIDE_S + warmup_s + windows * (measure.window_s or 0.0) + collectives_s + target_s


def board_power(inventory: Inventory, device: str) -> tuple[float | None, str]:
    """Mean board power limit of the GPUs in watts, and where it comes from; None when that of any is not known."""
    if device != "cuda":
        return None, "no energy estimate without GPUs"
    watts = [_limit_w(gpu) for gpu in inventory.gpus]
    known = [watt for watt in watts if watt is not None]
    if len(known) < len(watts):
        return None, "no energy estimate: the board power of a GPU is not known"
    return sum(known) / len(known), "energy: the GPUs in use at their board power throughout, an upper figure"


def _limit_w(gpu: Gpu) -> float | None:
    if gpu.power_limit_w is not None:
        return gpu.power_limit_w
    facts = find_gpu(gpu.name, gpu.memory_mib)
    return None if facts is None else facts.tgp_w


def _timings(cell: Cell) -> int:
    if isinstance(cell.workload, CollectivesWorkload):
        return len(cell.workload.operations) * len(cell.workload.sizes_mib)
    if cell.collectives is None:
        return 0
    return len(cell.collectives.operations) * len(cell.collectives.sizes_mib)


def _compile_s(cell: Cell) -> float:
    return COMPILE_S[getattr(cell.workload, "compile", "off")]


def _soak_s(cells: list[Cell]) -> float:
    """Soaks of a session: one for each workload and precision in it."""
    soaks = {
        (*cell.workload.identity, cell.workload.precision): cell.measure.resolved().soak_s or 0.0
        for cell in cells
        if not isinstance(cell.workload, SimulatedWorkload)
    }
    return sum(soaks.values())


def duration(seconds: float) -> str:
    """Seconds in words, to two units.

    >>> duration(50), duration(754), duration(8000), duration(200000)
    ('50 s', '13 min', '2 h 13 min', '2 d 8 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    hours = round(minutes / 60)
    return f"{hours // 24} d {hours % 24} h"
