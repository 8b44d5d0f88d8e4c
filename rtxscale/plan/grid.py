"""The points of a sweep's grid: axes multiplied out, zipped groups together, excluded points left out.

A point maps dotted paths to values. Nothing is judged here; `plan.resolve` makes cells of points. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from rtxscale.spec.sweep import COMMUNICATION_AXES, Sweep

Point = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Points to try, in the order of the file; the default points (communication on auto) come after the others."""

    points: tuple[Point, ...]
    defaults: tuple[Point, ...]
    excluded: int
    """Points left out by the sweep's own rules."""


def make_grid(sweep: Sweep) -> Grid:
    """Every point that the axes span, and the default point of each combination of the other axes.

    A default point stays unless a rule names none of the communication axes: the comparison needs it.
    """
    points = list(_product(sweep))
    kept = tuple(point for point in points if not any(_matches(rule, point) for rule in sweep.exclude))
    elsewhere = [rule for rule in sweep.exclude if not any(is_communication(path) for path in rule)]
    others = [path for path in sweep.axes if not is_communication(path)]
    defaults: dict[tuple[Any, ...], Point] = {}
    for point in points:
        values = tuple(point[path] for path in others)
        if values not in defaults and not any(_matches(rule, point) for rule in elsewhere):
            defaults[values] = dict(zip(others, values, strict=True))
    return Grid(points=kept, defaults=tuple(defaults.values()), excluded=len(points) - len(kept))


def is_communication(path: str) -> bool:
    """Whether an axis is a setting of the communication.

    >>> is_communication("nccl.channels"), is_communication("gpus")
    (True, False)
    """
    return path.startswith(COMMUNICATION_AXES)


def _product(sweep: Sweep) -> Iterator[Point]:
    group_of = {name: group for group in sweep.zip for name in group}
    groups = list(dict.fromkeys(tuple(group_of.get(name, (name,))) for name in sweep.axes))
    steps = [list(zip(*(sweep.axes[name] for name in group), strict=True)) for group in groups]
    names = [name for group in groups for name in group]
    for combination in product(*steps):
        yield dict(zip(names, (value for values in combination for value in values), strict=True))


def _matches(rule: dict[str, Any], point: Point) -> bool:
    return all(path in point and point[path] == value for path, value in rule.items())
