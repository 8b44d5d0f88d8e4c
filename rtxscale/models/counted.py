"""Footprints that have been counted: those that come with rtxscale, and others that were counted for one question.

`footprints.jsonl` is what `python -m rtxscale.workloads.counting.footprint` prints; a test counts some of it again.
Pure but for reading that file. Callers: `models.training`, `plan`, and `cli.counting` for what that program prints.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from rtxscale.models.footprint import Footprint, Moment, Subject
from rtxscale.models.shapes import DecoderShape

TABLE = Path(__file__).with_name("footprints.jsonl")
KEY = ("kind", "model", "image_size")
"""Fields that a subject always names."""
MOMENT = ("fixed", "per_sample", "gradients")
"""What the three numbers of a moment are."""


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """Footprints by what they are of, why others could not be counted, and the versions of what was counted."""

    counts: Mapping[Subject, Footprint] = field(default_factory=dict)
    problems: Mapping[Subject, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    shapes: Mapping[str, DecoderShape] = field(default_factory=dict)
    """Decoders of somebody's own by the path at which a sweep names them: counted like those of a named size."""

    def find(self, subject: Subject) -> Footprint | None:
        """The footprint; if only another image size has been counted, that one with activations per pixel."""
        if subject in self.counts:
            return self.counts[subject]
        other = self._any_size.get(replace(subject, image_size=0))
        return None if other is None else self.counts[other].scaled((subject.image_size / other.image_size) ** 2)

    @cached_property
    def _any_size(self) -> dict[Subject, Subject]:
        return {replace(subject, image_size=0): subject for subject in self.counts}

    def joined(self, other: Catalogue) -> Catalogue:
        """Both; what is in both is the other's."""
        return Catalogue(
            counts={**self.counts, **other.counts},
            problems={**self.problems, **other.problems},
            versions=self.versions,
            shapes={**self.shapes, **other.shapes},
        )


@cache
def shipped() -> Catalogue:
    """What comes with rtxscale."""
    return read_catalogue(TABLE.read_text().splitlines())


def read_catalogue(lines: Iterable[str]) -> Catalogue:
    """The catalogue that lines of JSON hold: versions first, then a line for each subject.

    Raises:
        ValueError: they are not such lines.
    """
    counts, problems, versions = {}, {}, {}
    try:
        for line in lines:
            fields = json.loads(line)
            if "versions" in fields:
                versions.update(fields["versions"])
                continue
            subject = Subject(**fields["subject"])
            if "problem" in fields:
                problems[subject] = str(fields["problem"])
            else:
                counts[subject] = _footprint(fields["footprint"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"no line of counts: {error}") from error
    return Catalogue(counts=counts, problems=problems, versions=versions)


def _footprint(fields: dict[str, Any]) -> Footprint:
    moments = tuple(Moment(**dict(zip(MOMENT, numbers, strict=True))) for numbers in fields["moments"])
    return Footprint(**{**fields, "moments": moments})


def line_of(subject: Subject, found: Footprint | str) -> str:
    """The line of one subject: its footprint, or why it has none."""
    usual = asdict(Subject(kind=subject.kind, model=subject.model, image_size=0))
    named = {name: value for name, value in asdict(subject).items() if name in KEY or value != usual[name]}
    if isinstance(found, str):
        return json.dumps({"subject": named, "problem": found})
    numbers = asdict(found)
    moments = [[moment[name] for name in MOMENT] for moment in numbers["moments"]]
    return json.dumps({"subject": named, "footprint": {**numbers, "moments": moments}})
