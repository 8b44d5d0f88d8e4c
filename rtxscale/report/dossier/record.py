"""The dossier of a run as data: every line that a publication must hold, answered, with who says so.

Pure: from `Facts` to plain JSON data in the shape of `dossier.schema.json`. Packed by `dossier.pack`, shown by
`dossier.markdown`, checked by `dossier.verify`; those call it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

import polars as pl

import rtxscale
from rtxscale.analysis.conclusions import Conclusions
from rtxscale.report.bounds import told_bounds
from rtxscale.report.dossier.derived import DERIVED
from rtxscale.report.dossier.facts import APPLIES, MEASURED, NOBODY, SOURCES, VALUE, Answer, Facts, not_applicable
from rtxscale.report.dossier.lines import LINES, Line, Source
from rtxscale.report.dossier.method import METHOD_NUMBERS
from rtxscale.report.dossier.results import NUMBERS
from rtxscale.report.dossier.workload import WORKLOADS
from rtxscale.report.numbers import plain
from rtxscale.results.outcomes import SIMULATED
from rtxscale.spec.declare import UNKNOWN

SCHEMA_VERSION = 3
"""Of `dossier.json`; bump it when a field's meaning changes or a line is added, so that older ones still verify."""
MARK = "dossier"
FUNCTIONS = {**DERIVED, **WORKLOADS, **METHOD_NUMBERS, **NUMBERS}
ASKED_OF_USER = {"price": "declare.yaml: price", "per_money": "declare.yaml: price"}
"""Derived lines that wait for the user, not for the run."""


def dossier_of(facts: Facts, *, written: datetime, redacted: bool, remarks: Sequence[str] = ()) -> dict[str, Any]:
    """The whole dossier; `written` is the only thing in it that the same run does not give again."""
    lines = [answered(line, facts) for line in LINES]
    return {
        "rtxscale": MARK,
        "schema_version": SCHEMA_VERSION,
        "written": written.isoformat(timespec="seconds"),
        "written_by": f"rtxscale {rtxscale.__version__}",
        "redacted": redacted,
        "run": facts.run.manifest,
        "remarks": list(remarks),
        "completeness": completeness(lines),
        "lines": lines,
        "conclusions": conclusions_data(facts.conclusions),
    }


def answered(line: Line, facts: Facts) -> dict[str, Any]:
    """A line with its value, its status, and who declared it; what others say differently is in `also`."""
    answers = [answer for source in line.sources if (answer := asked(source, facts)) is not None]
    first, *others = [answer for answer in answers if answer.status == VALUE] or answers or [_unanswered(line, facts)]
    also = [other for other in others if other.value != first.value and other.declared_by != first.declared_by]
    return {
        "id": line.id,
        "requirements": list(line.requirements),
        "text": line.text,
        "weight": line.weight,
        **_said(first),
        "also": [_said(other) for other in also],
    }


def asked(source: Source, facts: Facts) -> Answer | None:
    """What one source says; of a simulated run nothing is called measured but the host and its software."""
    answer = _said_by(source, facts)
    if facts.conclusions.device != SIMULATED or answer is None or answer.declared_by != MEASURED:
        return answer
    return answer if answer.where.startswith("environment") else replace(answer, declared_by=SIMULATED)


def _said_by(source: Source, facts: Facts) -> Answer | None:
    return FUNCTIONS[source.key](facts) if source.kind == "derived" else SOURCES[source.kind](facts, source.key)


def _unanswered(line: Line, facts: Facts) -> Answer:
    is_asked, why_not = APPLIES[line.applies]
    if not is_asked(facts):
        return not_applicable(why_not)
    return Answer(value=UNKNOWN, declared_by=NOBODY, where=", ".join(map(_place, line.sources)), status=UNKNOWN)


def _place(source: Source) -> str:
    """Where a value would have been."""
    if source.kind == "derived":
        return ASKED_OF_USER.get(source.key, "the run's tables")
    return f"declare.yaml: {source.key}" if source.kind == "declared" else f"{source.kind}: {source.key}"


def _said(answer: Answer) -> dict[str, str]:
    value = answer.value.strip() or UNKNOWN
    return {"status": answer.status, "value": value, "declared_by": answer.declared_by, "where": answer.where}


def completeness(lines: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """How many of the lines that apply have a value, and those that have none, the most useful first."""
    lines = list(lines)
    missing = sorted((line for line in lines if line["status"] == UNKNOWN), key=lambda line: -line["weight"])
    known = sum(line["status"] == VALUE for line in lines)
    return {
        "with_value": known,
        "of": known + len(missing),
        "not_applicable": len(lines) - known - len(missing),
        "missing": [line["id"] for line in missing],
    }


def conclusions_data(conclusions: Conclusions) -> dict[str, Any]:
    """All conclusions as JSON data; a number that cannot be concluded is null, as are bounds that say nothing."""
    values = {item.name: getattr(conclusions, item.name) for item in fields(conclusions)}
    return {name: _data(value) for name, value in values.items()}


def _data(value: Any) -> Any:
    if isinstance(value, pl.DataFrame):
        return [plain(row) for row in told_bounds(value).iter_rows(named=True)]
    return list(value) if isinstance(value, tuple) else value
