"""`rtxscale plan`: what a sweep would run here, or on a machine named in words, and what it would cost.

Starts nothing and loads neither Ray nor torch. Printing is plain text of at most 80 columns.
"""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rtxscale.devices.inventory import Inventory
    from rtxscale.plan.model import Placement, Plan
    from rtxscale.spec.workload import Workload

WIDTH = 80
SESSIONS_SHOWN = 16


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="plan")(plan)


def plan(
    sweep: Annotated[Path, typer.Argument(help="The sweep file (YAML).", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole plan as JSON.")] = False,
    assume: Annotated[
        str | None, typer.Option(help='Plan for a machine in words, such as "4x RTX 5090" or "cpu".')
    ] = None,
) -> None:
    """Show what a sweep would run here and what it would cost.

    Cells, trials, sessions, what is dropped and the estimated cost; nothing is run.
    """
    from rtxscale.plan.assume import assumed_inventory
    from rtxscale.plan.expand import make_plan
    from rtxscale.spec.load import load_sweep
    from rtxscale.spec.printable import printable
    from rtxscale.workloads.files.model import catalogue_beside

    loaded = load_sweep(sweep)
    inventory = _inventory_here() if assume is None else assumed_inventory(assume)
    directory = sweep.absolute().parent
    made = make_plan(loaded.sweep, inventory, catalogue_beside(loaded.sweep, directory))
    _look_at_workloads(made, directory if assume is None else None)
    if as_json:
        typer.echo(json.dumps(plan_json(made, made.pool), indent=2))
    else:
        typer.echo(printable("\n".join(plan_lines(made, made.pool))))


def _look_at_workloads(made: Plan, directory: Path | None) -> None:
    """Refuse data and models that cannot be trained on; of another machine (no `directory`) only names are looked at.

    Raises:
        BadInput: with everything that is wrong.
    """
    from rtxscale.cli.looked_up import unknown_names, untrainable
    from rtxscale.errors import BadInput

    used = list({id(planned.trial.cell.workload): planned.trial.cell.workload for planned in made.trials}.values())
    wrong = dict.fromkeys(unknown_names(used))
    if directory is not None:
        seen = dict.fromkeys(_seen_in_files(used, directory))
        wrong |= seen or dict.fromkeys(untrainable(used, directory))
    if wrong:
        raise BadInput("; ".join(wrong))


def _seen_in_files(workloads: list[Workload], directory: Path) -> Iterator[str]:
    """What names, sizes and headers of files say against training on them."""
    from rtxscale.spec.workload import names_files

    given = [one for one in workloads if getattr(one, "data", "resident") != "resident" or names_files(one)]
    if not given:
        return
    from rtxscale.workloads.inputs import complaint

    yield from filter(None, (complaint(workload, directory) for workload in given))


def _inventory_here() -> Inventory:
    from rtxscale.devices.inventory import Inventory
    from rtxscale.telemetry.facts import describe_node

    node, notes = describe_node("local")
    return Inventory(nodes=(node,), notes=notes)


def plan_json(plan: Plan, inventory: Inventory) -> dict[str, Any]:
    """The plan as JSON data.

    `sweep`: name, sweep_id, question, study. `device`, `hardware` (in words), `assumed`, `threads_per_worker`.
    `cells`, `trials`, `sentinels` (of the trials): counts. `sessions`, in the order they run: session_id, gpus, slot,
    launcher, visit, nodes (of each worker, by rank), gpu_uuids, link_class, and `trials`: trial_id, cell_id, stage,
    repeat, batch_per_gpu and global_batch (null without), axes (dotted path -> value).
    `dropped`: axes, rule, reason. `notes`. `estimate`: wall_s, energy_wh (null when unknown), basis, max_hours and
    trials_in_max_hours, those that begin in that time (both null where the sweep has no such limit).
    """
    from rtxscale.plan.order import count_sentinels

    return {
        "sweep": {
            "name": plan.sweep.name,
            "sweep_id": plan.sweep_id,
            "question": plan.sweep.question,
            "study": plan.sweep.study,
        },
        "device": plan.device,
        "hardware": inventory.describe(),
        "assumed": inventory.assumed,
        "threads_per_worker": plan.threads_per_worker,
        "cells": count_cells(plan),
        "trials": len(plan.trials),
        "sentinels": count_sentinels(plan.sessions),
        "sessions": list(_json_sessions(plan)),
        "dropped": [{"axes": drop.axes, "rule": drop.rule, "reason": drop.reason} for drop in plan.dropped],
        "notes": list(plan.notes),
        "estimate": {
            "wall_s": round(plan.estimate.wall_s, 1),
            "energy_wh": None if plan.estimate.energy_wh is None else round(plan.estimate.energy_wh, 1),
            "basis": plan.estimate.basis,
            "max_hours": plan.sweep.max_hours,
            "trials_in_max_hours": plan.estimate.in_budget,
        },
    }


def _json_sessions(plan: Plan) -> Iterator[dict[str, Any]]:
    cell_ids: dict[int, str] = {}
    for session in plan.sessions:
        trials = []
        for planned in session.trials:
            cell = planned.trial.cell
            if id(cell) not in cell_ids:
                cell_ids[id(cell)] = cell.cell_id
            trials.append(
                {
                    "trial_id": planned.trial_id,
                    "cell_id": cell_ids[id(cell)],
                    "stage": planned.trial.stage,
                    "repeat": planned.trial.repeat,
                    "batch_per_gpu": getattr(cell.workload, "batch_per_gpu", None),
                    "global_batch": getattr(cell.workload, "global_batch", None),
                    "axes": planned.axes,
                }
            )
        yield {
            "session_id": session.session_id,
            "gpus": session.key.gpus,
            "slot": session.key.slot,
            "launcher": session.key.launcher,
            "visit": session.visit,
            "nodes": list(session.placement.nodes),
            "gpu_uuids": list(session.placement.gpu_uuids),
            "link_class": session.placement.link_class,
            "trials": trials,
        }


def count_cells(plan: Plan) -> int:
    """Number of different cells in the plan."""
    return len({id(planned.trial.cell) for planned in plan.trials})


def plan_lines(plan: Plan, inventory: Inventory) -> Iterator[str]:
    """The plan as lines of at most 80 columns."""
    sweep = plan.sweep
    yield from _wrapped(f"{sweep.name}: {sweep.question}", "  ")
    place = f"{inventory.describe()}, assumed" if inventory.assumed else inventory.describe()
    yield from _wrapped(f"study {sweep.study}, {sweep.subjects}, profile {sweep.measure.profile}", "  ")
    yield from _wrapped(
        f"device {plan.device} ({place}), {counted(plan.threads_per_worker, 'thread')} per worker", "  "
    )
    yield ""
    yield from _wrapped(
        f"{counted(count_cells(plan), 'cell')}, {_trials(plan)}, {counted(len(plan.sessions), 'session')} "
        f"({counted(sweep.visits, 'visit')}, order {sweep.order})",
        "  ",
    )
    yield ""
    yield from _session_table(plan)
    yield from _dropped_lines(plan)
    if plan.notes:
        yield ""
        yield "Notes"
        for note in plan.notes:
            yield from _wrapped(f"- {note}", "  ")
    yield ""
    yield from _estimate_lines(plan)


def _trials(plan: Plan) -> str:
    """Number of trials, and how many of them are sentinels."""
    from rtxscale.plan.order import count_sentinels

    sentinels = count_sentinels(plan.sessions)
    among = f" ({counted(sentinels, 'sentinel')} among them)" if sentinels else ""
    return counted(len(plan.trials), "trial") + among


def _session_table(plan: Plan) -> Iterator[str]:
    width = max(len(session.session_id) for session in plan.sessions)
    placed = len(plan.pool.nodes) > 1 or any(session.key.layout for session in plan.sessions)
    head = f"{'session':<{width}}  visit  {'GPUs' if plan.device == 'cuda' else 'workers':>7}  trials"
    yield f"{head}  where" if placed else head
    for session in plan.sessions[:SESSIONS_SHOWN]:
        line = f"{session.session_id:<{width}}  {session.visit:>5}  {session.key.gpus:>7}  {len(session.trials):>6}"
        yield f"{line}  {_where(session.placement)}" if placed else line
    rest = plan.sessions[SESSIONS_SHOWN:]
    if rest:
        trials = sum(len(session.trials) for session in rest)
        yield f"... and {counted(len(rest), 'more session')} with {counted(trials, 'trial')}"


def _where(placement: Placement) -> str:
    """Node or number of nodes, GPU indices on each, and how they are linked."""
    nodes = placement.distinct_nodes
    each = placement.world // len(nodes)
    place = nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes of {each}"
    indices = [int(index) for index in (placement.visible or "").split(",") if index]
    in_a_row = len(indices) > 2 and indices == list(range(indices[0], indices[-1] + 1))
    told = f"{indices[0]}-{indices[-1]}" if in_a_row else ",".join(map(str, indices))
    gpus = f", GPU{'s' * (each > 1)} {told}" if indices else ""
    links = (placement.link_class or "").replace("_", " ").removeprefix("cross node")
    return f"{place}{gpus}, {links}" if links else f"{place}{gpus}"


def _dropped_lines(plan: Plan) -> Iterator[str]:
    if not plan.dropped:
        return
    yield ""
    yield f"Dropped: {counted(len(plan.dropped), 'point')} of the grid"
    for reason, count in Counter(drop.reason for drop in plan.dropped).most_common():
        yield from _wrapped(f"{count:>6}  {reason}", " " * 8)


def _estimate_lines(plan: Plan) -> Iterator[str]:
    from rtxscale.plan.estimate import duration

    energy = "" if plan.estimate.energy_wh is None else f", at most {_energy(plan.estimate.energy_wh)}"
    yield f"Estimate: about {duration(plan.estimate.wall_s)}{energy}"
    yield from _wrapped(f"  ({plan.estimate.basis})", "   ")
    if plan.estimate.in_budget is not None:
        yield from _wrapped(_budget(plan, plan.estimate.in_budget), "  ")


def _budget(plan: Plan, in_budget: int) -> str:
    """Whether the sweep's own hours suffice, and what becomes of the rest."""
    limit, total = f"max_hours {plan.sweep.max_hours:g}", len(plan.trials)
    if in_budget == total:
        return f"{limit}: enough for all {counted(total, 'trial')} at this estimate"
    return (
        f"{limit}: cut. About {in_budget:,} of {counted(total, 'trial')} begin in that time at this estimate; with "
        "more hours the same command runs the rest"
    )


def counted(count: int, noun: str) -> str:
    """A count with its noun.

    >>> counted(1, "cell"), counted(12000, "trial")
    ('1 cell', '12,000 trials')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _energy(watt_hours: float) -> str:
    return f"{watt_hours:.0f} Wh" if watt_hours < 1000 else f"{watt_hours / 1000:.1f} kWh"


def _wrapped(text: str, indent: str) -> list[str]:
    from rtxscale.spec.printable import printable

    return textwrap.wrap(printable(text), WIDTH, subsequent_indent=indent, drop_whitespace=True)
