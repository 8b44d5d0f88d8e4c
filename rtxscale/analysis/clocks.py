"""Clocks and cards: what held the clock back, efficiency at equal clocks, and how much single cards differ.

Telemetry stays lazy: one pass gives a small frame per trial and card, whatever the number of samples. Called by
`analysis.interpret`.
"""

from __future__ import annotations

import polars as pl

from rtxscale.analysis.cells import replicates, revalued, with_every_slot
from rtxscale.analysis.efficiency import efficiency_table
from rtxscale.analysis.frames import empty, moments, over_visits, positive, series, shaped
from rtxscale.analysis.tables import CARDS, THROTTLING
from rtxscale.results.read import polars_schema
from rtxscale.stats.intervals import geometric_mean_interval

THROTTLED = "throttled"
"""The flag of a trial that a thermal or power-brake slowdown touched: its clock says nothing about the card's own."""
ATTEMPT = ["trial_id", "attempt"]
POINT = ["curve", "cell_id", "base_cell_id"]
"""What a point of both tables is known by: the name of its series depends on what else is in the table."""
EQUAL = {"efficiency": "equal_clocks", "efficiency_low": "equal_clocks_low", "efficiency_high": "equal_clocks_high"}


def window_samples(telemetry: pl.LazyFrame, trials: pl.DataFrame) -> pl.DataFrame:
    """Samples of the used GPUs within the windows of these trials: a row per trial, card and set of active reasons.

    Columns: `samples`, mean `power_w` (W), `temperature_c` (highest, degC), mean `sm_clock_mhz` and the list
    `throttle_reasons`, null where the card does not tell. A sample belongs to the trial that was running.
    """
    windows = trials.select(*ATTEMPT, "cell_id", "window_start_ns", "window_end_ns").drop_nulls().lazy()
    used = trials.select(*ATTEMPT, uuid="gpu_uuids").explode("uuid").drop_nulls()
    # Which cards were used is asked of the small frame: a join on three texts would cost a third more.
    every = (
        telemetry.select(*ATTEMPT, "uuid", "t_ns", "power_w", "temperature_c", "sm_clock_mhz", "throttle_reasons")
        .join(windows, on=ATTEMPT)
        .filter(pl.col("t_ns").is_between("window_start_ns", "window_end_ns"))
        .group_by(*ATTEMPT, "cell_id", "uuid", "throttle_reasons")
        .agg(
            pl.len().cast(pl.Int64).alias("samples"),
            pl.col("power_w").mean(),
            pl.col("temperature_c").max(),
            pl.col("sm_clock_mhz").mean(),
        )
        .collect(engine="streaming")
    )
    kept = every.join(used, on=[*ATTEMPT, "uuid"], how="semi")
    return kept.sort(*ATTEMPT, "uuid", pl.col("throttle_reasons").list.join(","))


def no_samples() -> pl.LazyFrame:
    """Telemetry of a run that has none."""
    return pl.LazyFrame(schema=polars_schema("telemetry"))


def throttle_table(samples: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Share of the window in which each clock event reason was active, per cell: mean over trials, and the most of any.

    `samples` is `window_samples`; a trial's share is the mean of its cards', however often each was sampled. Reasons
    that were never active have no row; idle and clock settings are no reasons against a number, but are shown.
    """
    known = samples.filter(pl.col("throttle_reasons").is_not_null())
    if not known.height:
        return empty(THROTTLING)
    every = known.group_by(*ATTEMPT, "cell_id", "uuid").agg(pl.col("samples").sum().alias("all"))
    active = known.explode("throttle_reasons", empty_as_null=False).rename({"throttle_reasons": "reason"})
    counted = active.group_by(*ATTEMPT, "uuid", "reason").agg(pl.col("samples").sum())
    reasons = active.select("cell_id", "reason").unique()
    shares = (
        every.join(reasons, on="cell_id")
        .join(counted, on=[*ATTEMPT, "uuid", "reason"], how="left")
        .with_columns(share=pl.col("samples").fill_null(0) / pl.col("all"))
        .group_by(*ATTEMPT, "cell_id", "reason")
        .agg(pl.col("share").mean())
        .group_by("cell_id", "reason")
        .agg(pl.col("share").mean(), pl.col("share").max().alias("most"), pl.len().cast(pl.Int64).alias("trials"))
    )
    named = cells.select("cell_id", "label", "gpus", "is_default").join(shares, on="cell_id", maintain_order="left")
    order = ["gpus", "label", "cell_id", "share", "reason"]
    return shaped(named.sort(order, descending=[False, False, False, True, False]), THROTTLING)


def with_equal_clocks(efficiency: pl.DataFrame, cells: pl.DataFrame, counted: pl.DataFrame) -> pl.DataFrame:
    """The efficiencies with `sm_clock_mhz` and, beside the raw one, the efficiency at equal clocks.

    Throughput is divided by the measured SM clock before it is compared, so that a card that boosts less under load
    does not look like a loss of scaling; that is right as far as the work is bound by the SMs. Trials that were
    throttled are left out here, not there.
    """
    clock = positive("sm_clock_mhz")
    steady = counted.filter(
        clock.is_not_null() & ~pl.col("flags").fill_null(pl.lit([], pl.List(pl.String))).list.contains(THROTTLED)
    )
    per_clock = replicates(steady.with_columns(throughput_per_s=pl.col("throughput_per_s") / clock))
    equal = efficiency_table(revalued(cells, per_clock))
    points = equal.filter(pl.col("cell_id") != pl.col("base_cell_id")).select(*POINT, *EQUAL).rename(EQUAL)
    clocks = steady.group_by("cell_id").agg(clock.mean())
    known = [name for name in efficiency.columns if name not in (*EQUAL.values(), "sm_clock_mhz")]
    joined = efficiency.select(known).join(points, on=POINT, how="left", maintain_order="left")
    joined = joined.join(clocks, on="cell_id", how="left", maintain_order="left")
    return joined.select(efficiency.columns)


def card_table(counted: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """The 1-GPU baselines card by card, slowest first, where several cards were measured in turn.

    Cards are compared in the visits that all of them have, if there are any: visits differ as well.
    """
    rows = counted.filter((pl.col("gpus") == 1) & pl.col("throughput_per_s").is_not_null())
    several = rows.filter(pl.col("slot").n_unique().over("cell_id") > 1)
    if not several.height:
        return empty(CARDS)
    several = several.filter(with_every_slot())
    card = ["cell_id", "slot"]
    visits = several.group_by(*card, "visit", maintain_order=True).agg(
        pl.col("throughput_per_s").mean().log().alias("log")
    )
    means = visits.group_by(card, maintain_order=True).agg(over_visits("log"))
    interval = geometric_mean_interval(moments(means))
    means = means.with_columns(
        series("throughput_per_s", interval.estimate),
        series("throughput_low", interval.low),
        series("throughput_high", interval.high),
    )
    facts = several.group_by(card).agg(
        pl.col("gpu_uuids").list.first().drop_nulls().first().alias("uuid"),
        pl.col("device_names").list.first().drop_nulls().first().alias("device_name"),
        pl.col("sm_clock_mhz").mean(),
        pl.col("power_w").mean(),
        pl.col("temperature_max_c").max(),
    )
    table = means.join(facts, on=card, maintain_order="left").with_columns(
        of_fastest=pl.col("throughput_per_s") / pl.col("throughput_per_s").max().over("cell_id")
    )
    named = cells.select("cell_id", "label", "work_unit").join(table, on="cell_id", maintain_order="left")
    return shaped(named.sort("label", "cell_id", "throughput_per_s", "slot"), CARDS)


def card_remarks(cards: pl.DataFrame) -> tuple[str, ...]:
    """Which card is the slowest, and how far behind: what waits for all of them runs at its pace."""
    slowest = cards.unique("cell_id", keep="first", maintain_order=True)
    return tuple(_slowest(row) for row in slowest.head(1).iter_rows(named=True))


def _slowest(row: dict[str, object]) -> str:
    name = row["uuid"] or f"slot {row['slot']}"
    behind = 100 * (1 - float(str(row["of_fastest"])))
    return (
        f"Slowest card in ({row['label']}): {name}, {behind:.1f} % behind the fastest; steps of several GPUs run at "
        "the pace of the slowest."
    )
