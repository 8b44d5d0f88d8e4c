"""From a sweep and an inventory to a plan: the one entry into this folder.

Pure: the inventory is given, nothing is looked at, and neither Ray nor torch is loaded. Called by `cli` and `run`.
"""

from __future__ import annotations

from collections import Counter

from rtxscale.devices.inventory import Inventory
from rtxscale.errors import PlanError
from rtxscale.models.counted import Catalogue, shipped
from rtxscale.plan.estimate import estimate_cost
from rtxscale.plan.model import Plan
from rtxscale.plan.notes import plan_notes
from rtxscale.plan.order import plan_sessions
from rtxscale.plan.pools import matched_pool
from rtxscale.plan.resolve import Cells, resolve_cells
from rtxscale.plan.simulated import simulated_inventory
from rtxscale.plan.site import site_of
from rtxscale.spec.sweep import Sweep
from rtxscale.spec.workload import SimulatedWorkload


def make_plan(sweep: Sweep, inventory: Inventory, catalogue: Catalogue | None = None) -> Plan:
    """Sessions of trials in order, what was dropped and why, and the estimated cost.

    `catalogue` is what is known of the memory of models: what comes with rtxscale where none is given. What else is in
    it makes notes and advice; cells are dropped by what everybody knows, so that a plan is the same everywhere.

    Raises:
        PlanError: the hardware is not what the sweep asks for, or no cell can run on it.
    """
    catalogue = shipped() if catalogue is None else catalogue
    if isinstance(sweep.workload, SimulatedWorkload):
        inventory = simulated_inventory(sweep.workload)  # whatever is here
    pool = matched_pool(sweep.hardware, inventory)
    device = choose_device(sweep, pool)
    site = site_of(pool, device)
    cells = resolve_cells(sweep, site)
    if not cells.cells:
        raise PlanError(_nothing_left(cells, pool))
    sessions = plan_sessions(sweep, cells.cells, device, site.placer)
    return Plan(
        sweep=sweep,
        sweep_id=sweep.sweep_id,
        pool=pool,
        device=device,
        threads_per_worker=threads_per_worker(pool, device, max(cell.gpus for cell in cells.cells.values())),
        sessions=sessions,
        dropped=cells.dropped,
        notes=plan_notes(sweep, cells, sessions, pool, device, catalogue),
        estimate=estimate_cost(sessions, pool, device, sweep.max_hours),
        catalogue=catalogue,
    )


def choose_device(sweep: Sweep, inventory: Inventory) -> str:
    """`cuda` or `cpu`, as the sweep asks and the inventory allows.

    Raises:
        PlanError: there are no GPUs, or fewer than the sweep asks for.
    """
    asked, there = sweep.hardware, len(inventory.gpus)
    if asked.min_gpus is not None and there < asked.min_gpus:
        raise PlanError(
            f"found {inventory.describe()}; hardware.min_gpus asks for {asked.min_gpus} GPUs: "
            'run on a larger machine, lower it, or see what one would run: rtxscale plan --assume "4x RTX 5090"'
        )
    if asked.device == "cuda" and not there:
        raise PlanError(
            f"found no GPU ({inventory.describe()}); hardware.device asks for cuda: use auto or cpu to run without GPUs"
        )
    return inventory.device if asked.device == "auto" else asked.device


def threads_per_worker(inventory: Inventory, device: str, largest: int) -> int:
    """CPU threads each worker may use, the same in every cell: on CPU as many as the largest cell leaves each."""
    if device == "cpu":
        return max(1, min(node.cpus for node in inventory.nodes) // largest)
    return max(1, min(node.cpus // len(node.gpus) for node in inventory.nodes if node.gpus))


def _nothing_left(cells: Cells, inventory: Inventory) -> str:
    counts = Counter(dropped.reason for dropped in cells.dropped)
    reasons = "; ".join(f"{reason} ({count} point{'s' * (count > 1)})" for reason, count in counts.most_common())
    reason = reasons or "exclude leaves out every point"
    return f"no cell of the sweep can run on {inventory.describe()}: {reason}; change the axes or the machine"
