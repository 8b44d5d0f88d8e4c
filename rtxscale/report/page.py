"""The report: one HTML file that opens offline, on a phone, in the dark and on paper.

Charts are embedded as JSON and drawn by the bundled chart library; every text is escaped by the template. A content
security policy forbids every request, so that no string from a run can reach the network. Called by `cli`.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import polars as pl

import rtxscale
from rtxscale.analysis.conclusions import Conclusions
from rtxscale.report.budget_tables import budget_table
from rtxscale.report.charts import figures
from rtxscale.report.evidence import attestation_table, environment_table, method, profile_words
from rtxscale.report.figure import Figure, shape_of
from rtxscale.report.meaning_tables import meaning_tables
from rtxscale.report.numbers import short, worker_word
from rtxscale.report.scripts import vega_bundle
from rtxscale.report.tables import (
    Table,
    bandwidth_tables,
    best_table,
    cells_table,
    confirmed_table,
    drift_table,
    effects_table,
    outcomes_table,
    scaling_tables,
)
from rtxscale.report.targets import check_file
from rtxscale.report.theme import DARK, LIGHT, PAGE, SHAPES, config, css_variables
from rtxscale.results.read import Run

CELLS = 200
"""Most cells listed on the page."""
SENTENCE, BADGE, TEXT = 800, 60, 2000
"""Most characters of a sentence, a badge and a table cell; nobody reads more, and somebody may put a log there."""


def write_report(run: Run, conclusions: Conclusions, destination: Path) -> Path:
    """Write the report whole or not at all; returns its absolute path.

    Raises:
        BadInput: something other than a regular file is there, or its directory is not.
        OSError: `destination` cannot be written.
    """
    destination = check_file(destination)
    text = page(run, conclusions)
    handle, name = tempfile.mkstemp(dir=destination.parent, prefix=f".{destination.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(destination)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return destination


def page(run: Run, conclusions: Conclusions) -> str:
    """The report as one HTML text."""
    here = files(__package__)
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["script_json"] = script_json
    template = environment.from_string(here.joinpath("page.html").read_text(encoding="utf-8"))
    return template.render(
        **_content(run, conclusions),
        css=here.joinpath("page.css").read_text(encoding="utf-8"),
        light=css_variables(LIGHT),
        dark=css_variables(DARK),
        chart_config={**config(PAGE), "legend": {"disable": True}},
        bundle=vega_bundle(),
        version=rtxscale.__version__,
    )


def script_json(value: Any) -> str:
    r"""Strict JSON that is safe between script tags: no sequence can end or open an element or a comment.

    >>> print(script_json("</script>"))
    "\u003c/script\u003e"
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _content(run: Run, conclusions: Conclusions) -> dict[str, Any]:
    trials = run.frame("trials").select("device_names", "profile", "cell_json").collect()
    workers = worker_word(conclusions.device)
    drawn = figures(run, conclusions)
    return {
        "run_id": run.run_id,
        "sweep_name": run.manifest.get("sweep_name") or run.run_id,
        "question": run.manifest.get("question") or "",
        "headline": short(conclusions.headline, SENTENCE),
        "remarks": [short(remark, SENTENCE) for remark in conclusions.remarks if remark],
        "badges": _badges(trials),
        "sections": _sections(run, conclusions, workers, drawn),
        "method": method(run),
        "sweep_text": run.sweep_text,
    }


def _badges(trials: pl.DataFrame) -> list[tuple[str, str]]:
    """Words and class: the hardware, and the profile where it is not for publication."""
    badges = [
        (short(str(name), BADGE), "")
        for name in trials["device_names"].explode().drop_nulls().unique(maintain_order=True)[:3]
    ]
    profile = profile_words(trials)
    if "not publishable" in profile:
        badges.append((f"{profile.split(':')[0]} profile: not publishable", "warning"))
    return badges


def _sections(run: Run, conclusions: Conclusions, workers: str, drawn: list[Figure]) -> list[dict[str, Any]]:
    """The parts of the page in order; a part without any content is left out."""
    parts: list[tuple[str, str, list[Table | None]]] = [
        ("scaling", "Scaling", list(scaling_tables(conclusions, workers))),
        ("best", "Best cells", [best_table(conclusions, workers), confirmed_table(conclusions, workers)]),
        ("knobs", "Settings", [effects_table(conclusions, workers)]),
        ("bandwidth", "Bandwidth", list(bandwidth_tables(conclusions, workers))),
        ("meaning", "What it means", list(meaning_tables(conclusions, workers))),
        ("budget", "Loss budget", [budget_table(conclusions, workers)]),
        ("drift", "Drift within sessions", [drift_table(conclusions, workers)]),
        ("outcomes", "Outcomes", [outcomes_table(conclusions)]),
        ("telemetry", "Telemetry", []),
        ("attestation", "Attestation", [attestation_table(run)]),
        ("environment", "Environment", [environment_table(run)]),
        ("cells", "All cells", [cells_table(conclusions, workers, CELLS)]),
    ]
    sections = []
    for key, title, tables in parts:
        shown = [_figure(figure) for figure in drawn if figure.section == key]
        known = [table for table in tables if table is not None and table.rows]
        if shown or known:
            sections.append(
                {"key": key, "title": title, "figures": shown, "tables": [_shortened(table) for table in known]}
            )
    return sections


def _shortened(table: Table) -> Table:
    return replace(table, rows=[tuple(short(text, TEXT) for text in row) for row in table.rows])


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
