"""The fields of a sweep file by dotted path: their type, what they expect, and whether they can be an axis.

Derived from the pydantic models, so a new field is known here at once. Pure; called by `spec.checks` and `spec.load`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from rtxscale.spec.cell import Cell
from rtxscale.spec.phrases import expected_value
from rtxscale.spec.script import Options
from rtxscale.spec.section import Section
from rtxscale.spec.sweep import Sweep
from rtxscale.spec.workload import Workload

KINDS: dict[str, type[Section]] = {
    get_args(model.model_fields["kind"].annotation)[0]: model for model in get_args(get_args(Workload)[0])
}
"""Workload models by their `kind`."""

SHAPES = {
    "axes": "a mapping from dotted paths to lists of values, such as gpus: [1, 2]",
    "zip": "a list of groups of axes, such as [[gpus, nccl.channels]]",
    "exclude": "a list of mappings from axis to value, such as [{gpus: 4, nccl.channels: 2}]",
    "workload.options": "a mapping from names of your own to text, numbers, true or false",
}
"""The fields whose type says less than an example."""

OPTION = FieldInfo(annotation=bool | int | float | str)
OPTIONS = "workload.options."
"""Below this path names are the user's own."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field: `section` when it holds fields itself, `listed` when its value is a list."""

    path: str
    info: FieldInfo
    section: type[Section] | None
    listed: bool

    @property
    def expected(self) -> str:
        """What the field holds, in words."""
        return SHAPES.get(self.path) or expected_value(self.info.annotation, self.info)

    @property
    def expected_item(self) -> str:
        """What each item of a list-valued field holds, in words."""
        lists = [member for member in _members(self.info.annotation) if get_origin(member) is tuple]
        return expected_value(get_args(lists[0])[0]) if lists else self.expected

    @cached_property
    def words(self) -> frozenset[str]:
        """The words that a field of fixed choices allows; empty for free text and numbers."""
        return frozenset(word for word in _literals(self.info.annotation) if isinstance(word, str))

    def accepts(self, value: Any) -> bool:
        """Whether a value is right for this field."""
        try:
            _adapter(self.info).validate_python(value)
        except ValidationError:
            return False
        return True


_ADAPTERS: dict[int, TypeAdapter[Any]] = {}


def _adapter(info: FieldInfo) -> TypeAdapter[Any]:
    if id(info) not in _ADAPTERS:
        annotated: Any = Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation
        _ADAPTERS[id(info)] = TypeAdapter(annotated, config=ConfigDict(strict=True))
    return _ADAPTERS[id(info)]


@cache
def sweep_fields(kind: str | None) -> dict[str, Field]:
    """Every field of a sweep file with this workload kind; of all kinds when the kind is not known."""
    found = {field.path: field for field in _walk(Sweep, "")}
    models = [KINDS[kind]] if kind in KINDS else list(KINDS.values())
    for model in models:
        found.update({field.path: field for field in _walk(model, "workload.")})
    return found


@cache
def axis_paths(kind: str | None) -> tuple[str, ...]:
    """Dotted paths that can be an axis: the single values of a cell, except the workload's kind."""
    return tuple(
        path
        for path, field in sweep_fields(kind).items()
        if path.partition(".")[0] in Cell.model_fields
        and field.section is None
        and not field.listed
        and path not in ("workload", "workload.kind")
    )


def axis_field(path: str, kind: str | None) -> Field | None:
    """The field that an axis of this path is on, one of the user's own options included; None where there is none."""
    if path in axis_paths(kind):
        return sweep_fields(kind)[path]
    free = f"{OPTIONS[:-1]}" in sweep_fields(kind) and is_option(path.removeprefix(OPTIONS))
    return Field(path=path, info=OPTION, section=None, listed=False) if free and path.startswith(OPTIONS) else None


def is_option(name: str) -> bool:
    """Whether an option may be called so: letters, digits and underscores, and no word that settings have a use for.

    >>> is_option("learning_rate"), is_option("a.b"), is_option("copy")
    (True, False, False)
    """
    return name.isidentifier() and not hasattr(Options, name)


def _walk(model: type[Section], prefix: str) -> Iterator[Field]:
    for name, info in model.model_fields.items():
        section = _section(info.annotation)
        yield Field(path=prefix + name, info=info, section=section, listed=_is_listed(info.annotation))
        if section is not None:
            yield from _walk(section, f"{prefix}{name}.")


def _members(annotation: Any) -> list[Any]:
    """The types that a union or annotated type is made of."""
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) in (Literal, tuple, dict) or not get_args(annotation):
        return [annotation]
    return [member for argument in get_args(annotation) for member in _members(argument)]


def _section(annotation: Any) -> type[Section] | None:
    sections = [item for item in _members(annotation) if isinstance(item, type) and issubclass(item, Section)]
    return sections[0] if len(sections) == 1 else None


def _is_listed(annotation: Any) -> bool:
    return any(get_origin(member) in (tuple, dict) for member in _members(annotation))


def _literals(annotation: Any) -> list[Any]:
    return [word for item in _members(annotation) if get_origin(item) is Literal for word in get_args(item)]
