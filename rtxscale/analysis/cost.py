"""Energy and money per unit of work, per cell: from the energy of the used GPUs, and from a declared price.

A list price is never assumed: without a declared price there is no cost. Energy is that of the GPUs alone, so perf/W is
GPU-only and electricity is a lower bound: by their counters where they have them, else by their sampled power. The hour
of each machine that a trial was on is billed whole, however many of its GPUs are used. Where a meter read the power at
the wall, energy there per unit of work stands beside it, in columns of its own. Called by `analysis.interpret` and
`analysis.objectives`.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from rtxscale.analysis.cells import Replicates, replicates
from rtxscale.analysis.conclusions import NEEDS_VISITS
from rtxscale.analysis.flags import LEAST_UPDATES, is_coarse
from rtxscale.analysis.frames import empty, moments, over_visits, positive, series, shaped
from rtxscale.analysis.tables import COST
from rtxscale.spec.declare import Price
from rtxscale.stats.intervals import geometric_mean_interval

SECONDS_PER_HOUR = 3600.0
JOULES_PER_KWH = 3.6e6
NO_POWER = "no power was measured"
NO_PRICE = "no price was declared"


@dataclass(frozen=True, kw_only=True)
class Billing:
    """What an hour costs: a fixed part for each machine and a part per kWh of its GPUs, in `currency`."""

    currency: str
    per_hour: float = 0.0
    per_kwh: float = 0.0


def billing_of(price: Price) -> tuple[Billing | None, str]:
    """What the declared price comes to, or None and the reason.

    >>> billing_of(Price(currency="EUR", purchase=9000.0, hours_of_use=18000.0, per_kwh=0.3))[0]
    Billing(currency='EUR', per_hour=0.5, per_kwh=0.3)
    >>> billing_of(Price(per_hour=2.0))
    (None, 'price.currency is not declared')
    """
    per_hour, purchase, hours, per_kwh = (
        value if isinstance(value, int | float) else None
        for value in (price.per_hour, price.purchase, price.hours_of_use, price.per_kwh)
    )
    if per_hour is None and purchase is None and per_kwh is None:
        return None, NO_PRICE
    if price.currency in ("unknown", "not applicable"):
        return None, "price.currency is not declared"
    if per_hour is not None and purchase is not None:
        return None, "price.per_hour and price.purchase are both declared; one of them is the price"
    if purchase is not None and hours is None:
        return None, "price.purchase needs price.hours_of_use"
    fixed = per_hour if purchase is None or hours is None else purchase / hours
    return Billing(currency=price.currency, per_hour=fixed or 0.0, per_kwh=per_kwh or 0.0), ""


def energy_replicates(counted: pl.DataFrame) -> Replicates:
    """Work per joule of the used GPUs over the window, per session and visit; trials without energy are left out."""
    return replicates(counted.with_columns(throughput_per_s=work_per_joule(gpu_power_w())))


def wall_replicates(counted: pl.DataFrame) -> Replicates:
    """Work per joule at the wall over the window, the same way; never mixed with the GPUs' own."""
    return replicates(counted.with_columns(throughput_per_s=work_per_joule(positive("wall_power_w"))))


def money_replicates(counted: pl.DataFrame, billing: Billing) -> Replicates:
    """Work per unit of money; where electricity is billed, trials without energy are left out."""
    energy = gpu_power_w() * billing.per_kwh / JOULES_PER_KWH if billing.per_kwh else pl.lit(0.0)
    per_second = billing.per_hour * pl.col("nodes").fill_null(1) / SECONDS_PER_HOUR + energy
    return replicates(counted.with_columns(throughput_per_s=pl.col("throughput_per_s") / per_second))


def gpu_power_w() -> pl.Expr:
    """Mean power of a trial's GPUs over its window, W: from its energy where that is known, else as sampled."""
    return pl.coalesce(positive("energy_j") / positive("window_s"), positive("power_w"))


def work_per_joule(power_w: pl.Expr) -> pl.Expr:
    """Throughput over power; null where either is missing."""
    return pl.col("throughput_per_s") / power_w


def coarse_energies(counted: pl.DataFrame) -> pl.DataFrame:
    """Cells that have them: `coarse` trials with an energy from a counter of too few steps, and the `fewest` steps."""
    coarse = counted.filter(is_coarse()).group_by("cell_id", maintain_order=True)
    return coarse.agg(pl.len().cast(pl.Int64).alias("coarse"), fewest=pl.col("energy_updates").min())


def energy_remarks(counted: pl.DataFrame) -> tuple[str, ...]:
    """That energies are coarse, by how much at most, and what to do."""
    coarse = coarse_energies(counted)
    if not coarse.height:
        return ()
    trials, fewest = coarse["coarse"].sum(), min(coarse["fewest"])
    return (
        f"The energy of {trials} trial{'s' * (trials != 1)} is coarse: in a window the GPUs' energy counter made as "
        f"few as {fewest:.3g} steps, so that a single one may be off by {_off_by(fewest)}; for {LEAST_UPDATES:.0f} "
        "steps raise measure.window_s.",
    )


def _off_by(updates: float) -> str:
    """How much of an energy one step of its counter is.

    >>> _off_by(23.0), _off_by(0.4)
    ('up to 4.3 %', 'all of it')
    """
    return f"up to {100 / updates:.2g} %" if updates > 1 else "all of it"


def cost_table(cells: pl.DataFrame, counted: pl.DataFrame, billing: Billing | None, why_not: str) -> pl.DataFrame:
    """One row per cell with a throughput; `why_not` says why there is no price."""
    rows = cells.filter(pl.col("throughput_per_s").is_not_null())
    if not rows.height:
        return empty(COST)
    rows = rows.with_columns(unit=pl.col("work_unit").fill_null("unit"))
    rows = _with_interval(rows, energy_replicates(counted), "work_per_j")
    rows = _with_interval(rows, wall_replicates(counted), "work_per_wall_j")
    wall = counted.group_by("cell_id").agg(positive("wall_power_w").mean())
    rows = rows.join(wall, on="cell_id", how="left", maintain_order="left")
    if billing is not None:
        rows = _with_interval(rows, money_replicates(counted, billing), "work_per_money")
        rows = rows.with_columns(currency=pl.lit(billing.currency))
    else:
        rows = rows.with_columns(pl.lit(None, pl.Float64).alias("work_per_money"))
    rows = rows.join(coarse_energies(counted), on="cell_id", how="left", maintain_order="left")
    unknown = pl.col("work_per_j").is_null()
    fewest = pl.col("fewest").round_sig_figs(3)
    notes = [
        pl.when(unknown).then(pl.lit(NO_POWER)),
        pl.when(~unknown & pl.col("work_per_j_low").is_null()).then(pl.lit(NEEDS_VISITS)),
        pl.format("coarse energy in {} of {} trials: {} counter steps and more", "coarse", "trials", fewest),
        pl.when(pl.col("work_per_money").is_null()).then(pl.lit(why_not or NO_POWER)),
    ]
    rows = rows.with_columns(
        energy_per_work_j=1 / pl.col("work_per_j"),
        energy_per_work_low=1 / pl.col("work_per_j_high"),
        energy_per_work_high=1 / pl.col("work_per_j_low"),
        wall_energy_per_work_j=1 / pl.col("work_per_wall_j"),
        wall_energy_per_work_low=1 / pl.col("work_per_wall_j_high"),
        wall_energy_per_work_high=1 / pl.col("work_per_wall_j_low"),
        note=pl.concat_str(notes, separator="; ", ignore_nulls=True),
    )
    return shaped(rows, COST)


def _with_interval(cells: pl.DataFrame, measured: Replicates, name: str) -> pl.DataFrame:
    """The geometric mean over visits of a quantity with its interval, as columns `name`, `name_low`, `name_high`."""
    found = measured.visits.group_by("cell_id", maintain_order=True).agg(over_visits("log"))
    interval = geometric_mean_interval(moments(found))
    columns = (name, interval.estimate), (f"{name}_low", interval.low), (f"{name}_high", interval.high)
    found = found.select("cell_id").with_columns(series(column, values) for column, values in columns)
    return cells.join(found, on="cell_id", how="left", maintain_order="left")
