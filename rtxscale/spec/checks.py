"""What pydantic cannot see: axes against fields, zip and exclude against axes, study and measure against their fields.

Works on the plain data of a document, valid or not, and adds its problems to it; looks at nothing outside the file.
Called by `spec.load`.
"""

from __future__ import annotations

from math import prod
from typing import Any

from pydantic import ValidationError

from rtxscale.spec.cell import Measure
from rtxscale.spec.document import Document, Path, shorten
from rtxscale.spec.fields import KINDS, Field, axis_field, axis_paths, sweep_fields
from rtxscale.spec.method import contradictions
from rtxscale.spec.phrases import alternatives, found_value, hint, nearest
from rtxscale.spec.section_checks import check_sections, key_line, workload_kind
from rtxscale.spec.sweep import Sweep

MAX_TRIALS = 100_000
"""Grid points times visits times repeats that a sweep may have: more is a slip, and would take months."""

BATCH_OF_STUDY = {"weak": ("batch_per_gpu",), "strong": ("global_batch",), "both": ("batch_per_gpu", "global_batch")}
BATCH_FIELDS = BATCH_OF_STUDY["both"]
SCALARS = (bool, int, float, str)


def check_document(document: Document) -> None:
    """Add every problem of axes, zip, exclude, study, single sections, measure and grid size."""
    check_axes(document)
    check_zip(document)
    check_exclude(document)
    check_study(document)
    check_sections(document)
    check_measure(document)
    check_size(document)


def _axes(document: Document) -> dict[str, Any]:
    axes = document.at(("axes",))
    return axes if isinstance(axes, dict) else {}


def check_axes(document: Document) -> None:
    """Each axis is the path of a single-valued field of the cell, with right, distinct values, and is not fixed too."""
    axes = document.at(("axes",))
    if axes == {} or (("axes",) in document.marks and axes is None):
        document.report(("axes",), "no axes", "at least one axis, such as gpus: [1, 2]")
    kind = workload_kind(document)
    for path, values in _axes(document).items():
        if document.full:
            return
        field = axis_field(path, kind)
        if field is None:
            _report_axis_path(document, path, values, kind)
            continue
        _check_values(document, path, values, field)
        _check_not_fixed(document, path)


def _report_axis_path(document: Document, path: str, values: Any, kind: str | None) -> None:
    place: Path = ("axes", path)
    line = key_line(document, place)
    fields = sweep_fields(kind)
    field = fields.get(path)
    if field is not None and field.section is None and path.partition(".")[0] in ("workload", "collectives", "gpus"):
        reason = "holds a list already" if field.listed else "is the same in the whole sweep"
        document.report(
            place, f"an axis on {path}", f"a field with a single value per cell: {path} {reason}", line=line
        )
    elif path == "workload" or (field is not None and field.section is not None):
        members = [name for name in axis_paths(kind) if name.startswith(f"{path}.")]
        expected = alternatives(members) if members else "a field with a single value per cell"
        document.report(place, f"an axis on the section {path}", expected, line=line)
    elif field is not None:
        expected = f"a field of the cell: {path} belongs to the sweep as a whole"
        document.report(place, f"an axis on {path}", expected, line=line)
    elif path in sweep_fields(None):
        document.report(place, f"{path}, which {kind} does not have", _axis_choice(path, kind), line=line)
    else:
        document.report(place, f"the axis {path}", _axis_choice(path, kind), line=line)


def _axis_choice(path: str, kind: str | None) -> str:
    close = nearest(path, list(axis_paths(kind)))
    return f"a field's dotted path; the nearest is {close}" if close else f"one of {', '.join(axis_paths(kind))}"


def _check_values(document: Document, path: str, values: Any, field: Field) -> None:
    place: Path = ("axes", path)
    if not isinstance(values, list) or not values:
        found = found_value(values, document.marks.get(place))
        document.report(place, found, f"a list with at least one value, each {field.expected}")
        return
    seen: set[Any] = set()
    for index, value in enumerate(values):
        mark = document.marks.get((*place, index))
        if value is None or not field.accepts(value):
            expected = field.expected + hint(value, mark, field.expected)
            document.report((*place, index), found_value(value, mark), expected)
        elif _data(value) in seen and not _is_zipped(document, path):
            document.report((*place, index), f"{found_value(value, mark)} again", "each value of an axis once")
        else:
            seen.add(_data(value))


def _is_zipped(document: Document, path: str) -> bool:
    groups = document.at(("zip",))
    return any(path in group for group in (groups if isinstance(groups, list) else []) if isinstance(group, list))


def _check_not_fixed(document: Document, path: str) -> None:
    if document.at(tuple(path.split("."))) is None:
        return
    where = document.line(tuple(path.split(".")))
    found = f"{path} both as an axis and fixed in line {where}"
    document.report(("axes", path), found, "one of the two", line=key_line(document, ("axes", path)))


def check_zip(document: Document) -> None:
    """Each group holds two or more axes of equal length; an axis is in one group only, a combination in it once."""
    axes = _axes(document)
    groups = document.at(("zip",))
    taken: dict[str, int] = {}
    for index, group in enumerate(groups if isinstance(groups, list) else []):
        names = [name for name in group if isinstance(name, str)] if isinstance(group, list) else []
        place: Path = ("zip", index)
        if isinstance(group, list) and len(group) < 2:
            document.report(place, f"a group of {len(group)}", "two or more axes that move together")
        for position, name in enumerate(names):
            _check_zipped(document, (*place, position), name, taken)
            taken.setdefault(name, index)
        lengths = {name: len(axes[name]) for name in names if isinstance(axes.get(name), list)}
        if len(set(lengths.values())) > 1:
            found = ", ".join(f"{name} with {count}" for name, count in lengths.items())
            document.report(place, found, "axes of equal length in a zip group")
        elif len(lengths) == len(set(names)) and names:
            _check_combinations(document, place, {name: axes[name] for name in names})


def _check_combinations(document: Document, place: Path, zipped: dict[str, list[Any]]) -> None:
    """Values of a zipped axis may repeat, as long as something else in the group differs."""
    seen: set[tuple[Any, ...]] = set()
    for values in zip(*zipped.values(), strict=True):
        combination = tuple(_data(value) if isinstance(value, SCALARS) else (False, repr(value)) for value in values)
        if combination in seen:
            found = ", ".join(f"{name}: {value}" for name, value in zip(zipped, values, strict=True))
            document.report(place, f"{found} again", "each combination of zipped values once")
            return
        seen.add(combination)


def _check_zipped(document: Document, place: Path, name: str, taken: dict[str, int]) -> None:
    if name not in _axes(document):
        document.report(place, found_value(name, document.marks.get(place)), _declared_axis(document, name))
    elif name in taken:
        document.report(place, f"{name} again (also in zip[{taken[name]}])", "an axis in one group, once")


def _declared_axis(document: Document, name: str) -> str:
    declared = list(_axes(document))
    close = nearest(name, declared)
    if close:
        return f"an axis of this sweep; the nearest is {close}"
    return f"an axis of this sweep: {alternatives(declared)}" if declared else "an axis of this sweep; it has none"


def check_exclude(document: Document) -> None:
    """Each rule names axes and values that these axes have."""
    rules = document.at(("exclude",))
    known = {name: _known_values(values) for name, values in _axes(document).items()}
    for index, rule in enumerate(rules if isinstance(rules, list) else []):
        if rule == {}:
            document.report(("exclude", index), "an empty rule", "at least one axis with the value to leave out")
        for name, value in (rule if isinstance(rule, dict) else {}).items():
            if not document.full:
                _check_excluded(document, ("exclude", index, name), value, known)


def _check_excluded(document: Document, place: Path, value: Any, known: dict[str, dict[Any, Any]]) -> None:
    name = str(place[-1])
    if name not in known:
        document.report(place, f"the axis {name}", _declared_axis(document, name), line=key_line(document, place))
    elif known[name] and (not isinstance(value, SCALARS) or _data(value) not in known[name]):
        values = shorten(alternatives([str(other) for other in known[name].values()]))
        document.report(place, found_value(value, document.marks.get(place)), f"a value of the axis: {values}")


def _known_values(values: Any) -> dict[Any, Any]:
    return {_data(value): value for value in values if isinstance(value, SCALARS)} if isinstance(values, list) else {}


def check_study(document: Document) -> None:
    """The batch field that the study holds constant is there, fixed or as an axis, and the other one is not."""
    study, kind = document.at(("study",)), workload_kind(document)
    if not isinstance(study, str) or study not in BATCH_OF_STUDY:
        return
    if kind is None or BATCH_FIELDS[0] not in KINDS[kind].model_fields:
        return
    needed = BATCH_OF_STUDY[study]
    for name in BATCH_FIELDS:
        fixed, axis = ("workload", name), ("axes", f"workload.{name}")
        given = document.at(fixed) is not None or document.at(axis) is not None
        if name in needed and not given:
            expected = f"workload.{name}, fixed or as an axis: what study: {study} holds constant"
            document.report(fixed, "nothing", expected, line=document.line(("workload",)))
        elif name not in needed and given:
            place: Path = fixed if document.at(fixed) is not None else axis
            expected = f"workload.{needed[0]} alone: study: {study} does not use {name} (study: both uses both)"
            document.report(place, f"workload.{name}", expected, line=key_line(document, place))


def check_measure(document: Document) -> None:
    """The measure's settings can hold together; with one of them on an axis, `plan.rules` looks at each cell."""
    given = document.at(("measure",))
    try:
        measure = Measure.model_validate(given)
    except ValidationError:
        return  # what is wrong in a single field is reported with that field
    axes = {path.removeprefix("measure.") for path in _axes(document) if path.startswith("measure.")}
    for one in contradictions(measure):
        if not axes.intersection((*one.fields, "profile")):
            blamed = next((name for name in one.fields if given.get(name) is not None), one.fields[0])
            document.report(("measure", blamed), one.found, one.expected)


def check_size(document: Document) -> None:
    """The grid is of a size that can be run."""
    axes = {name: len(values) for name, values in _axes(document).items() if isinstance(values, list)}
    groups = document.at(("zip",))
    for group in groups if isinstance(groups, list) else []:
        for name in group[1:] if isinstance(group, list) else []:
            axes.pop(name if isinstance(name, str) else "", None)
    points = prod(axes.values())
    given = {name: document.at((name,)) or Sweep.model_fields[name].default for name in ("visits", "repeats")}
    rounds = {name: number for name, number in given.items() if type(number) is int and number > 0}
    count = points * prod(rounds.values())
    if count > MAX_TRIALS:
        large = "axes" if points > MAX_TRIALS or not rounds else max(rounds, key=lambda name: rounds[name])
        expected = f"at most {MAX_TRIALS:,}: shorten axes, zip them, or visit less often"
        document.report((large,), f"a grid of {count:,} trials", expected)


def _data(value: Any) -> tuple[bool, Any]:
    """A scalar to compare as data: 25 and 25.0 are equal, 1 and true are not."""
    return isinstance(value, bool), value
