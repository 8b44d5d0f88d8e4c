"""What the numbers mean, as small tables of text: sanity, interactions, clocks, cards, energy, cost, scaling laws.

Like `tables.conclusions`, shared by the terminal and the page; `brief` leaves the rows of the default settings for 80
columns. Every builder returns None where there is nothing to show.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from rtxscale.analysis.conclusions import Conclusions
from rtxscale.analysis.sanity import CONTEXT
from rtxscale.report.numbers import NOTHING, gain, how_many, interval, number, throughput_unit
from rtxscale.report.tables.conclusions import ONLY, Table
from rtxscale.report.tables.placement import placement_tables

MICROSECONDS = 1e6
SIGNIFICANT = 0.05
FEW = 6
MEANS = {CONTEXT: "whose conditions this run does not meet"}
"""What a status of a sanity signal says, where the word alone does not."""
ROWS = 200
"""Most rows of a table on the page."""


def meaning_tables(conclusions: Conclusions, workers: str, *, brief: bool = False) -> list[Table]:
    """All tables of this file that have rows, in the order of reading."""
    made = (
        sanity_table(conclusions, brief=brief),
        *placement_tables(conclusions, workers, brief=brief),
        interactions_table(conclusions, workers, brief=brief),
        clocks_table(conclusions, workers, brief=brief),
        cards_table(conclusions),
        objectives_table(conclusions, workers),
        cost_table(conclusions, workers, brief=brief),
        mfu_table(conclusions, workers, brief=brief),
        fits_table(conclusions, workers, brief=brief),
    )
    return [table for table in made if table is not None]


def sanity_table(conclusions: Conclusions, *, brief: bool = False) -> Table | None:
    """What was held against known ranges and limits; in brief only what lies outside."""
    return signals_table(conclusions.sanity, brief=brief, more="rtxscale show --csv sanity")


def signals_table(sanity: pl.DataFrame, *, more: str, brief: bool = False) -> Table | None:
    """Signals as a table; `more` says where those are that are left out."""
    shown = sanity.filter(pl.col("status") == "outside").head(FEW) if brief else sanity.head(ROWS)
    if shown.is_empty():
        return None
    columns = ("signal", "status", "what was found", *(() if brief else ("conditions", "source")))
    rows = [
        (row["rule"], row["status"], row["words"], *(() if brief else (row["conditions"], row["source"])))
        for row in shown.iter_rows(named=True)
    ]
    left_out = sanity.height - shown.height
    note = f"{left_out} more: {more}" if left_out else ""
    return Table(key="sanity", title="Sanity signals", columns=columns, rows=rows, note=note)


def sanity_words(sanity: pl.DataFrame) -> str:
    """How many signals of each status there are; empty without any."""
    counts = sanity["status"].drop_nulls().value_counts(sort=True, name="signals").sort("status").rows()
    if not counts:
        return ""
    total = sum(count for _, count in counts)
    words = ", ".join(f"{count} {MEANS.get(status, status)}" for status, count in counts)
    return f"{total} sanity signal{'s' * (total != 1)}: {words}."


def interactions_table(conclusions: Conclusions, workers: str, *, brief: bool = False) -> Table | None:
    """Whether the effect of one setting depends on another, largest first; what is not separable only on the page."""
    known = conclusions.interactions.filter(pl.col("ratio") > 0)
    known = known.sort(pl.col("ratio").log().abs(), descending=True, maintain_order=True)
    shown = known.filter(pl.col("p_holm") < SIGNIFICANT) if brief else known.head(ROWS)
    if shown.is_empty():
        return None
    columns = ("setting", "with", workers, "ratio of effects", "verdict")
    rows = [
        (
            f"{row['axis']} {row['value']}",
            f"{row['other_axis']} {row['other_value']}",
            str(row["gpus"]),
            interval(row["ratio"], row["ratio_low"], row["ratio_high"]),
            row["verdict"] or NOTHING,
        )
        for row in shown.iter_rows(named=True)
    ]
    left_out, certain = known.height - shown.height, shown.filter(pl.col("p_holm") < SIGNIFICANT).height
    more = [f"{left_out} more pairs: rtxscale show --csv interactions"] if left_out else []
    if certain == shown.height:
        title, told = "Settings whose effects depend on each other", []
    else:
        title = "Whether effects of settings depend on each other"
        told = [f"Shown of {certain or 'none'} of {how_many(shown.height, 'pairs')}"]
    return Table(
        key="interactions",
        title=title,
        columns=columns,
        rows=rows,
        right=frozenset({workers, "ratio of effects"}),
        note=". ".join([*told, *more]),
    )


def objectives_table(conclusions: Conclusions, workers: str) -> Table | None:
    """The best cell for anything but throughput, which has its own table; None where there is no choice."""
    shown = conclusions.objectives.filter((pl.col("objective") != "throughput") & (pl.col("verdict") != ONLY))
    if shown.is_empty():
        return None
    columns = (workers, "best by", "setting", "value", "over the default", "verdict")
    rows = [
        (
            str(row["gpus"]),
            row["objective"],
            (row["label"] or NOTHING).removeprefix(f"gpus {row['gpus']}, "),
            f"{number(row['value'])} {row['unit']}",
            gain(row["gain"], row["gain_low"], row["gain_high"]),
            row["verdict"] or NOTHING,
        )
        for row in shown.head(ROWS).iter_rows(named=True)
    ]
    right = frozenset({workers, "value", "over the default"})
    return Table(key="objectives", title="Best cells by objective", columns=columns, rows=rows, right=right)


def cost_table(conclusions: Conclusions, workers: str, *, brief: bool = False) -> Table | None:
    """Energy per unit of work, and work per money where a price was declared; None where neither is known."""
    cost = conclusions.cost
    numbers = ("energy_per_work_j", "wall_energy_per_work_j", "work_per_money")
    known = cost.filter(pl.any_horizontal(pl.col(*numbers).is_not_null()))
    shown = known.filter("is_default") if brief else known.head(ROWS)
    if shown.is_empty():
        return None
    unit = shown["unit"][0]
    currency = next(iter(shown["currency"].drop_nulls()), None)
    money = (f"{unit}s/{currency}",) if currency else ()
    wall = ("wall (W)", f"wall J/{unit}") if shown["wall_power_w"].drop_nulls().len() else ()
    columns = ("setting", workers, "power (W)", f"J/{unit}", f"{unit}s/J", *wall, *money)
    rows = [
        (
            row["label"],
            str(row["gpus"]),
            number(row["power_w"]),
            interval(row["energy_per_work_j"], row["energy_per_work_low"], row["energy_per_work_high"]),
            number(row["work_per_j"]),
            *((number(row["wall_power_w"]), number(row["wall_energy_per_work_j"])) if wall else ()),
            *(
                (interval(row["work_per_money"], row["work_per_money_low"], row["work_per_money_high"]),)
                if money
                else ()
            ),
        )
        for row in shown.iter_rows(named=True)
    ]
    left_out = known.height - shown.height
    more = f" {left_out} more cells: rtxscale show --csv cost" if left_out else ""
    return Table(
        key="cost",
        title="Energy and cost",
        columns=columns,
        rows=rows,
        right=frozenset(columns[1:]),
        note=f"Power of the used GPUs alone, over the windows.{_wall_note(bool(wall))}{more}",
    )


def _wall_note(metered: bool) -> str:
    return " At the wall: all that hangs behind the meter, the GPUs included." if metered else ""


def mfu_table(conclusions: Conclusions, workers: str, *, brief: bool = False) -> Table | None:
    """Model FLOPs utilisation of the cells that have one, and why others have none; in brief of the defaults."""
    mfu = conclusions.mfu
    known = mfu.filter(pl.col("mfu").is_not_null())
    shown = known.filter("is_default") if brief else known.head(ROWS)
    if shown.is_empty():
        return None
    measured = shown["roof_utilisation"].drop_nulls().len() > 0
    shares = ("MFU", *(("of products",) if measured else ()))
    rates = () if brief else ("peak (TFLOPS)", *(("products (TFLOPS)",) if measured else ()))
    rows = [
        (
            row["label"],
            str(row["gpus"]),
            interval(row["mfu"], row["mfu_low"], row["mfu_high"]),
            *((_of_products(row),) if measured else ()),
            *(number(row[name]) for name in ("peak_tflops", "roof_tflops")[: len(rates)]),
        )
        for row in shown.iter_rows(named=True)
    ]
    peaks = shown.select("peak_tflops", "source").drop_nulls().unique(maintain_order=True).iter_rows()
    sources = "; ".join(f"{number(peak)} TFLOPS: {source}" for peak, source in peaks)
    products = " Of products: over matrix products on the same GPUs, measured in the sessions." if measured else ""
    return Table(
        key="mfu",
        title="Model FLOPs utilisation",
        columns=("setting", workers, *shares, *rates),
        rows=rows,
        right=frozenset({workers, *shares, *rates}),
        note="MFU: over the documented dense peak with fp32 accumulation, without recomputation"
        f"{f' ({sources})' if sources else ''}.{products}{_without_mfu(mfu)}",
    )


def _without_mfu(mfu: pl.DataFrame) -> str:
    """How many cells have no MFU, for each reason."""
    missing = mfu.filter(pl.col("mfu").is_null() & pl.col("note").is_not_null())
    reasons = missing.group_by("note", maintain_order=True).len().iter_rows()
    return "".join(f" None for {how_many(count, 'cells')}: {note}." for note, count in reasons)


def _of_products(row: dict[str, Any]) -> str:
    return interval(row["roof_utilisation"], row["roof_utilisation_low"], row["roof_utilisation_high"])


def clocks_table(conclusions: Conclusions, workers: str, *, brief: bool = False) -> Table | None:
    """Efficiency at equal clocks beside the raw one, and what held the clock back; None where no clock was read."""
    points = conclusions.efficiency.filter(pl.col("sm_clock_mhz").is_not_null())
    shown = points.filter("is_default") if brief else points.head(ROWS)
    if shown.is_empty():
        return None
    reasons = _reasons_by_cell(conclusions.throttling)
    columns = ("curve", workers, "SM clock (MHz)", "efficiency", "at equal clocks", "active in the window")
    rows = [
        (
            row["curve"] if brief else f"{row['curve']}, {row['series']}",
            str(row["gpus"]),
            number(row["sm_clock_mhz"]),
            interval(row["efficiency"], row["efficiency_low"], row["efficiency_high"], least=2),
            interval(row["equal_clocks"], row["equal_clocks_low"], row["equal_clocks_high"], least=2),
            reasons.get(row["cell_id"], NOTHING),
        )
        for row in shown.iter_rows(named=True)
    ]
    right = frozenset({workers, "SM clock (MHz)", "efficiency", "at equal clocks"})
    return Table(key="clocks", title="Clocks", columns=columns, rows=rows, right=right)


def _reasons_by_cell(throttling: pl.DataFrame) -> dict[str, str]:
    words: dict[str, list[str]] = {}
    for row in throttling.iter_rows(named=True):
        words.setdefault(row["cell_id"], []).append(f"{row['reason']} {100 * row['share']:.0f} %")
    return {cell_id: ", ".join(found) for cell_id, found in words.items()}


def cards_table(conclusions: Conclusions) -> Table | None:
    """The 1-GPU baselines card by card, slowest first; None where one card was measured."""
    cards = conclusions.cards.head(ROWS)
    if cards.is_empty():
        return None
    unit = throughput_unit(cards["work_unit"][0])
    columns = ("card", "of", unit, "of the fastest", "SM clock (MHz)", "power (W)")
    rows = [
        (
            row["uuid"] or f"slot {row['slot']}",
            row["label"],
            interval(row["throughput_per_s"], row["throughput_low"], row["throughput_high"]),
            number(row["of_fastest"], 3),
            number(row["sm_clock_mhz"]),
            number(row["power_w"]),
        )
        for row in cards.iter_rows(named=True)
    ]
    return Table(key="cards", title="Card by card", columns=columns, rows=rows, right=frozenset(columns[2:]))


def fits_table(conclusions: Conclusions, workers: str, *, brief: bool = False) -> Table | None:
    """Each law's parameters; what has none is named below with the reason.

    In brief those of the default settings, or where these have none the first of any others.
    """
    fits = conclusions.fits.sort("is_default", descending=True, nulls_last=False, maintain_order=True)
    shown = _of_defaults(fits) if brief else fits.head(ROWS)
    refused, known = shown.filter(pl.col("value").is_null()), shown.filter(pl.col("value").is_not_null())
    if known.is_empty():
        known, refused = refused, known
    if known.is_empty():
        return None
    columns = ("law", "of", workers, "parameter", "value", "note")
    rows = [
        (
            row["law"],
            _of(row),
            NOTHING if row["gpus"] is None else str(row["gpus"]),
            row["parameter"],
            _value(row),
            row["note"] or NOTHING,
        )
        for row in known.iter_rows(named=True)
    ]
    left_out = fits.height - shown.height
    more = f"{how_many(left_out, 'more rows')}: rtxscale show --csv fits" if left_out else ""
    return Table(
        key="fits",
        title="Scaling laws and collectives' latency and bandwidth",
        columns=columns,
        rows=rows,
        right=frozenset({workers, "value"}),
        note=". ".join(words for words in (*_reasons(refused), more) if words),
    )


def _of_defaults(fits: pl.DataFrame) -> pl.DataFrame:
    """The rows of default settings and of whole curves; where none has a value, the first of others that have one."""
    own = fits.filter(pl.col("is_default").fill_null(value=True))
    if own["value"].drop_nulls().len():
        return own
    others = fits.filter(~pl.col("is_default") & pl.col("value").is_not_null())
    return pl.concat([others.head(FEW), own])


def _reasons(refused: pl.DataFrame) -> Iterator[str]:
    """Why laws have no value here, each reason once."""
    for reason in refused["note"].unique(maintain_order=True):
        laws = refused.filter(pl.col("note") == reason)["law"].unique(maintain_order=True)
        yield f"{', '.join(laws)}: {reason}"


def _of(row: dict[str, Any]) -> str:
    if row["operation"]:
        return f"{str(row['operation']).replace('_', '-')}, {row['series']}".removesuffix(", defaults")
    return ", ".join(word for word in (row["curve"], row["series"]) if word)


def _value(row: dict[str, Any]) -> str:
    """A latency in microseconds, a share as it is, a bandwidth with its unit."""
    scale, unit = (MICROSECONDS, " us") if row["unit"] == "s" else (1.0, f" {row['unit']}")
    value, low, high = (None if row[name] is None else scale * row[name] for name in ("value", "low", "high"))
    text = interval(value, low, high, additive=True)
    return text if row["unit"] in (None, "1") or text == NOTHING else f"{text}{unit}"
