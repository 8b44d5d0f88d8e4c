"""Cells laid out as sessions of trials: which share a warm worker group, in which order, how often.

Every session key is visited several times, every second visit in mirrored order, so that slow drift of the machine
does not favour one key. Within a session the order is drawn anew for each round. Sentinels, trials of one cell at
start, middle and end, show how far a session drifts. Pure and reproducible: the seed is the sweep id and the session
id. Called by `plan.expand`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rtxscale.errors import PlanError
from rtxscale.plan.model import Placement, PlannedSession, PlannedTrial, SessionKey
from rtxscale.plan.placement import Placer
from rtxscale.spec.cell import Cell, Ddp, Nccl, Stage, Trial, content_id, trial_id_of
from rtxscale.spec.sweep import Sweep
from rtxscale.spec.workload import CUDA_GRAPH_MODES

NCCL, DDP = Nccl(), Ddp()
SENTINEL: Stage = "sentinel"
START, MIDDLE, END = 1, 2, 3
"""`repeat` of a sentinel: its place in the session, the same however many the session has."""
WITH_TWO, WITH_THREE = 2, 4
"""From this many trials on a session has sentinels at start and end, and from this many on in the middle too."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A cell with what is needed of it once per trial."""

    cell: Cell
    canonical: str
    axes: dict[str, Any]


Groups = dict[tuple[SessionKey, bool], list[Entry]]
"""Cells by session key and by whether each of their trials stands alone; in the order of the grid."""


def plan_sessions(sweep: Sweep, cells: Mapping[str, Cell], device: str, placer: Placer) -> tuple[PlannedSession, ...]:
    """All sessions in the order they run; `placer` says where, and on how many GPUs a 1-GPU baseline is measured."""
    groups = _group(sweep, cells, device, placer.slots)
    keys = sorted(groups, key=repr_of_key)
    sessions: list[PlannedSession] = []
    for visit in range(1, sweep.visits + 1):
        for key, alone in keys if visit % 2 else reversed(keys):
            sessions.extend(_visit(sweep, key, alone, groups[key, alone], visit, placer))
    return tuple(sessions)


def count_sentinels(sessions: Iterable[PlannedSession]) -> int:
    """Number of sentinels among the trials of these sessions."""
    return sum(planned.trial.stage == SENTINEL for session in sessions for planned in session.trials)


def sentinel_places(trials: int) -> dict[int, int]:
    """Which sentinels a warm session of that many trials has: `repeat` -> how many of the trials run before it.

    One trial cannot drift: it has none, like every trial under `isolation: process`. Two or three trials are over soon
    and would be half sentinels with three: they have two.

    >>> sentinel_places(1), sentinel_places(3), sentinel_places(9)
    ({}, {1: 0, 3: 3}, {1: 0, 2: 4, 3: 9})
    """
    if trials < WITH_TWO:
        return {}
    if trials < WITH_THREE:
        return {START: 0, END: trials}
    return {START: 0, MIDDLE: trials // 2, END: trials}


def place_of(key: SessionKey, cell: Cell, placer: Placer) -> Placement:
    """Where a session of this key runs.

    Raises:
        PlanError: the cell has no place here.
    """
    place = placer.slot(key.slot) if key.gpus == 1 else placer.of(cell)
    if isinstance(place, str):
        raise PlanError(f"cell {cell.cell_id} cannot run here: {place}")
    return place


def layout_of(cell: Cell) -> str:
    """Nodes, workers on each and placement as one word; empty where a cell says nothing of them.

    >>> layout_of(Cell.model_validate({"gpus": 4, "nodes": 2, "gpus_per_node": 2, "workload": {"kind": "collectives"}}))
    '2x2'
    """
    counts = "" if cell.nodes is None else f"{cell.nodes}x{cell.gpus_per_node}"
    return " ".join(word for word in (counts, cell.placement if cell.placement != "packed" else "") if word)


def session_key(cell: Cell, slot: int, device: str) -> SessionKey:
    """What a trial of this cell needs of its process."""
    mode = getattr(cell.workload, "compile", "off")
    return SessionKey(
        gpus=cell.gpus,
        slot=slot,
        launcher=cell.launcher,
        workload=cell.workload.identity,
        p2p=cell.nccl.p2p,
        compile=mode if device == "cuda" and mode in CUDA_GRAPH_MODES else "",
        layout=layout_of(cell),
    )


def repr_of_key(keyed: tuple[SessionKey, bool]) -> tuple[Any, ...]:
    """Sorting order of sessions in the first visit: baselines first, then by GPU count."""
    key, alone = keyed
    return key.gpus, key.layout, key.slot, key.workload, key.launcher, key.p2p, key.compile, alone


def _group(sweep: Sweep, cells: Mapping[str, Cell], device: str, slots: int) -> Groups:
    groups: Groups = {}
    for canonical, cell in cells.items():
        entry = Entry(cell=cell, canonical=canonical, axes={path: cell.at(path) for path in sweep.axes})
        for slot in range(slots if cell.gpus == 1 else 1):
            key = session_key(cell, slot, device)
            groups.setdefault((key, cell.isolation == "process"), []).append(entry)
    return groups


def _visit(
    sweep: Sweep, key: SessionKey, alone: bool, entries: list[Entry], visit: int, placer: Placer
) -> Iterator[PlannedSession]:
    session_id = _session_id(key, visit)
    place = place_of(key, entries[0].cell, placer)
    trials = [_trial(entry, visit, repeat, key.slot) for entry, repeat in _sequence(sweep, session_id, entries)]
    if not alone:
        if sweep.sentinels == "auto":
            _insert_sentinels(trials, sweep, entries, visit, key.slot)
        yield PlannedSession(session_id=session_id, key=key, placement=place, visit=visit, trials=tuple(trials))
        return
    for trial in trials:
        own = replace(key, alone=trial.trial_id)
        own_id = _session_id(own, visit)
        yield PlannedSession(session_id=own_id, key=own, placement=place, visit=visit, trials=(trial,))


def _sequence(sweep: Sweep, session_id: str, entries: list[Entry]) -> list[tuple[Entry, int]]:
    """Cells and repeats of one session in the order they run."""
    rounds = range(1, sweep.repeats + 1)
    if sweep.order == "as_written":
        return [(entry, repeat) for repeat in rounds for entry in entries]
    # Sorted first, so that the order of keys in the file changes nothing.
    entries = sorted(entries, key=lambda entry: entry.canonical)
    chance = random.Random(f"{sweep.sweep_id}|{session_id}")  # noqa: S311 - an order of trials, not a secret
    if sweep.order == "random":
        return chance.sample([(entry, repeat) for repeat in rounds for entry in entries], len(entries) * len(rounds))
    return [(entry, repeat) for repeat in rounds for entry in chance.sample(entries, len(entries))]


def _insert_sentinels(trials: list[PlannedTrial], sweep: Sweep, entries: list[Entry], visit: int, slot: int) -> None:
    """Put the sentinels of a warm session between its trials."""
    places = sentinel_places(len(trials))
    if not places:
        return
    entry = _sentinel_entry(sweep, entries)
    for repeat, before in reversed(places.items()):  # from the end, so that earlier places stay where they are
        trials.insert(before, _trial(entry, visit, repeat, slot, SENTINEL))


def _sentinel_entry(sweep: Sweep, entries: list[Entry]) -> Entry:
    """The cell that a session's sentinels measure, the same in every visit and for every order of the file's keys.

    Of the cells with the fewest communication settings off their defaults (none, where the session has a default cell),
    the one whose values come first in the axes, axes by name; weak before strong where that is all they differ in.
    """
    forced = [_forced_settings(entry.cell) for entry in entries]
    fewest = min(forced)
    closest = [entry for entry, count in zip(entries, forced, strict=True) if count == fewest]
    places = [
        (path, {value: sweep.axes[path].index(value) for value in sweep.axes[path]}) for path in sorted(sweep.axes)
    ]
    return min(closest, key=lambda entry: [place.get(entry.axes[path], len(place)) for path, place in places])


def _forced_settings(cell: Cell) -> int:
    """How many communication settings of a cell are not left to NCCL and DDP."""
    return sum(
        getattr(section, name) != getattr(default, name)
        for section, default in ((cell.nccl, NCCL), (cell.ddp, DDP))
        for name in type(section).model_fields
    )


def _trial(entry: Entry, visit: int, repeat: int, slot: int, stage: Stage = "sweep") -> PlannedTrial:
    return PlannedTrial(
        trial=Trial(cell=entry.cell, visit=visit, repeat=repeat, slot=slot, stage=stage),
        trial_id=trial_id_of(entry.canonical, visit, repeat, slot, stage),
        axes=entry.axes,
    )


def _session_id(key: SessionKey, visit: int) -> str:
    """Short and stable name: GPU count, GPU of a baseline, hash of the key (or the trial that stands alone), visit."""
    slot = f"s{key.slot}" if key.slot else ""
    return f"g{key.gpus}{slot}-{key.alone or content_id(repr(key))[:8]}-v{visit}"
