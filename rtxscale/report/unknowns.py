"""What nobody has said or measured of a run, as a table: the lines of a dossier that would stay unknown.

A number is worth as much as its conditions, so a report names those that it lacks. Called by `sections`.
"""

from __future__ import annotations

from rtxscale.analysis.conclusions import Conclusions
from rtxscale.report.dossier import answered, completeness
from rtxscale.report.dossier_facts import facts_of
from rtxscale.report.dossier_lines import LINES
from rtxscale.report.tables import Table
from rtxscale.results.read import Run
from rtxscale.spec.declare import Declaration

WEIGHTS = {3: "high", 2: "middle", 1: "low"}


def unknown_table(run: Run, conclusions: Conclusions, declaration: Declaration) -> Table | None:
    """Every line without a value, the most useful first; None where nothing is missing."""
    facts = facts_of(run, conclusions, declaration)
    lines = [answered(line, facts) for line in LINES]
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
