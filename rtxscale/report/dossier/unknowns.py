"""What nobody has said or measured of a run, as a table: the lines of a dossier that would stay unknown.

A number is worth as much as its conditions, so a report names those that it lacks. Called by `sections`.
"""

from __future__ import annotations

from rtxscale.analysis.conclusions import Conclusions
from rtxscale.report.dossier.facts import facts_of
from rtxscale.report.dossier.lines import LINES
from rtxscale.report.dossier.record import answered, completeness
from rtxscale.report.tables.conclusions import Table
from rtxscale.results.read import Run
from rtxscale.spec.declare import Declaration

COULD_BE = {
    "the loss budget (`measure.loss_budget: true`)": "budget",
    "collectives (`collectives`)": "bandwidth",
    "drift within sessions (`sentinels: auto`)": "drift",
    "the selected cells once more (`rtxscale confirm RUN`)": "confirmed",
}
"""What a sweep of a trained model may measure besides, and how, by the table of the conclusions that would hold it."""
OF_DOSSIERS = frozenset({"record.files"})
"""Lines that only a dossier can answer."""
WEIGHTS = {3: "high", 2: "middle", 1: "low"}


def not_measured(conclusions: Conclusions) -> str:
    """What else could have been measured, and how; empty where nothing was trained here or nothing is missing."""
    if conclusions.imported or conclusions.cells["throughput_per_s"].drop_nulls().is_empty():
        return ""
    missing = [words for words, table in COULD_BE.items() if getattr(conclusions, table).is_empty()]
    return f"Not measured in this run: {', '.join(missing)}." if missing else ""


def unknown_table(run: Run, conclusions: Conclusions, declaration: Declaration) -> Table | None:
    """Every line without a value, the most useful first; None where nothing is missing."""
    facts = facts_of(run, conclusions, declaration)
    lines = [answered(line, facts) for line in LINES if line.id not in OF_DOSSIERS]
    score = completeness(lines)
    missing = {line["id"]: line for line in lines if line["id"] in set(score["missing"])}
    if not missing:
        return None
    rows = [
        (missing[name]["text"], WEIGHTS[missing[name]["weight"]], missing[name]["where"]) for name in score["missing"]
    ]
    return Table(
        key="unknown",
        title="What is unknown",
        columns=("what", "weight", "where it would be said"),
        rows=rows,
        note=(
            f"{score['with_value']} of {score['of']} lines that a publication needs have a value. "
            "`rtxscale dossier --template` prints the declaration to fill in; `--declare` uses it."
        ),
    )
