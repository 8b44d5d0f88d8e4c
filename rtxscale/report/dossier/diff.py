"""What differs between two dossiers: settings, environment and method, field by field.

Results are left out: `rtxscale compare` sets them side by side. Pure, from the data of two dossiers and their sweep and
lock files; called by `cli.dossier`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rtxscale.errors import BadInput, SpecError
from rtxscale.report.dossier.lines import LINES
from rtxscale.report.dossier.members import Opened
from rtxscale.report.dossier.pack import LOCK, SWEEP, TABLE_FOLDER
from rtxscale.report.dossier.verify import TRIALS, digest_of, read_dossier
from rtxscale.spec.declare import UNKNOWN
from rtxscale.spec.flat import ABSENT, flat, value_text
from rtxscale.spec.load import parse_sweep
from rtxscale.spec.sweep import Sweep

RESULTS = ("results", "sanity", "record")
"""Parts that follow from what was measured; how the trials ended is one as well."""
FOLLOWS = frozenset(
    {"method.warmup", "method.load", "method.steady", "method.slopes", "method.window", "method.outcomes"}
    | {"conditions.temperature", "conditions.memory_temperature", "conditions.fan", "conditions.throttling"}
    | {"conditions.power_cap", "conditions.clock"}
)
"""Lines of other parts that are measured anew in each run, and so never the same twice."""
MEASURED_ENDS = {
    "method.criterion": re.compile(r"(^|; )([\w ]+ not readable in \d|recorded for example: ).*", re.DOTALL)
}
"""Lines whose end is measured anew in each run: what stands before it is compared."""


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
    fields = _identity if unread_sweeps(a, b) else _settings
    return list(_differences(*({**_lines(one), **fields(one), **_packages(one)} for one in (a, b))))


def unread_sweeps(a: Opened, b: Opened) -> list[Opened]:
    """Those whose sweep this rtxscale cannot read: then no setting is compared, but the identities of both sweeps."""
    return [one for one in (a, b) if _sweep(one) is None]


def same_tables(a: Opened, b: Opened) -> bool:
    """Whether both hold the same results: every table there and equal, byte by byte, as its SHA-256 says."""
    tables = _tables(a)
    return (
        TRIALS in tables
        and tables == _tables(b)
        and all((digest := digest_of(a, name)) != "" and digest == digest_of(b, name) for name in tables)
    )


def _tables(dossier: Opened) -> dict[str, int]:
    """Its tables and their sizes."""
    return {name: size for name, size in dossier.sizes.items() if name.startswith(f"{TABLE_FOLDER}/")}


def _lines(dossier: Opened) -> dict[str, str]:
    known = {
        line["id"]: _without_measured(line["id"], value_text(line["value"]))
        for line in _listed(read_dossier(dossier).get("lines"))
        if isinstance(line, dict) and isinstance(line.get("id"), str) and "value" in line
    }
    compared = [line.id for line in LINES if line.part not in RESULTS and line.id not in FOLLOWS]
    return {name: known[name] for name in compared if name in known}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _without_measured(name: str, text: str) -> str:
    r"""A line's value without its measured end.

    >>> _without_measured("method.criterion", "within 5 %; temperature not readable in 3 of 8 trials; recorded for ...")
    'within 5 %'
    >>> _without_measured("platform.cooler", "recorded for example: air")
    'recorded for example: air'
    """
    end = MEASURED_ENDS.get(name)
    return text if end is None else end.sub("", text) or UNKNOWN


def _sweep(dossier: Opened) -> Sweep | None:
    try:
        return parse_sweep(dossier.text(SWEEP), SWEEP)
    except (SpecError, BadInput):
        return None


def _settings(dossier: Opened) -> dict[str, str]:
    """The sweep field by field."""
    sweep = _sweep(dossier)
    return {} if sweep is None else {f"sweep.{path}": value for path, value in flat(sweep.model_dump(mode="json"))}


def _identity(dossier: Opened) -> dict[str, str]:
    """What the run says that its sweep is."""
    run = read_dossier(dossier).get("run")
    return {"sweep": value_text(run.get("sweep_id") if isinstance(run, dict) else None)}


def _packages(dossier: Opened) -> dict[str, str]:
    rows = [line.partition("==") for line in dossier.text(LOCK).splitlines() if not line.startswith("#")]
    return {f"package {name}": version for name, _, version in rows if version}


def _differences(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[Difference]:
    for field in dict.fromkeys([*a, *b]):
        one, other = a.get(field, ABSENT), b.get(field, ABSENT)
        if one != other:
            yield Difference(field=field, a=one, b=other)
