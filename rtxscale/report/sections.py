"""What stands where in a report: the answer, its key numbers, and the sections with their charts and tables, as data.

Nothing is laid out here; that is `page.html`. To add a section, add a `Part`. Called by `page`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from rtxscale.analysis.conclusions import Conclusions
from rtxscale.report.charts.figure import Figure, shape_of
from rtxscale.report.charts.figures import figures
from rtxscale.report.charts.theme import PAGE, SHAPES
from rtxscale.report.dossier.unknowns import not_measured, unknown_table
from rtxscale.report.key_numbers import key_numbers
from rtxscale.report.numbers import short, worker_word
from rtxscale.report.tables.budget import budget_table
from rtxscale.report.tables.card_errors import card_errors_table
from rtxscale.report.tables.conclusions import (
    Table,
    bandwidth_tables,
    best_table,
    cells_table,
    confirmed_table,
    drift_table,
    effects_table,
    outcomes_table,
    scaling_tables,
    scaling_words,
)
from rtxscale.report.tables.evidence import (
    attestation_table,
    attestation_words,
    environment_table,
    environment_words,
    method,
    profile_words,
)
from rtxscale.report.tables.findings import findings_table, findings_words, tool_texts
from rtxscale.report.tables.meaning import cost_table, meaning_tables, sanity_words
from rtxscale.report.tables.memory import memory_table
from rtxscale.report.tables.time_to_target import target_table
from rtxscale.report.trial_counts import trial_counts
from rtxscale.report.trial_evidence import TrialEvidence, trial_evidence
from rtxscale.results.outcomes import SIMULATED
from rtxscale.results.read import Run
from rtxscale.spec.declare import Declaration

CELLS = 200
"""Most cells listed on the page."""
SENTENCE, BADGE, TEXT = 800, 60, 2000
"""Most characters of a sentence, a badge and a table cell; nobody reads more, and somebody may put a log there."""
REMARKS = 5
"""Remarks that are read at once; the others open on demand."""
LONG = 12
"""Tables with more rows open on demand."""
OPEN = frozenset({"scaling", "best", "outcomes", "memory", "drift"})
"""Sections whose tables are part of the reading, also beside a chart."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A section: its anchor, which is also the section of its figures, its title and its tables."""

    key: str
    title: str
    tables: Sequence[Table | None] = ()
    lead: str = ""
    """A sentence above them, for sections whose tables open on demand."""


def content(run: Run, conclusions: Conclusions, declaration: Declaration) -> dict[str, Any]:
    """Everything that the template shows of a run."""
    trials = run.frame("trials").select("device_names", "profile", "cell_json", "source").collect()
    workers = worker_word(conclusions.device)
    counts = trial_counts(run)
    remarks = [short(remark, SENTENCE) for remark in conclusions.remarks if remark]
    return {
        "run_id": run.run_id,
        "sweep_name": run.manifest.get("sweep_name") or run.run_id,
        "question": run.manifest.get("question") or "",
        "headline": short(conclusions.headline, SENTENCE),
        "key_numbers": key_numbers(conclusions, workers, counts),
        "remarks": remarks[:REMARKS],
        "more_remarks": remarks[REMARKS:],
        "badges": [*badges(trials), *([("incomplete run", "warning")] if counts.complete is False else [])],
        "sections": list(_sections(run, conclusions, workers, declaration)),
        "trials": _shortened_trials(trial_evidence(run, conclusions)),
        "method": method(run, counts),
        "tool_texts": tool_texts(run),
        "sweep_text": run.sweep_text,
    }


def badges(trials: pl.DataFrame) -> list[tuple[str, str]]:
    """Words and class: the hardware, and what keeps the numbers from being published."""
    found = [
        (short(str(name), BADGE), "")
        for name in trials["device_names"].explode().drop_nulls().unique(maintain_order=True)[:3]
    ]
    if (trials["source"] == SIMULATED).any():
        found.insert(0, ("simulated: not a measurement", "warning"))
    profile = profile_words(trials)
    if "not publishable" in profile:
        found.append((f"{profile.split(':')[0]} profile: not publishable", "warning"))
    return found


def _parts(run: Run, conclusions: Conclusions, workers: str, declaration: Declaration) -> Iterator[Part]:
    best = (best_table(conclusions, workers), confirmed_table(conclusions, workers))
    scaling = list(scaling_tables(conclusions, workers))
    yield Part(key="scaling", title="Scaling", tables=scaling, lead=scaling_words(workers) if scaling else "")
    yield Part(key="best", title="Best cells", tables=best)
    yield Part(key="budget", title="Loss budget", tables=[budget_table(conclusions, workers)])
    yield Part(key="knobs", title="Settings", tables=[effects_table(conclusions, workers)])
    yield Part(key="targets", title="Targets", tables=[target_table(conclusions, workers)])
    yield Part(key="bandwidth", title="Bandwidth", tables=list(bandwidth_tables(conclusions, workers)))
    yield Part(key="steady", title="Steady state")
    yield Part(key="telemetry", title="Temperature, clocks and power")
    yield Part(key="memory", title="GPU memory", tables=[memory_table(run, conclusions, workers)])
    yield Part(key="energy", title="Energy and cost", tables=[cost_table(conclusions, workers)])
    meaning = [table for table in meaning_tables(conclusions, workers) if table.key != "cost"]
    yield Part(key="meaning", title="What it means", tables=meaning, lead=sanity_words(conclusions.sanity))
    yield Part(key="drift", title="Drift within sessions", tables=[drift_table(conclusions, workers)])
    yield Part(key="outcomes", title="Outcomes", tables=[outcomes_table(conclusions), card_errors_table(run)])
    yield Part(key="attestation", title="Attestation", tables=[attestation_table(run)], lead=attestation_words(run))
    yield Part(key="topology", title="Topology")
    findings = findings_table(run)
    yield Part(key="doctor", title="Doctor", tables=[findings], lead=findings_words(findings))
    yield Part(key="environment", title="Environment", tables=[environment_table(run)], lead=environment_words(run))
    unknown = unknown_table(run, conclusions, declaration)
    yield Part(key="unknown", title="Unknown", tables=[unknown], lead=not_measured(conclusions))
    yield Part(key="cells", title="All cells", tables=[cells_table(conclusions, workers, CELLS)])


def _sections(run: Run, conclusions: Conclusions, workers: str, declaration: Declaration) -> Iterator[dict[str, Any]]:
    """The parts of the page in order; a part without any content is left out."""
    drawn = figures(run, conclusions)
    for part in _parts(run, conclusions, workers, declaration):
        shown = [_figure(figure) for figure in drawn if figure.section == part.key]
        known = [_shortened(table) for table in part.tables if table is not None and table.rows]
        if shown or known:
            folded = [_is_folded(table, part.key, beside_chart=bool(shown)) for table in known]
            yield {
                "key": part.key,
                "title": part.title,
                "lead": short(part.lead, SENTENCE),
                "figures": shown,
                "tables": list(zip(known, folded, strict=True)),
            }


def _is_folded(table: Table, key: str, *, beside_chart: bool) -> bool:
    """Whether a table opens on demand: it is long, or stands beside the chart that shows the same."""
    return len(table.rows) > LONG or (beside_chart and key not in OPEN)


def _shortened(table: Table) -> Table:
    return replace(table, rows=[tuple(short(text, TEXT) for text in row) for row in table.rows])


def _shortened_trials(trials: TrialEvidence | None) -> TrialEvidence | None:
    if trials is None:
        return None
    rows = tuple(replace(row, texts=tuple(short(text, TEXT) for text in row.texts)) for row in trials.rows)
    return replace(trials, rows=rows)


def _figure(figure: Figure) -> dict[str, Any]:
    return {
        "key": figure.key,
        "title": figure.title,
        "caption": figure.caption,
        "wide": figure.wide,
        "legend": [_legend_entry(index, label, figure.shaped) for index, label in enumerate(figure.labels)],
        "spec": figure.spec(),
    }


def _legend_entry(index: int, label: str, shaped: bool) -> dict[str, str]:
    path = SHAPES[shape_of(index) if shaped else "circle"]
    return {"label": label, "path": path, "color": PAGE.series[index % len(PAGE.series)]}
