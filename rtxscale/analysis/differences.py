"""In which fields two runs differ: environment, settings and how they were measured; field by field, both values.

Settings are those of the sweep files; where one cannot be read, those of both runs' cells. Values that vary within a
run are all named. Called by `analysis.compare`.
"""

from __future__ import annotations

import json

import polars as pl

from rtxscale.analysis.frames import shaped
from rtxscale.errors import SpecError
from rtxscale.results.read import Run
from rtxscale.spec.cell import Cell, as_text
from rtxscale.spec.flat import ABSENT, flat
from rtxscale.spec.load import parse_sweep

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

SWEEP = "sweep"
Fields = dict[tuple[str, str], str]


def differences(a: Run, b: Run) -> pl.DataFrame:
    """Every field in which the runs differ, environment first."""
    asked = [_asked(run) for run in (a, b)]
    settings = [_of_cells(run) for run in (a, b)] if None in asked else asked
    first, second = (
        {**_environment(run), **(told or {}), **_measured(run)} for run, told in zip((a, b), settings, strict=True)
    )
    rows = [
        {"part": part, "field": name, "a": _at(first, part, name), "b": _at(second, part, name)}
        for part, name in dict.fromkeys([*first, *second])
    ]
    frame = shaped(pl.DataFrame(rows, schema=DIFFERENCES), DIFFERENCES)
    return frame.filter(pl.col("a") != pl.col("b"))


def _at(fields: Fields, part: str, name: str) -> str:
    return fields.get((part, name), ABSENT if part == SWEEP else UNRECORDED)


def _asked(run: Run) -> Fields | None:
    """Every field of the sweep file, defaults included; None where this rtxscale cannot read it."""
    try:
        sweep = parse_sweep(run.sweep_text, "sweep.yaml")
    except SpecError:
        return None
    return {(SWEEP, path): text for path, text in flat(sweep.model_dump(mode="json"))}


def _of_cells(run: Run) -> Fields:
    """What the manifest says of the sweep, and every setting of the cells with all values that it has in them."""
    fields = {(SWEEP, name): str(run.manifest.get(name) or UNRECORDED) for name in ("sweep_name", "question", "study")}
    for axis, values in run.manifest["axes"].items():
        fields[SWEEP, f"axes.{axis}"] = ", ".join(as_text(value) for value in values)
    seen: dict[str, set[str]] = {}
    for text in run.frame("trials").select("cell_json").collect()["cell_json"].drop_nulls().unique():
        for path, value in _cell_fields(text):
            seen.setdefault(path, set()).add(value)
    return fields | {(SWEEP, path): ", ".join(sorted(values)) for path, values in seen.items()}


def _cell_fields(cell_json: str) -> list[tuple[str, str]]:
    """Every setting of a cell, defaults included; as it is written where it is none of ours."""
    try:
        return list(flat(Cell.model_validate_json(cell_json).model_dump(mode="json")))
    except ValueError:
        pass
    try:
        return list(flat(json.loads(cell_json)))
    except ValueError:
        return []


def _measured(run: Run) -> Fields:
    """How the trials were measured, all values of a run joined."""
    trials = run.frame("trials").select(MEASURED).collect()
    fields = {}
    for name in MEASURED:
        column = trials[name].explode() if trials.schema[name] == pl.List else trials[name]
        values = sorted(column.drop_nulls().unique().to_list())
        fields["measurement", name] = ", ".join(str(value) for value in values) or UNRECORDED
    return fields


def _environment(run: Run) -> Fields:
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
