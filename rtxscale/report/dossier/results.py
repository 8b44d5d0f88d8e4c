"""Lines of a dossier that are results: throughput, efficiency, power, money, and what can be said of sanity signals.

One function a line, from `Facts` to an answer; None where the run does not say. Called by `dossier.record`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import polars as pl

from rtxscale.analysis.settings import beside_size, is_communication
from rtxscale.report.chosen import AXIS
from rtxscale.report.dossier.facts import DECLARED, Answer, Facts, amount, distinct, measured, not_applicable
from rtxscale.report.dossier.method import Derived
from rtxscale.report.numbers import gain, how_many, interval, number, throughput_unit, worker_word
from rtxscale.report.tables.meaning import sanity_words
from rtxscale.spec.declare import NOT_APPLICABLE
from rtxscale.stats.rounding import size

MOST = 40
"""Most cells that a line names."""


def default_cells(facts: Facts) -> list[dict[str, Any]]:
    """The default cell of each workload, size and setting that is no communication's; else the fastest of those."""
    cells = facts.conclusions.cells.filter(pl.col("throughput_per_s").is_not_null())
    axes = [name for name in cells.columns if name.startswith(AXIS) and not is_communication(name.removeprefix(AXIS))]
    same = ["workload", "gpus", "batch_per_gpu", *axes]
    cost = facts.conclusions.cost.drop("label", "gpus", "is_default", "throughput_per_s", "power_w")
    cells = cells.join(cost, on="cell_id", how="left", maintain_order="left")
    ordered = cells.sort("is_default", "throughput_per_s", descending=True).unique(
        same, keep="first", maintain_order=True
    )
    return ordered.sort(*same).to_dicts()


def _per_cell(facts: Facts, where: str, value: Callable[[dict[str, Any]], str | None]) -> Answer | None:
    workers = worker_word(facts.conclusions.device)
    texts = [f"{_cell_name(cell, workers)}: {text}" for cell in default_cells(facts) if (text := value(cell))]
    if len(texts) > MOST:
        texts = [*texts[:MOST], f"and {len(texts) - MOST} more cells"]
    return measured("; ".join(texts), where) if texts else None


def _cell_name(cell: dict[str, Any], workers: str) -> str:
    batch = "" if cell["batch_per_gpu"] is None else f", batch {cell['batch_per_gpu']} each"
    settings = beside_size(cell["label"])
    others = f", {settings}" if settings else ""
    kind = "" if cell["is_default"] else ", fastest cell"
    return f"{how_many(cell['gpus'], workers)}{batch}{others}{kind}"


def throughput(facts: Facts) -> Answer | None:
    """Throughput of the default cells, with intervals."""

    def value(cell: dict[str, Any]) -> str:
        numbers = interval(cell["throughput_per_s"], cell["throughput_low"], cell["throughput_high"])
        return f"{numbers} {throughput_unit(cell['work_unit'])}"

    return _per_cell(facts, "conclusions.cells", value)


def steps(facts: Facts) -> Answer | None:
    """Steps per second of the default cells, over whole windows as throughput is."""
    steps_per_s = pl.col("window_steps") / pl.col("window_s")
    rates = facts.counted.group_by("cell_id").agg(steps_per_s.log().mean().exp().alias("rate"))
    known = dict(rates.drop_nulls().iter_rows())

    def value(cell: dict[str, Any]) -> str | None:
        rate = known.get(cell["cell_id"])
        return f"{number(rate)} steps/s" if rate else None

    return _per_cell(facts, "trials.window_steps / trials.window_s", value)


def gpu_power(facts: Facts) -> Answer | None:
    """Power of the used GPUs together."""
    return _per_cell(
        facts, "conclusions.cells", lambda cell: f"{number(cell['power_w'])} W" if cell["power_w"] else None
    )


def wall_power(facts: Facts) -> Answer | None:
    """Power at the wall, where a meter read it beside the sweep; GPU power is a line of its own."""

    def value(cell: dict[str, Any]) -> str | None:
        return f"{number(cell['wall_power_w'])} W" if cell["wall_power_w"] else None

    return _per_cell(facts, "conclusions.cost", value)


def per_watt(facts: Facts) -> Answer | None:
    """Work per joule of GPU energy, which is throughput per watt, with intervals."""

    def value(cell: dict[str, Any]) -> str | None:
        low, high = (1 / cell[name] if cell[name] else None for name in ("energy_per_work_high", "energy_per_work_low"))
        numbers = interval(cell["work_per_j"], low, high)
        unit = throughput_unit(cell["work_unit"]).removesuffix("/s")
        return f"{numbers} {unit}/J" if cell["work_per_j"] else None

    return _per_cell(facts, "conclusions.cost", value)


def price(facts: Facts) -> Answer | None:
    """The price that was declared, in its parts."""
    declared = facts.declaration.price
    parts = {name: getattr(declared, name) for name in ("per_hour", "purchase", "hours_of_use", "per_kwh")}
    known = [f"{name.replace('_', ' ')} {amount(value)}" for name, value in parts.items() if not isinstance(value, str)]
    if not known and NOT_APPLICABLE in parts.values():
        return not_applicable("no price was billed", DECLARED, "declare.yaml: price")
    return Answer(value=", ".join(known), declared_by=DECLARED, where="declare.yaml: price") if known else None


def per_money(facts: Facts) -> Answer | None:
    """Work for one unit of the money that was billed, with intervals."""

    def value(cell: dict[str, Any]) -> str | None:
        numbers = interval(cell["work_per_money"], cell["work_per_money_low"], cell["work_per_money_high"])
        unit = throughput_unit(cell["work_unit"]).removesuffix("/s")
        return f"{numbers} {unit} per {cell['currency']}" if cell["work_per_money"] else None

    found = _per_cell(facts, "conclusions.cost over declare.yaml: price", value)
    return None if found is None else replace(found, declared_by=DECLARED)


def efficiency(facts: Facts) -> Answer | None:
    """Efficiency of the default series, with intervals."""
    rows = facts.conclusions.efficiency.filter(
        pl.col("is_default") & pl.col("efficiency").is_not_null() & (pl.col("gpus") != pl.col("base_gpus"))
    )
    texts = [
        f"{row['curve']}{_of_series(row['series'])}, {row['gpus']} over {row['base_gpus']}: "
        f"{interval(row['efficiency'], row['efficiency_low'], row['efficiency_high'], 2)}"
        for row in rows.iter_rows(named=True)
    ]
    return measured(distinct(texts), "conclusions.efficiency") if texts else None


def _of_series(series: str | None) -> str:
    """What is held constant along a curve, where anything was varied that is no communication's."""
    return f" ({series})" if series and series != "defaults" else ""


def bandwidth(facts: Facts) -> Answer | None:
    """The largest size of each operation and GPU count, best over the cells."""
    rows = facts.conclusions.bandwidth.filter(pl.col("busbw_gb_s").is_not_null())
    best = (
        rows.sort("size_bytes", "busbw_gb_s", descending=True)
        .unique(["operation", "gpus"], keep="first", maintain_order=True)
        .sort("operation", "gpus")
    )
    texts = [
        f"{row['operation']} of {size(row['size_bytes'])} on {row['gpus']}: "
        f"{interval(row['busbw_gb_s'], row['busbw_low'], row['busbw_high'])} GB/s"
        for row in best.iter_rows(named=True)
    ]
    return measured(distinct(texts), "conclusions.bandwidth") if texts else None


def capacity(facts: Facts) -> Answer | None:
    """The largest batch that ran, and how many trials ran out of memory."""
    batches = facts.counted["batch_per_gpu"].drop_nulls()
    if batches.is_empty():
        return None
    over = facts.trials.filter(pl.col("outcome") == "oom").height
    return measured(
        f"largest batch per GPU that ran: {max(batches.to_list())}; {over} attempts out of memory", "trials"
    )


def compile_gain(facts: Facts) -> Answer | None:
    """The effect of compile at each GPU count, where it was an axis."""
    return _gain_of(facts, "workload.compile", "compile was not varied")


def fp8_gain(facts: Facts) -> Answer | None:
    """The effect of FP8 at each GPU count, where it was one of several precisions."""
    return _gain_of(facts, "workload.precision", "FP8 was not varied", "fp8")


def _gain_of(facts: Facts, axis: str, absent: str, value: str | None = None) -> Answer | None:
    effects = facts.conclusions.effects.filter((pl.col("axis") == axis) & pl.col("ratio").is_not_null())
    either = pl.any_horizontal(pl.col("value", "reference") == pl.lit(value, pl.String))
    rows = effects if value is None else effects.filter(either)
    if rows.is_empty():
        return not_applicable(absent)
    texts = [
        f"{row['gpus']}: {row['value']} against {row['reference']} {gain(row['ratio'] - 1)} ({row['verdict']})"
        for row in rows.sort("gpus", "value").iter_rows(named=True)
    ]
    return measured(distinct(texts), "conclusions.effects")


def signals(facts: Facts) -> Answer | None:
    """How many sanity rules are met, and each that is outside in words; their sources are in the conclusions."""
    rows = facts.conclusions.sanity
    if rows.is_empty():
        return None
    outside = [f"{row['rule']}: {row['words']}" for row in rows.filter(pl.col("status") == "outside").to_dicts()]
    return measured("; ".join([sanity_words(rows).removesuffix("."), *dict.fromkeys(outside)]), "conclusions.sanity")


def _needs_runs(reason: str) -> Derived:
    def derive(facts: Facts) -> Answer | None:
        return not_applicable(reason)

    return derive


NUMBERS: dict[str, Derived] = {
    "throughput": throughput,
    "steps": steps,
    "gpu_power": gpu_power,
    "wall_power": wall_power,
    "per_watt": per_watt,
    "price": price,
    "per_money": per_money,
    "efficiency": efficiency,
    "bandwidth": bandwidth,
    "capacity": capacity,
    "compile_gain": compile_gain,
    "signals": signals,
    "fp8_gain": fp8_gain,
    "needs_two_cards": _needs_runs("a run has one model of GPU; rtxscale compare holds two runs against each other"),
    "needs_two_links": _needs_runs(
        "a run has one generation of PCIe; rtxscale compare holds two runs against each other"
    ),
}
