"""Two runs against each other, cell by cell: B relative to A, with Welch's interval, and everything that differs.

Cells are the same where their hash is: every setting is equal, so what differs is the environment. A cell that only one
run has is not compared; the nearest cell of the other run says why. The runs share no session, so nothing is paired;
the family of all compared numbers is corrected by Holm. Called by `cli.compare`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from rtxscale.analysis.bandwidth import POINT, right_rows
from rtxscale.analysis.cells import CellTable, cell_table, replicates
from rtxscale.analysis.conclusions import NEEDS_VISITS
from rtxscale.analysis.counted import counted_trials, of_stage, settled_trials
from rtxscale.analysis.differences import differences
from rtxscale.analysis.frames import empty, moments, over_visits, series, shaped
from rtxscale.analysis.settings import default_at, flatten
from rtxscale.analysis.two_cards import card_signals
from rtxscale.results.read import Run
from rtxscale.stats.compare import equivalence, holm, independent_ratio
from rtxscale.stats.rounding import size

SIGNIFICANT = 0.05
MARGINS = (0.01, 0.02, 0.05)
"""Two cells are equal within the first of these that TOST accepts."""
NEAR = 3
"""A cell of the other run that differs in more settings is not like this one."""
CANDIDATES = 500
"""Most cells of the other run that one cell is held against."""

COMPARED: dict[str, pl.DataType] = {
    "cell_id": pl.String(),
    "label": pl.String(),
    "gpus": pl.Int64(),
    "quantity": pl.String(),  # throughput, or the bus bandwidth of one collective and size
    "unit": pl.String(),
    "a": pl.Float64(),
    "b": pl.Float64(),
    "visits_a": pl.Int64(),
    "visits_b": pl.Int64(),
    "ratio": pl.Float64(),  # b / a; above 1 B is faster
    "ratio_low": pl.Float64(),
    "ratio_high": pl.Float64(),
    "p_holm": pl.Float64(),
    "verdict": pl.String(),  # faster, slower, equal within x %, not separable, not comparable: why
}
NOT_COMPARABLE = "not comparable"
NO_TRIAL = "no counted trial in"
NOT_SEPARABLE = "not separable"
KEY = ["cell_id", "operation", "size_bytes"]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """B against A: one row per cell and number, and the fields in which the runs differ."""

    run_a: str
    run_b: str
    cells: pl.DataFrame
    differences: pl.DataFrame
    signals: pl.DataFrame
    """Where two known cards are compared: what their documented facts say to the ratios, as in `sanity`."""

    @property
    def compared(self) -> pl.DataFrame:
        """The rows that have a ratio."""
        return self.cells.filter(pl.col("ratio").is_not_null())

    def below(self, bar: float) -> pl.DataFrame:
        """The compared rows in which B reaches less than `bar` times A."""
        return self.cells.filter(pl.col("ratio") < bar)

    @property
    def failed(self) -> pl.DataFrame:
        """The rows of cells that A has a number of, and that B tried without one."""
        tried = pl.col("verdict").str.starts_with(f"{NOT_COMPARABLE}: {NO_TRIAL} B")
        return self.cells.filter(tried & pl.col("a").is_not_null())

    def sentence(self) -> str:
        """How many could be compared and what came out."""
        compared = self.compared
        if not compared.height:
            return f"{self.run_b} against {self.run_a}: nothing could be compared."
        counts = (
            compared.group_by("verdict", maintain_order=True).len().sort("len", descending=True, maintain_order=True)
        )
        shown = ", ".join(f"{count} {verdict}" for verdict, count in counts.iter_rows())
        left = self.cells.height - compared.height
        rest = f"; {left} not comparable" if left else ""
        middle = float(np.exp(np.mean(np.log(compared["ratio"].to_numpy()))))
        return (
            f"{self.run_b} against {self.run_a}: of {compared.height} compared {shown}{rest}; "
            f"geometric mean of the ratios {middle:.3f}."
        )


@dataclass(frozen=True, kw_only=True)
class Side:
    """One run as it is compared: its cells, and the moments of every number by cell, operation and size."""

    cells: CellTable
    numbers: pl.DataFrame
    failures: dict[str, str]


def compare(a: Run, b: Run) -> Comparison:
    """Compare two runs; works on any two, also empty ones."""
    first, second = read_side(a), read_side(b)
    cells, settings = compared_cells(first, second), flat_settings(first.cells)
    signals = card_signals(cells, (first.cells.frame, second.cells.frame), settings)
    return Comparison(run_a=a.run_id, run_b=b.run_id, cells=cells, differences=differences(a, b), signals=signals)


def read_side(run: Run) -> Side:
    """Count a run's trials and average them per visit."""
    trials, collectives = (run.frame(name).collect() for name in ("trials", "collectives"))
    return side_of(trials, collectives, run.manifest["axes"])


def side_of(trials: pl.DataFrame, collectives: pl.DataFrame, axes: Mapping[str, Sequence[Any]]) -> Side:
    """One side of a comparison from its tables."""
    settled = settled_trials(of_stage(trials, "sweep"))
    counted = counted_trials(settled)
    measured = replicates(counted)
    cells = cell_table(counted, measured, axes)
    throughput = cells.frame.filter(pl.col("visits") > 0).select(
        "cell_id",
        pl.lit(None, pl.String).alias("operation"),
        pl.lit(None, pl.Int64).alias("size_bytes"),
        "log_mean",
        "log_var",
        "visits",
    )
    rows = right_rows(collectives, counted).filter(pl.col("busbw_gb_s") > 0)
    visits = rows.group_by([*POINT, "visit"], maintain_order=True).agg(pl.col("busbw_gb_s").mean().log().alias("log"))
    bandwidth = visits.group_by(POINT, maintain_order=True).agg(over_visits("log"))
    uncounted = settled.join(counted, on="trial_id", how="anti")
    ends = uncounted.group_by("cell_id").agg(pl.col("outcome").unique().sort().str.join(", ")).iter_rows()
    return Side(cells=cells, numbers=pl.concat([throughput, bandwidth.select(throughput.columns)]), failures=dict(ends))


def compared_cells(a: Side, b: Side) -> pl.DataFrame:
    """All numbers of either side, those of B relative to A; what has no partner says why."""
    facts = _facts(a).join(_facts(b), on="cell_id", how="full", suffix="_b", coalesce=True, nulls_equal=True)
    if not facts.height:
        return empty(COMPARED)
    both = a.numbers.join(b.numbers, on=KEY, suffix="_b", nulls_equal=True, how="full", coalesce=True)
    known = pl.concat([facts.select("cell_id"), both.select("cell_id")]).unique()
    rows = known.join(both, on="cell_id", how="left").join(facts, on="cell_id", how="left")
    why = _reasons(rows, a, b)
    rows = rows.with_columns(pl.Series("why", why, dtype=pl.String))
    return shaped(
        _tested(rows).with_columns(_words(rows)).sort("gpus", "label", "cell_id", "operation", "size_bytes"), COMPARED
    )


def _facts(side: Side) -> pl.DataFrame:
    return side.cells.frame.select("cell_id", "label", "gpus", "work_unit", "device")


def _tested(rows: pl.DataFrame) -> pl.DataFrame:
    """Ratios, intervals and verdicts; where there is a reason against comparing, none of them."""
    usable = rows["why"].is_null().to_numpy()
    below = moments(rows.select(log_mean="log_mean", log_var="log_var", visits=pl.col("visits").cast(pl.Float64)))
    above = moments(rows.select(log_mean="log_mean_b", log_var="log_var_b", visits=pl.col("visits_b").cast(pl.Float64)))
    test = independent_ratio(above, below)
    adjusted = holm(np.where(usable, test.p_value, np.nan))
    margin = np.full(len(usable), np.nan)
    for width in reversed(MARGINS):
        margin[equivalence(above, below, width).equivalent] = width
    columns = {"ratio": test.ratio, "ratio_low": test.low, "ratio_high": test.high, "margin": margin}
    rows = rows.with_columns(series(name, np.where(usable, values, np.nan)) for name, values in columns.items())
    return rows.with_columns(
        series("p_holm", adjusted), series("a", np.exp(below.mean)), series("b", np.exp(above.mean))
    ).with_columns(verdict=_verdict())


def _verdict() -> pl.Expr:
    """Equality within the narrowest margin is said even of a difference that is certain; wider ones only of none."""
    equal = pl.format("equal within {} %", (100 * pl.col("margin")).round(0).cast(pl.Int64))
    certain = pl.col("p_holm") < SIGNIFICANT
    return (
        pl.when(pl.col("why").is_not_null())
        .then(pl.format(NOT_COMPARABLE + ": {}", "why"))
        .when(pl.col("p_holm").is_null())
        .then(pl.lit(f"{NOT_SEPARABLE}: {NEEDS_VISITS} on both sides"))
        .when(pl.col("margin") == MARGINS[0])
        .then(equal)
        .when(certain & (pl.col("ratio") > 1))
        .then(pl.lit("faster"))
        .when(certain & (pl.col("ratio") < 1))
        .then(pl.lit("slower"))
        .when(pl.col("margin").is_not_null())
        .then(equal)
        .otherwise(pl.lit(NOT_SEPARABLE))
    )


def _words(rows: pl.DataFrame) -> list[pl.Expr]:
    sizes = {count: size(count) for count in rows["size_bytes"].drop_nulls().unique()}
    written = pl.col("size_bytes").replace_strict(sizes, default=None, return_dtype=pl.String)
    collective = pl.format("bus bandwidth, {} {}", pl.col("operation").str.replace_all("_", "-"), written)
    rate = pl.format("{}s/s", pl.coalesce("work_unit", "work_unit_b", pl.lit("unit")))
    no_number = pl.col("a").is_null() & pl.col("b").is_null()
    return [
        pl.coalesce("label", "label_b").alias("label"),
        pl.coalesce("gpus", "gpus_b").alias("gpus"),
        pl.when(pl.col("operation").is_not_null())
        .then(collective)
        .when(~no_number)
        .then(pl.lit("throughput"))
        .alias("quantity"),
        pl.when(pl.col("operation").is_not_null()).then(pl.lit("GB/s")).when(~no_number).then(rate).alias("unit"),
        pl.col("visits").alias("visits_a"),
    ]


def _reasons(rows: pl.DataFrame, a: Side, b: Side) -> list[str | None]:
    """Why a row is not compared; None for one that is."""
    flat_a, flat_b = flat_settings(a.cells), flat_settings(b.cells)
    return [_reason(row, (a, flat_a), (b, flat_b)) for row in rows.iter_rows(named=True)]


Known = tuple[Side, dict[str, dict[str, str]]]


def _reason(row: Mapping[str, Any], a: Known, b: Known) -> str | None:
    cell_id, present = row["cell_id"], (row["cell_id"] in a[1], row["cell_id"] in b[1])
    if present == (True, False):
        return _missing(cell_id, "A", "B", a, b)
    if present == (False, True):
        return _missing(cell_id, "B", "A", b, a)
    if row["device"] != row["device_b"]:
        return f"measured on {row['device']} in A, on {row['device_b']} in B"
    if row["work_unit"] != row["work_unit_b"]:
        return f"counted in {row['work_unit'] or 'nothing'} in A, in {row['work_unit_b'] or 'nothing'} in B"
    if row["log_mean"] is None and row["log_mean_b"] is None:
        return "neither run has a number of it"
    if row["log_mean"] is None or row["log_mean_b"] is None:
        return f"only {'B' if row['log_mean'] is None else 'A'} has a number of it"
    return None


def _missing(cell_id: str, here: str, there: str, has: Known, lacks: Known) -> str:
    """Why the other run has no such cell: it failed there, or a near one differs in a few settings."""
    if cell_id in lacks[0].failures:
        return f"{NO_TRIAL} {there} ({lacks[0].failures[cell_id]})"
    own = has[1][cell_id]
    near = _nearest(own, lacks[1].values())
    if near is None:
        return f"only in {here}; {there} has no cell like it"
    return f"only in {here}; the nearest in {there} differs in {near}"


def _nearest(own: Mapping[str, str], others: Iterable[Mapping[str, str]]) -> str | None:
    """The settings in which the most similar cell of the same size and workload differs, in words."""
    best: list[str] | None = None
    alike = (other for other in others if other["gpus"] == own["gpus"])
    for _, other in zip(range(CANDIDATES), alike, strict=False):
        found = list(_changes(own, other))
        if len(found) <= NEAR and (best is None or len(found) < len(best)):
            best = found
    return None if not best else ", ".join(best)


def _changes(own: Mapping[str, str], other: Mapping[str, str]) -> Iterator[str]:
    kind = own.get("workload.kind", "vision")
    for path in sorted({*own, *other}):
        mine, theirs = (cell.get(path) or default_at(path, kind) or "none" for cell in (own, other))
        if mine != theirs:
            yield f"{path} ({mine}, {theirs})"


def flat_settings(cells: CellTable) -> dict[str, dict[str, str]]:
    """Cell id -> every setting that is not a default, by dotted path; `gpus` always."""
    found = {}
    for cell_id, cell_json, gpus in cells.frame.select("cell_id", "cell_json", "gpus").iter_rows():
        try:
            declared = dict(flatten(json.loads(cell_json or "{}")))
        except (ValueError, AttributeError):
            declared = {}
        found[cell_id] = {**declared, "gpus": str(gpus)}
    return found
