"""What one line of a dossier is: a fact that a publication must hold, its requirement, and where its value comes from.

Data only; the lines themselves are in `dossier.machine_lines` and `dossier.run_lines`, which call it.
"""

from __future__ import annotations

from dataclasses import dataclass

PARTS = ("platform", "software", "workload", "distribution", "conditions", "method", "results", "sanity", "record")
KINDS = ("environment", "trials", "settings", "attested", "declared", "documented", "derived")


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a value is looked for: `kind` is one of `KINDS`, `key` the row, column, field, text or function."""

    kind: str
    key: str


@dataclass(frozen=True, kw_only=True)
class Line:
    """One fact; `weight` 3 means that a number is worth little without it, 1 that it completes the picture."""

    id: str
    part: str
    requirements: tuple[str, ...]
    text: str
    sources: tuple[Source, ...]
    weight: int
    applies: str = "always"
    """Which runs it is a question for; see `dossier.facts.APPLIES`."""


def line(name: str, requirements: str, weight: int, text: str, *sources: str, applies: str = "always") -> Line:
    """A line from shorthand: `part.name`, requirements with spaces between, sources as `kind:key`."""
    return Line(
        id=name,
        part=name.partition(".")[0],
        requirements=tuple(requirements.split()),
        text=text,
        sources=tuple(Source(kind=kind, key=key) for kind, _, key in (source.partition(":") for source in sources)),
        weight=weight,
        applies=applies,
    )
