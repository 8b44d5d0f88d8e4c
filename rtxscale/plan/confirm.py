"""A plan that confirms what a sweep has selected: each such cell against its default, interleaved, in fresh sessions.

Every visit has sessions of its own for each pair. Where one process can serve both cells they share it, in the balanced
order A B B A, mirrored in every second visit; else each has its own, and the visits alternate which comes first. Which
pairs is not decided here: the selection comes in as plain data. Pure; called through `run.sweep` by `cli.confirm`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rtxscale.devices.inventory import Inventory
from rtxscale.errors import PlanError
from rtxscale.models.counted import Catalogue
from rtxscale.plan.estimate import estimate_cost
from rtxscale.plan.expand import make_plan
from rtxscale.plan.model import Plan, PlannedSession, PlannedTrial, SessionKey
from rtxscale.plan.order import place_of, session_key
from rtxscale.plan.placement import Placer
from rtxscale.results.outcomes import is_finished
from rtxscale.spec.cell import Trial, content_id, trial_id_of
from rtxscale.spec.sweep import Sweep


@dataclass(frozen=True, kw_only=True)
class Pair:
    """What is to be confirmed: ids of the selected cell and of the default cell, and the selected one in words."""

    selected: str
    default: str
    label: str = ""


def confirmation_plan(
    sweep: Sweep,
    inventory: Inventory,
    *,
    pairs: Sequence[Pair],
    visits: int,
    attempts: Mapping[str, list[str]] | None = None,
    catalogue: Catalogue | None = None,
) -> Plan:
    """Sessions of stage `confirm` for the pairs, in order.

    `attempts` holds the run's outcomes so far by trial id, `catalogue` what is known of the memory of models.

    Raises:
        PlanError: the sweep cannot run here, or a cell of a pair is not in it.
        ValueError: two pairs share a default: its trials would have to stand for both.
    """
    if len({pair.default for pair in pairs}) < len(pairs):
        raise ValueError("two pairs share a default cell")
    whole = make_plan(sweep, inventory, catalogue)
    cells = {planned.trial.cell.cell_id: planned for planned in whole.trials}
    placer = Placer(whole.pool.nodes, whole.device)
    sessions = tuple(
        session
        for visit in range(1, visits + 1)
        for pair in (pairs if visit % 2 else reversed(pairs))
        for session in _visit(_known(cells, pair), whole.device, visit, placer)
    )
    return replace(
        whole,
        sessions=sessions,
        dropped=(),
        notes=tuple(_notes(whole, pairs, visits, attempts or {})),
        estimate=estimate_cost(sessions, whole.pool, whole.device, sweep.max_hours),
    )


def _known(cells: Mapping[str, PlannedTrial], pair: Pair) -> tuple[PlannedTrial, PlannedTrial]:
    """The selected and the default cell as the sweep plans them here."""
    missing = [cell_id for cell_id in (pair.selected, pair.default) if cell_id not in cells]
    if missing:
        raise PlanError(
            f"found no cell {' or '.join(missing)} in the sweep as it would run here; expected the cells that the run "
            "has measured: confirm on the machine and with the rtxscale that measured it"
        )
    return cells[pair.selected], cells[pair.default]


def _visit(
    pair: tuple[PlannedTrial, PlannedTrial], device: str, visit: int, placer: Placer
) -> Iterator[PlannedSession]:
    """The sessions of one pair in one visit."""
    first, second = pair if visit % 2 else pair[::-1]
    tag = "|".join(sorted(planned.trial.cell.cell_id for planned in pair))
    a1, a2, b1, b2 = (_trial(planned, visit, repeat) for planned in (first, second) for repeat in (1, 2))
    key, other = (session_key(planned.trial.cell, 0, device) for planned in (first, second))
    if any(planned.trial.cell.isolation == "process" for planned in pair):
        for planned, own in ((a1, key), (b1, other), (b2, other), (a2, key)):
            yield _session(replace(own, alone=planned.trial_id), tag, visit, (planned,), placer)
    elif key == other:
        yield _session(key, tag, visit, (a1, b1, b2, a2), placer)
    else:
        yield _session(key, tag, visit, (a1, a2), placer)
        yield _session(other, tag, visit, (b1, b2), placer)


def _trial(planned: PlannedTrial, visit: int, repeat: int) -> PlannedTrial:
    """The cell of a planned trial, measured again to confirm."""
    cell = planned.trial.cell
    return PlannedTrial(
        trial=Trial(cell=cell, visit=visit, repeat=repeat, stage="confirm"),
        trial_id=trial_id_of(cell.canonical(), visit, repeat, 0, "confirm"),
        axes=planned.axes,
    )


def _session(key: SessionKey, tag: str, visit: int, trials: tuple[PlannedTrial, ...], placer: Placer) -> PlannedSession:
    """A session with a name that no session of the sweep has, nor another pair's."""
    name = f"c-g{key.gpus}-{key.alone or content_id(f'{key!r}|{tag}')[:8]}-v{visit}"
    place = place_of(key, trials[0].trial.cell, placer)
    return PlannedSession(session_id=name, key=key, placement=place, visit=visit, trials=trials)


def _notes(whole: Plan, pairs: Sequence[Pair], visits: int, attempts: Mapping[str, list[str]]) -> Iterator[str]:
    """What is confirmed, and that a selection from an unfinished sweep stays what it is."""
    for pair in pairs:
        yield f"confirming {pair.label or pair.selected} against the defaults, in {visits} visits"
    asked = [planned.trial_id for planned in whole.trials if planned.trial.stage == "sweep"]
    left = sum(not is_finished(attempts.get(trial_id, [])) for trial_id in asked)
    if left:
        yield (
            f"{left} of the sweep's {len(asked)} trials are not finished: what is confirmed is the best so far, and "
            "stays what is confirmed whatever they show"
        )
