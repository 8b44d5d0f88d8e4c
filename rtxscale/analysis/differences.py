"""In which fields two runs differ: environment, settings and how they were measured; field by field, both values.

Values that vary within a run are all named. Called by `analysis.compare`.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from rtxscale.analysis.frames import shaped
from rtxscale.results.read import Run
from rtxscale.spec.cell import as_text

DIFFERENCES: dict[str, pl.DataType] = {
    "part": pl.String(),  # environment, sweep or measurement
    "field": pl.String(),
    "a": pl.String(),
    "b": pl.String(),
}
UNRECORDED = "not recorded"
MEASURED = (
    *("workload", "study", "precision", "compile", "isolation", "launcher", "profile", "gpus", "batch_per_gpu"),
    *("global_batch", "device", "device_names", "nodes", "threads"),
)
"""Columns of `trials` that say what was measured and how."""

Fields = Mapping[tuple[str, str], str]


def differences(a: Run, b: Run) -> pl.DataFrame:
    """Every field in which the runs differ, environment first."""
    first, second = fields_of(a), fields_of(b)
    rows = [
        {
            "part": part,
            "field": name,
            "a": first.get((part, name), UNRECORDED),
            "b": second.get((part, name), UNRECORDED),
        }
        for part, name in dict.fromkeys([*first, *second])
    ]
    frame = shaped(pl.DataFrame(rows, schema=DIFFERENCES), DIFFERENCES)
    return frame.filter(pl.col("a") != pl.col("b"))


def fields_of(run: Run) -> dict[tuple[str, str], str]:
    """Part and name -> value, all values of a run joined, of everything that may differ."""
    fields = _environment(run)
    for name in ("sweep_name", "question", "study"):
        fields["sweep", name] = str(run.manifest.get(name) or UNRECORDED)
    for axis, values in run.manifest["axes"].items():
        fields["sweep", f"axes.{axis}"] = ", ".join(as_text(value) for value in values)
    trials = run.frame("trials").select(MEASURED).collect()
    for name in MEASURED:
        column = trials[name].explode() if trials.schema[name] == pl.List else trials[name]
        values = sorted(column.drop_nulls().unique().to_list())
        fields["measurement", name] = ", ".join(str(value) for value in values) or UNRECORDED
    return fields


def _environment(run: Run) -> dict[tuple[str, str], str]:
    rows = (
        run.frame("environment")
        .filter(pl.col("subject").fill_null("") != "member")  # a node as data: said by the other rows already
        .select("subject", "name", "value")
        .unique()
        .sort("subject", "name", "value")
        .group_by("subject", "name", maintain_order=True)
        .agg(pl.col("value").fill_null("unknown").str.join(", "))
        .collect()
    )
    return {("environment", f"{subject}.{name}"): value for subject, name, value in rows.iter_rows()}
