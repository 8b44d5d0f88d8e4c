"""What differs between two dossiers: settings, environment and method, field by field.

Results are left out: `rtxscale compare` sets them side by side. Pure, from the data of two dossiers and their sweep and
lock files; called by `cli.dossier`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rtxscale.errors import SpecError
from rtxscale.report.dossier.lines import LINES
from rtxscale.report.dossier.members import Opened
from rtxscale.report.dossier.pack import LOCK, SWEEP
from rtxscale.report.dossier.verify import read_dossier
from rtxscale.spec.load import parse_sweep

ABSENT = "not there"
RESULTS = ("results", "sanity", "record")
"""Parts that follow from what was measured; how the trials ended is one as well."""
FOLLOWS = frozenset(
    {"method.warmup", "method.load", "method.steady", "method.slopes", "method.window", "method.outcomes"}
    | {"conditions.temperature", "conditions.memory_temperature", "conditions.fan", "conditions.throttling"}
    | {"conditions.power_cap", "conditions.clock"}
)
"""Lines of other parts that are measured anew in each run, and so never the same twice."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One field that is not the same in both."""

    field: str
    a: str
    b: str


def differences(a: Opened, b: Opened) -> list[Difference]:
    """Every field that differs: lines first, then settings of the sweep, then packages.

    Raises:
        BadInput: one of them is no dossier, or is damaged.
    """
    return list(_differences(*(fields_of(one) for one in (a, b))))


def fields_of(dossier: Opened) -> dict[str, str]:
    """Every compared field of a dossier and its value, in order."""
    data = read_dossier(dossier)
    return {**_lines(data), **_settings(dossier, data), **_packages(dossier.text(LOCK))}


def _lines(data: Mapping[str, Any]) -> dict[str, str]:
    known = {
        line["id"]: _text(line["value"])
        for line in _listed(data.get("lines"))
        if isinstance(line, dict) and isinstance(line.get("id"), str) and "value" in line
    }
    compared = [line.id for line in LINES if line.part not in RESULTS and line.id not in FOLLOWS]
    return {name: known[name] for name in compared if name in known}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _settings(dossier: Opened, data: Mapping[str, Any]) -> dict[str, str]:
    """The sweep field by field; only its identity where this rtxscale cannot read it."""
    try:
        sweep = parse_sweep(dossier.text(SWEEP), SWEEP)
    except SpecError:
        run = data.get("run")
        return {"sweep": _text(run.get("sweep_id") if isinstance(run, dict) else None)}
    return {f"sweep.{path}": value for path, value in _flat(sweep.model_dump(mode="json"))}


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _flat(item, f"{path}.{name}" if path else str(name))
    else:
        yield path, ", ".join(map(_text, value)) if isinstance(value, list) and value else _text(value)


def _text(value: Any) -> str:
    """A value as the reader sees it; one that is null is not there.

    >>> _text(None), _text(True), _text(2.0)
    ('not there', 'true', '2.0')
    """
    if value is None:
        return ABSENT
    return str(value).lower() if isinstance(value, bool) else str(value)


def _packages(text: str) -> dict[str, str]:
    rows = [line.partition("==") for line in text.splitlines() if not line.startswith("#")]
    return {f"package {name}": version for name, _, version in rows if version}


def _differences(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[Difference]:
    for field in dict.fromkeys([*a, *b]):
        one, other = a.get(field, ABSENT), b.get(field, ABSENT)
        if one != other:
            yield Difference(field=field, a=one, b=other)
