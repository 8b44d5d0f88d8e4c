"""The loss budget: where the time of a step goes that N GPUs need beyond the ideal one, in seconds per step.

t_1 is the step of one GPU alone, unwrapped, with the same work per GPU; t_sync a step of N GPUs as they train; t_nosync
a step of the same ranks at once without communication, from the no_sync arm at the end of the trial. Means are over
ranks and steps, E[max] is over steps of the slowest rank of each:

    compute         = mean t_nosync - t_1             what N copies at once cost each other: power, heat, host, memory
    stragglers      = E[max t_nosync] - mean t_nosync what waiting for the slowest rank of each step would cost
    synchronisation = t_sync - E[max t_nosync]        exposed communication, and its interference with computing
    input           = t_sync - t_sync on resident data what waiting for the loader costs
    smaller local batch = t_1(B/N) - t_1(B)/N         strong curve only: what smaller batches cost one GPU alone

Their sum is t_sync - t_1 on a weak curve and t_sync - t_1(B)/N on a strong one, by construction. One rank that is
slower by d adds d/N to compute and d(N-1)/N to stragglers. A part can be negative, and is shown as it is. All but input
are of resident data: a cell that trains on a loader's takes them from the otherwise equal cell on resident data, where
the run has one. Replicates are sessions: intervals are Student's within a cell, Welch's where another comes in. Called
by `analysis.interpret`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from rtxscale.analysis.budget_steps import ATTEMPT, no_sync_times, slowest_ranks, with_arms
from rtxscale.analysis.cells import replicates
from rtxscale.analysis.conclusions import NEEDS_VISITS
from rtxscale.analysis.frames import empty, series, shaped
from rtxscale.analysis.settings import Settings
from rtxscale.analysis.tables import BUDGET
from rtxscale.spec.method import measure_of
from rtxscale.stats.differences import difference_interval, interval_of_mean
from rtxscale.stats.intervals import Interval, LogMoments

SUBJECT = "measure.loss_budget"
LOADING = tuple(f"workload.{name}" for name in ("data", "data_path", "loader_workers", "pin_memory"))
"""Settings in which a cell that trains on a loader's data differs from its like on resident data."""
SCRIPT = "script"
IDEAL, MEASURED = "ideal step", "measured step"
SMALLER, COMPUTE, STRAGGLERS = "smaller local batch", "compute", "stragglers"
SYNCHRONISATION, INPUT = "synchronisation", "input"
LOSSES = (SMALLER, COMPUTE, STRAGGLERS, SYNCHRONISATION, INPUT)
PARTS = (IDEAL, *LOSSES, MEASURED)
"""In the order of a waterfall: from the ideal step through what is lost to the measured one."""

LONGEST_S = 1e9
"""Thirty years: a step that is longer is no step."""
REMARKED = 4
"""Cells of the largest GPU count that are spoken of."""
RESIDENT = "not applicable: data is resident"
NO_RESIDENT = (
    "not available: no otherwise equal cell on resident data (workload.data: resident) has a budget; waiting for input "
    "is within the other parts"
)
UNTOLD = "not available: a script's waiting for input is not told apart"
OF_RESIDENT = "without input: of the otherwise equal cell on resident data"
NO_ARM = "not available: no steps without synchronisation were measured"
NO_LOCAL = "not available: no 1-GPU cell with the batch per GPU of this one; it is within compute"
WITH_LOCAL = "includes the smaller local batch"


def budget_table(
    efficiency: pl.DataFrame,
    cells: pl.DataFrame,
    counted: pl.DataFrame,
    attestation: pl.DataFrame,
    steps: pl.LazyFrame,
    settings: Mapping[str, Settings],
) -> pl.DataFrame:
    """Budgets of the cells that asked for one and have a 1-GPU base, per curve in which they are; parts in order.

    `efficiency` names each cell's base, `cells` is `CellTable.frame`, `settings` are those of its cells. The steps are
    read only where somebody asked.
    """
    points = _asked(efficiency, cells, counted)
    if not points.height:
        return empty(BUDGET)
    of_points = counted.join(points.select("cell_id").unique(), on="cell_id", how="semi")
    times = no_sync_times(steps, of_points)
    known = _with_moments(points, cells, counted, with_arms(of_points, times))
    reasons = _reasons(of_points, attestation)
    frame = known.join(reasons, on="cell_id", how="left", maintain_order="left")
    frame = frame.join(slowest_ranks(of_points, times), on="cell_id", how="left", maintain_order="left")
    frame = _without_input(frame, settings)
    frame = frame.filter(pl.col("ideal_mean").is_not_null() & pl.col("sync_mean").is_not_null())
    rows = pl.concat([_rows(frame, part) for part in PARTS])
    order = [pl.col("curve") == "strong", "gpus", ~pl.col("is_default"), "label", "cell_id", "place"]
    return shaped(rows.sort(order, maintain_order=True), BUDGET)


def budget_remarks(budget: pl.DataFrame) -> tuple[str, ...]:
    """Where most of the loss goes on the largest default cell of each curve, if that can be told from nothing."""
    return tuple(_remarks(budget))


def _remarks(budget: pl.DataFrame) -> Iterator[str]:
    for curve in ("weak", "strong"):
        rows = budget.filter((pl.col("curve") == curve) & pl.col("is_default"))
        largest = rows.filter(pl.col("gpus") == pl.col("gpus").max()).partition_by("cell_id", maintain_order=True)
        for cell in largest[:REMARKED]:
            name = f"{curve}, {cell['label'][0]}" if len(largest) > 1 else f"{curve}"
            yield from _remark({row["part"]: row for row in cell.iter_rows(named=True)}, name)


def _remark(found: Mapping[str, Mapping[str, Any]], name: str) -> Iterator[str]:
    """What one cell loses, if its largest part can be told from nothing."""
    lost_s = found[MEASURED]["seconds_per_step"] - found[IDEAL]["seconds_per_step"]
    known = [found[part] for part in LOSSES if found.get(part, {}).get("seconds_per_step") is not None]
    worst: Mapping[str, Any] = max(known, key=lambda row: row["seconds_per_step"], default={})
    if worst and lost_s > 0 and (worst["low"] or 0.0) > 0:
        yield (
            f"Loss budget at gpus {worst['gpus']}, {name}: a step takes {_ms(lost_s)} ms longer than ideal; the "
            f"largest part is {worst['part']}, {_ms(worst['seconds_per_step'])} ms "
            f"({_ms(worst['low'])} to {_ms(worst['high'])})."
        )


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}"


def _asked(efficiency: pl.DataFrame, cells: pl.DataFrame, counted: pl.DataFrame) -> pl.DataFrame:
    """Points of the efficiency table whose cell wanted a budget and whose base is one GPU, with their batch and key."""
    documents = counted.select("cell_id", "cell_json").unique("cell_id", maintain_order=True)
    measures = {cell_id: measure_of(text or "") for cell_id, text in documents.iter_rows()}
    asked = [cell_id for cell_id, measure in measures.items() if measure is not None and measure.loss_budget]
    points = efficiency.filter(
        pl.col("cell_id").is_in(asked) & (pl.col("gpus") > 1) & (pl.col("base_gpus") == 1)
    ).select("curve", "gpus", "cell_id", "is_default", "base_cell_id")
    named = cells.select("cell_id", "label", "rest_alone", "batch_per_gpu")
    return points.unique(["curve", "cell_id"], maintain_order=True).join(named, on="cell_id", maintain_order="left")


def _with_moments(
    points: pl.DataFrame, cells: pl.DataFrame, counted: pl.DataFrame, of_points: pl.DataFrame
) -> pl.DataFrame:
    """Mean, variance and number over sessions of everything that the parts are made from, beside each point."""
    single = cells.filter(pl.col("gpus") == 1)
    alone = counted.join(single.select("cell_id"), on="cell_id", how="semi")
    one = _moments(alone, "step_time_mean_s", "ideal")
    local = (
        single.sort("is_default", "cell_id", descending=[True, False])
        .unique(["rest_alone", "batch_per_gpu"], keep="first", maintain_order=True)
        .select("rest_alone", "batch_per_gpu", local_cell_id="cell_id")
    )
    frame = points.join(one, left_on="base_cell_id", right_on="cell_id", how="left", maintain_order="left")
    frame = frame.join(local, on=["rest_alone", "batch_per_gpu"], how="left", maintain_order="left")
    own = one.rename({name: name.replace("ideal", "local") for name in one.columns if name != "cell_id"})
    frame = frame.join(own, left_on="local_cell_id", right_on="cell_id", how="left", maintain_order="left")
    columns = {
        "step_time_mean_s": "sync",
        "mean_s": "nosync",
        "straggling_s": "stragglers",
        "synchronising_s": "synchronising",
    }
    for column, prefix in columns.items():
        frame = frame.join(_moments(of_points, column, prefix), on="cell_id", how="left", maintain_order="left")
    strong, share = pl.col("curve") == "strong", 1 / pl.col("gpus")
    return frame.with_columns(
        ideal_mean=pl.when(strong).then(pl.col("ideal_mean") * share).otherwise("ideal_mean"),
        ideal_var=pl.when(strong).then(pl.col("ideal_var") * share**2).otherwise("ideal_var"),
    )


def _without_input(frame: pl.DataFrame, settings: Mapping[str, Settings]) -> pl.DataFrame:
    """The points with all but the measured step taken from their like on resident data, where that is a point.

    Adds `resident`, the moments of its measured step, and `loading`: why a point has no part of input, null if it has.
    """
    point = ["curve", "cell_id"]
    alike = {cell_id: settings[cell_id].other_than(*LOADING) for cell_id in frame["cell_id"]}
    loads = {cell_id: any(path in settings[cell_id].flat for path in LOADING) for cell_id in alike}
    twins = {alike[cell_id]: cell_id for cell_id in alike if not loads[cell_id]}
    frame = frame.with_columns(
        resident_id=pl.col("cell_id").replace_strict(
            {cell_id: twins.get(alike[cell_id]) for cell_id in alike if loads[cell_id]},
            default=None,
            return_dtype=pl.String,
        )
    )
    kept = {*point, "gpus", "label", "is_default", "resident_id", "sync_mean", "sync_var", "sync_n"}
    taken = [name for name in frame.columns if name not in kept]
    sync = {f"sync_{name}": f"resident_{name}" for name in ("mean", "var", "n")}
    twin = frame.select("curve", *sync, *taken, resident_id="cell_id", has_twin=pl.lit(value=True)).rename(sync)
    frame = frame.join(twin, on=["curve", "resident_id"], how="left", maintain_order="left", suffix="_of_twin")
    swapped = [pl.when("has_twin").then(f"{name}_of_twin").otherwise(name).alias(name) for name in taken]
    is_script = [cell_id for cell_id in alike if settings[cell_id].flat.get("workload.kind") == SCRIPT]
    loading = (
        pl.when(pl.col("cell_id").is_in(is_script))
        .then(pl.lit(UNTOLD))
        .when(pl.col("cell_id").is_in([cell_id for cell_id in alike if not loads[cell_id]]))
        .then(pl.lit(RESIDENT))
        .when(pl.col("has_twin").is_null())
        .then(pl.lit(NO_RESIDENT))
    )
    return frame.with_columns(*swapped, loading=loading)


def _moments(trials: pl.DataFrame, column: str, prefix: str) -> pl.DataFrame:
    """Moments over visits of one quantity; which trials and GPUs enter a visit's mean is decided as for throughput."""
    finite = pl.when(pl.col(column).abs() < LONGEST_S).then(pl.col(column))
    value = pl.col("throughput_per_s")
    visits = replicates(trials.with_columns(throughput_per_s=finite)).visits
    return visits.group_by("cell_id", maintain_order=True).agg(
        value.mean().alias(f"{prefix}_mean"),
        value.var(ddof=1).alias(f"{prefix}_var"),
        value.count().cast(pl.Int64).alias(f"{prefix}_n"),
    )


def _of(frame: pl.DataFrame, prefix: str) -> LogMoments:
    """Moments of seconds, not of their logarithms."""
    return LogMoments.of(*(frame[f"{prefix}_{name}"].cast(pl.Float64).to_numpy() for name in ("mean", "var", "n")))


def _rows(frame: pl.DataFrame, part: str) -> pl.DataFrame:
    """One row per point for this part; the smaller local batch exists on the strong curve only."""
    kept = frame.filter(pl.col("curve") == "strong") if part == SMALLER else frame
    interval = _interval(kept, part)
    columns = [
        series("seconds_per_step", interval.estimate),
        series("low", interval.low),
        series("high", interval.high),
    ]
    rows = kept.with_columns(*columns, part=pl.lit(part), place=pl.lit(PARTS.index(part)))
    finite = pl.when(pl.col("low").is_finite() & pl.col("high").is_finite())
    rows = rows.with_columns(low=finite.then("low"), high=finite.then("high"))
    notes = pl.concat_str([*_notes(part), _needs_visits()], separator="; ", ignore_nulls=True)
    share = pl.col("seconds_per_step") / pl.col("sync_mean")
    return rows.with_columns(share=share, sessions=pl.col("sync_n"), note=notes).select(*BUDGET, "place")


def _interval(frame: pl.DataFrame, part: str) -> Interval:
    """Seconds per step of this part of every point."""
    if part == SMALLER:
        return difference_interval(_of(frame, "local"), _of(frame, "ideal"))
    if part == COMPUTE:
        return difference_interval(_of(frame, "nosync"), _of(_with_reference(frame), "reference"))
    if part == INPUT:
        return difference_interval(_of(frame, "sync"), _of(frame, "resident"))
    names = {IDEAL: "ideal", MEASURED: "sync", STRAGGLERS: "stragglers", SYNCHRONISATION: "synchronising"}
    return interval_of_mean(_of(frame, names[part]))


def _with_reference(frame: pl.DataFrame) -> pl.DataFrame:
    """What computing on N GPUs is held against: one GPU with the same batch, else its share of the whole batch."""
    local = pl.col("local_mean").is_not_null() & (pl.col("curve") == "strong")
    return frame.with_columns(
        pl.when(local).then(f"local_{name}").otherwise(f"ideal_{name}").alias(f"reference_{name}")
        for name in ("mean", "var", "n")
    )


def _notes(part: str) -> list[pl.Expr]:
    """Why a part has no number, and what a reader has to know of one that has."""
    absent, strong = pl.col("nosync_mean").is_null(), pl.col("curve") == "strong"
    local = pl.col("local_mean").is_not_null()
    if part == INPUT:
        return [pl.col("loading")]
    if part == IDEAL:
        return [pl.when("has_twin").then(pl.lit(OF_RESIDENT))]
    if part == SMALLER:
        return [pl.when(~local).then(pl.lit(NO_LOCAL))]
    if part not in (COMPUTE, STRAGGLERS, SYNCHRONISATION):
        return []
    found: list[pl.Expr] = [pl.when(absent).then(pl.col("reason").fill_null(NO_ARM))]
    if part == COMPUTE:
        found.append(pl.when(~absent & strong & ~local).then(pl.lit(WITH_LOCAL)))
    if part == STRAGGLERS:
        found.append(pl.when(~absent).then("slowest"))
    return found


def _needs_visits() -> pl.Expr:
    return pl.when(pl.col("seconds_per_step").is_not_null() & pl.col("low").is_null()).then(pl.lit(NEEDS_VISITS))


def _reasons(trials: pl.DataFrame, attestation: pl.DataFrame) -> pl.DataFrame:
    """Per cell, why it has no steps without synchronisation, as its workers said."""
    told = attestation.filter((pl.col("subject") == SUBJECT) & pl.col("observed").is_null())
    words = pl.format("not available: {}", pl.col("evidence")).sort().first().alias("reason")
    return trials.select(*ATTEMPT, "cell_id").join(told, on=ATTEMPT).group_by("cell_id").agg(words)
