"""Lines of a dossier that are numbers: the method's lengths, the conditions' extremes, the results with intervals.

One function a line, from `Facts` to an answer; None where the run does not say. Called by `report.dossier`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import polars as pl

from rtxscale.report.dossier_facts import DECLARED, Answer, Facts, amount, distinct, measured, not_applicable
from rtxscale.report.evidence import profile_words, steady_words
from rtxscale.report.numbers import gain, interval, number, percent, size, throughput_unit, worker_word
from rtxscale.spec.declare import NOT_APPLICABLE, UNKNOWN

Derived = Callable[[Facts], Answer | None]


def _range(name: str, unit: str, *, positive: bool = False) -> Derived:
    """Median, smallest and largest of a column of the counted trials."""

    def derive(facts: Facts) -> Answer | None:
        values = facts.counted[name].drop_nulls()
        values = values.filter(values > 0) if positive else values
        if values.is_empty():
            return None
        return measured(_spread(values, unit), f"trials.{name}")

    return derive


def _spread(values: pl.Series, unit: str) -> str:
    middle, low, high = (_number(value) for value in (values.median(), values.min(), values.max()))
    return f"{number(middle, 3)} {unit} median, {number(low, 3)} to {number(high, 3)} over {len(values)} trials"


def _number(value: Any) -> float:
    return float(value)


def profile(facts: Facts) -> Answer | None:
    """The profile, and whether it can be published."""
    known = facts.trials["profile"].drop_nulls()
    return None if known.is_empty() else measured(profile_words(facts.trials), "trials.profile")


def soak(facts: Facts) -> Answer | None:
    """Soaks, once per session, workload and precision; none is an answer."""
    values = facts.counted["soak_s"].drop_nulls()
    if values.is_empty():
        return None
    long = values.filter(values > 0)
    return measured("none" if long.is_empty() else _spread(long, "s"), "trials.soak_s")


def criterion(facts: Facts) -> Answer | None:
    """The criterion with its parameters."""
    words = steady_words(facts.counted)
    return None if words == UNKNOWN else measured(words, "trials.steady_criterion")


def steady(facts: Facts) -> Answer | None:
    """How many counted trials met the criterion, and how many attempts never did."""
    known = facts.counted["steady"].drop_nulls()
    if known.is_empty():
        return None
    unsteady = facts.trials.filter(pl.col("outcome") == "unsteady").height
    return measured(f"{known.sum()} of {len(known)}; {unsteady} attempts were never steady", "trials.steady")


def slopes(facts: Facts) -> Answer | None:
    """The steepest slopes over all counted trials."""
    texts = []
    for name, unit in (("temperature_slope", "degC/min"), ("sm_clock_slope", "1/min")):
        known = facts.counted[name].drop_nulls().abs()
        if not known.is_empty():
            texts.append(
                f"{name.removesuffix('_slope').replace('_', ' ')} at most {number(_number(known.max()), 2)} {unit}"
            )
    return measured("; ".join(texts), "trials.temperature_slope, trials.sm_clock_slope") if texts else None


def visits(facts: Facts) -> Answer | None:
    """Visits, sessions and repeats that count."""
    if facts.counted.is_empty():
        return None
    numbers = (facts.counted[name].n_unique() for name in ("visit", "session_id", "repeat"))
    return measured("visits {}, sessions {}, repeats {}".format(*numbers), "trials")


def window(facts: Facts) -> Answer | None:
    """Length of the windows in seconds and steps."""
    seconds, steps = (facts.counted[name].drop_nulls() for name in ("window_s", "window_steps"))
    if seconds.is_empty():
        return None
    inside = "" if steps.is_empty() else f"; {_spread(steps, 'steps')}"
    return measured(f"{_spread(seconds, 's')}{inside}", "trials.window_s, trials.window_steps")


def outcomes(facts: Facts) -> Answer | None:
    """All attempts by how they ended."""
    counts = Counter(facts.trials["outcome"].drop_nulls())
    return (
        measured(distinct(f"{count} {name}" for name, count in counts.most_common()), "trials.outcome")
        if counts
        else None
    )


def throttling(facts: Facts) -> Answer | None:
    """Windows with thermal or power-brake slowdown, and the reasons that the cards gave."""
    known = facts.counted["throttle_share"].drop_nulls()
    if known.is_empty():
        return None
    reasons = facts.telemetry["throttle_reasons"].explode().drop_nulls().unique().sort()
    said = f"; reasons seen: {distinct(reasons)}" if len(reasons) else ""
    return measured(f"{(known > 0).sum()} of {len(known)} windows{said}", "trials.throttle_share, telemetry")


def power_cap(facts: Facts) -> Answer | None:
    """The largest share of a window at the power limit."""
    known = facts.counted["power_cap_share"].drop_nulls()
    return (
        None
        if known.is_empty()
        else measured(f"at most {percent(_number(known.max()))} of a window", "trials.power_cap_share")
    )


def _largest(name: str, unit: str) -> Derived:
    """The largest of a column of the counted trials."""

    def derive(facts: Facts) -> Answer | None:
        known = facts.counted[name].drop_nulls()
        return None if known.is_empty() else measured(f"{number(_number(known.max()), 3)} {unit}", f"trials.{name}")

    return derive


def _telemetry(name: str, unit: str, how: str) -> Derived:
    """The largest or median over the used GPUs of what telemetry saw in the windows."""

    def derive(facts: Facts) -> Answer | None:
        known = facts.telemetry[name].drop_nulls()
        if known.is_empty():
            return None
        return measured(f"{number(_number(getattr(known, how)()), 4)} {unit}", f"telemetry.{name}, in the windows")

    return derive


def default_cells(facts: Facts) -> list[dict[str, Any]]:
    """The default cell of each workload, batch and GPU count; the fastest where the default has no result."""
    cells = facts.conclusions.cells.filter(pl.col("throughput_per_s").is_not_null())
    same = ["workload", "gpus", "batch_per_gpu"]
    cost = facts.conclusions.cost.drop("label", "gpus", "is_default", "throughput_per_s", "power_w")
    cells = cells.join(cost, on="cell_id", how="left", maintain_order="left")
    ordered = cells.sort("is_default", "throughput_per_s", descending=True).unique(
        same, keep="first", maintain_order=True
    )
    return ordered.sort(*same).to_dicts()


def _per_cell(facts: Facts, where: str, value: Callable[[dict[str, Any]], str | None]) -> Answer | None:
    workers = worker_word(facts.conclusions.device)
    texts = [f"{_cell_name(cell, workers)}: {text}" for cell in default_cells(facts) if (text := value(cell))]
    return measured("; ".join(texts), where) if texts else None


def _cell_name(cell: dict[str, Any], workers: str) -> str:
    batch = "" if cell["batch_per_gpu"] is None else f", batch {cell['batch_per_gpu']} each"
    kind = "" if cell["is_default"] else ", fastest cell"
    return f"{cell['gpus']} {workers if cell['gpus'] > 1 else workers.removesuffix('s')}{batch}{kind}"


def throughput(facts: Facts) -> Answer | None:
    """Throughput of the default cells, with intervals."""

    def value(cell: dict[str, Any]) -> str:
        numbers = interval(cell["throughput_per_s"], cell["throughput_low"], cell["throughput_high"])
        return f"{numbers} {throughput_unit(cell['work_unit'])}"

    return _per_cell(facts, "conclusions.cells", value)


def steps(facts: Facts) -> Answer | None:
    """Steps per second of the default cells, from the median step."""

    def value(cell: dict[str, Any]) -> str | None:
        step = cell["step_time_p50_s"]
        return f"{number(1 / step)} steps/s" if step else None

    return _per_cell(facts, "conclusions.cells", value)


def gpu_power(facts: Facts) -> Answer | None:
    """Power of the used GPUs together."""
    return _per_cell(
        facts, "conclusions.cells", lambda cell: f"{number(cell['power_w'])} W" if cell["power_w"] else None
    )


def per_watt(facts: Facts) -> Answer | None:
    """Throughput over GPU power, with intervals."""

    def value(cell: dict[str, Any]) -> str | None:
        low, high = (1 / cell[name] if cell[name] else None for name in ("energy_per_work_high", "energy_per_work_low"))
        numbers = interval(cell["work_per_j"], low, high)
        return f"{numbers} {throughput_unit(cell['work_unit'])} per W" if cell["work_per_j"] else None

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
        f"{row['curve']}, {row['gpus']} over {row['base_gpus']}: "
        f"{interval(row['efficiency'], row['efficiency_low'], row['efficiency_high'], 2)}"
        for row in rows.iter_rows(named=True)
    ]
    return measured(distinct(texts), "conclusions.efficiency") if texts else None


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
        f"largest batch per GPU that ran: {int(_number(batches.max()))}; {over} attempts out of memory", "trials"
    )


def compile_gain(facts: Facts) -> Answer | None:
    """The effect of compile at each GPU count, where it was an axis."""
    rows = facts.conclusions.effects.filter((pl.col("axis") == "workload.compile") & pl.col("ratio").is_not_null())
    if rows.is_empty():
        return not_applicable("compile was not varied")
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
    counts = Counter(rows["status"].drop_nulls())
    outside = [f"{row['rule']}: {row['words']}" for row in rows.filter(pl.col("status") == "outside").to_dicts()]
    texts = [f"{count} {status}" for status, count in sorted(counts.items())]
    return measured("; ".join([", ".join(texts), *dict.fromkeys(outside)]), "conclusions.sanity")


def _needs_runs(reason: str) -> Derived:
    def derive(facts: Facts) -> Answer | None:
        return not_applicable(reason)

    return derive


NUMBERS: dict[str, Derived] = {
    "profile": profile,
    "warmup": _range("warmup_s", "s"),
    "soak": soak,
    "load": _range("load_s", "s"),
    "criterion": criterion,
    "steady": steady,
    "slopes": slopes,
    "window": window,
    "visits": visits,
    "outcomes": outcomes,
    "throttling": throttling,
    "power_cap": power_cap,
    "sm_clock": _range("sm_clock_mhz", "MHz"),
    "temperature": _largest("temperature_max_c", "degC"),
    "memory_peak": _largest("memory_peak_mib", "MiB"),
    "memory_temperature": _telemetry("memory_temperature_c", "degC", "max"),
    "fan": _telemetry("fan_percent", "% at most", "max"),
    "memory_typical": _telemetry("memory_used_mib", "MiB used, median", "median"),
    "throughput": throughput,
    "steps": steps,
    "gpu_power": gpu_power,
    "per_watt": per_watt,
    "price": price,
    "per_money": per_money,
    "efficiency": efficiency,
    "bandwidth": bandwidth,
    "capacity": capacity,
    "compile_gain": compile_gain,
    "signals": signals,
    "fp8_gain": _needs_runs("FP8 was not varied"),
    "needs_two_cards": _needs_runs("a run has one model of GPU; compare two dossiers with --diff"),
    "needs_two_links": _needs_runs("a run has one generation of PCIe; compare two dossiers with --diff"),
}
