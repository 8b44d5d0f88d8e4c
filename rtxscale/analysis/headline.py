"""The answer of a run in one sentence, or what is missing for one and what to run next.

Beside the default settings only a confirmed gain is headlined: a winner chosen among many cells is called unconfirmed
until it has been measured again. Called by `analysis.conclude`.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from rtxscale.analysis.conclusions import (
    CONFIRMED_FASTER,
    CONFIRMED_SLOWER,
    NEEDS_VISITS,
    UNCONFIRMED,
    Advice,
)
from rtxscale.analysis.leading import leading_points
from rtxscale.analysis.settings import DEFAULTS, UNTOLD, beside_size, in_words
from rtxscale.results.outcomes import Outcome
from rtxscale.spec.sweep import SUBJECT_AXES
from rtxscale.stats.rounding import WIDEST, rounded, size

TOO_WIDE = f"interval wider than x{WIDEST}: more visits"
"""Stands in place of such an interval: what is wrong with it, and what helps."""


def headline(
    cells: pl.DataFrame,
    efficiency: pl.DataFrame,
    best: pl.DataFrame,
    confirmed: pl.DataFrame,
    bandwidth: pl.DataFrame,
    outcomes: pl.DataFrame,
    advice: Advice,
) -> str:
    """One sentence from the tables of a run; `cells` is `CellTable.frame`, `advice` how to learn more."""
    if not outcomes.height:
        return "Nothing has been measured yet; run the sweep."
    if not cells.height:
        return _nothing_ok(outcomes, advice)
    if efficiency.height:
        return _scaling(cells, efficiency, best, confirmed, advice)
    if cells["throughput_per_s"].is_not_null().any():
        return _no_curve(cells, confirmed, advice)
    if bandwidth.height:
        return _bandwidth(cells, bandwidth, advice)
    return "The trials ended ok but hold neither a throughput nor a bandwidth; see the remarks."


def interval_text(value: float, low: float | None, high: float | None) -> str:
    """A ratio with its interval, where it has one.

    >>> interval_text(0.93, 0.91, 0.94), interval_text(0.93, None, None)
    ('0.93 (0.91-0.94)', '0.93')
    >>> interval_text(0.93, 0.05, 17.0)
    '0.93 (interval wider than x10: more visits)'
    """
    if too_wide(low, high):
        return f"{value:.2f} ({TOO_WIDE})"
    return f"{value:.2f}" if low is None or high is None else f"{value:.2f} ({low:.2f}-{high:.2f})"


def too_wide(low: float | None, high: float | None) -> bool:
    """Whether the ends differ by more than the factor `WIDEST`; an upper end that is not finite is null.

    >>> too_wide(0.9, 1.0), too_wide(0.0, None), too_wide(None, None)
    (False, True, False)
    """
    return low is not None and (high is None or high > WIDEST * low)


def hardware_text(cell: dict[str, Any]) -> str:
    """What a cell ran on, such as `4x NVIDIA H200` or `2 CPU workers`."""
    gpus, name = cell["gpus"], cell["device_name"]
    if cell["device"] == "cpu":
        return f"{gpus} CPU worker{'s' if gpus > 1 else ''}"
    return f"{gpus}x {name}" if name else f"{gpus} GPU{'s' if gpus > 1 else ''}"


def _nothing_ok(outcomes: pl.DataFrame, advice: Advice) -> str:
    """What came of trials of which none counts, why nothing follows from that, and what to do."""
    counts = ", ".join(f"{row['trials']} {row['outcome']}" for row in outcomes.iter_rows(named=True))
    first = outcomes.row(0, named=True)
    if set(outcomes["outcome"]) == {Outcome.CANCELLED}:
        return f"Nothing can be concluded yet: {counts}; {advice.finish}."
    reason = f" ({first['message']})" if first["message"] else ""
    why = ", but without a number that can count, as the remarks say" if first["outcome"] == Outcome.OK else ""
    return (
        f"Nothing can be concluded, as no trial can be counted: {counts}{why}. Look at `rtxscale explain "
        f"{first['example']}`{reason}; {advice.begin_again}."
    )


def _scaling(
    cells: pl.DataFrame, efficiency: pl.DataFrame, best: pl.DataFrame, confirmed: pl.DataFrame, advice: Advice
) -> str:
    chosen = leading_points(cells, efficiency)
    most = max(item["gpus"] for item in chosen)
    chosen = [item for item in chosen if item["gpus"] == most]
    row = chosen[0]
    cell = cells.row(by_predicate=pl.col("cell_id") == row["cell_id"], named=True)
    base = "one" if row["base_gpus"] == 1 else str(row["base_gpus"])
    scale = row["gpus"] / row["base_gpus"]
    low, high = row["efficiency_low"], row["efficiency_high"]
    # An interval that is too wide is said once, beside the efficiency.
    bounds = "" if None in (low, high) or too_wide(low, high) else f" ({low * scale:.2f}-{high * scale:.2f})"
    kinds = ", ".join(_efficiency(item, None if item is row else row["base_gpus"]) for item in chosen)
    sentence = (
        f"{hardware_text(cell)} run {cell['workload']} at {row['speedup']:.2f}x{bounds} of {base}, {kinds}, "
        f"with {_settings(cell)}"
    )
    if any(NEEDS_VISITS in item["note"] for item in chosen):
        sentence += f"; one visit gives no interval, {advice.more_visits}"
    return f"{sentence}{_default_missing(row, cell)}{_winner(cells, best, confirmed, (row, cell), advice)}."


def _default_missing(row: dict[str, Any], cell: dict[str, Any]) -> str:
    """That the default settings, which the sentence would be about, have no result here or at more workers."""
    if not row["is_default"]:
        return "; the default settings have no result, this is the fastest of the others"
    if row["gpus"] == row["largest"]:
        return ""
    workers = "CPU workers" if cell["device"] == "cpu" else "GPUs"
    return f"; the default settings have no result at {row['largest']} {workers}"


def _efficiency(row: dict[str, Any], said: int | None) -> str:
    """A curve's efficiency; with its speed-up where the sentence has `said` another one, over so many GPUs."""
    value = interval_text(row["efficiency"], row["efficiency_low"], row["efficiency_high"])
    words = f"{row['curve']} efficiency {value}"
    if said is not None:
        words += f" at {row['speedup']:.2f}x" + ("" if row["base_gpus"] == said else f" of {row['base_gpus']}")
    if row["batches"] > 1:
        words += f" for batch {row['constant']} {'per GPU' if row['curve'] == 'weak' else 'in all'}"
    if row["curves"] < 2:
        return words
    return f"{words}, one of {row['curves']} {'default ' if row['curves'] < row['every'] else ''}curves"


def _settings(cell: dict[str, Any]) -> str:
    """The settings of a cell, without what the sentence names already: its workload and card."""
    named = _beside_subject(cell, str(cell["series"]))
    if not cell["is_default"]:
        return named or str(cell["series"])
    if not named:
        return str(cell["defaults"])
    return f"{named} and {'default communication' if cell['defaults'] == DEFAULTS else cell['defaults']}"


def _beside_subject(cell: dict[str, Any], words: str) -> str:
    """Settings in words without those that the workload's or the card's name says.

    >>> _beside_subject({"workload": "vision/vgg", "device_name": "H200"}, "model vgg, torch.compile, fp32")
    'torch.compile, fp32'
    """
    kind, _, name = cell["workload"].partition("/")
    subject = {in_words(axis, kind if axis == "workload.kind" else name) for axis in SUBJECT_AXES}
    said = {cell["workload"], cell["device_name"], DEFAULTS, UNTOLD, *subject}
    return ", ".join(word for word in words.split(", ") if word not in said)


def _winner(
    cells: pl.DataFrame,
    best: pl.DataFrame,
    confirmed: pl.DataFrame,
    headlined: tuple[dict[str, Any], dict[str, Any]],
    advice: Advice,
) -> str:
    """The best cell of the same GPU count, batch and workload settings, if it is another than the default.

    `headlined` is the point of the curve and its cell.
    """
    row, cell = headlined
    if not row["is_default"]:
        return ""
    same = pl.all_horizontal(pl.col(name).eq_missing(pl.lit(cell[name])) for name in ("gpus", "global_batch", "rest"))
    alike = cells.filter(same)["cell_id"]
    own = (pl.col("curve") == row["curve"]) & pl.col("cell_id").is_in(alike.implode())
    settled, found = confirmed.filter(own), best.filter(own & (pl.col("gain") > 0))
    if settled.height:
        return f"; {_confirmation(settled.row(0, named=True))}"
    if not found.height:
        return ""
    one = found.sort("gain", descending=True).row(0, named=True)
    name, gain = one["label"].partition(", ")[2], f"{100 * one['gain']:.1f} %"
    if one["gain_low"] is None:
        return f"; fastest measured: {name}, {gain} over the default, {UNCONFIRMED}; {advice.settle}"
    if one["gain_low"] > 0:
        return f"; best cell ({name}) measured {gain} faster, {UNCONFIRMED}; {advice.settle}"
    return f"; no setting is separable from the defaults (fastest measured: {name}, +{gain})"


def _confirmation(row: dict[str, Any]) -> str:
    """What the confirmation says of a selected cell; only here is a gain called one."""
    name, gain = row["label"].partition(", ")[2], row["gain"]
    if row["verdict"] == CONFIRMED_FASTER:
        faster = _percent(gain, row["gain_low"], row["gain_high"])
        return f"{name} is confirmed {faster} faster than the default"
    if row["verdict"] == CONFIRMED_SLOWER:
        slower = _percent(-gain, -row["gain_high"], -row["gain_low"])
        return f"{name}, selected as the fastest, is confirmed {slower} slower than the default"
    if row["verdict"] == NEEDS_VISITS:
        return f"{name}, selected as the fastest, is {UNCONFIRMED}: its confirmation {NEEDS_VISITS}"
    bounds = _percent(gain, row["gain_low"], row["gain_high"], sign="+")
    return f"{name}, selected as the fastest, is not confirmed: measured again, {bounds} against the default"


def _percent(value: float, low: float, high: float | None, sign: str = "") -> str:
    """A relative change with its interval, in percent.

    >>> _percent(0.0412, 0.0321, 0.0503), _percent(0.002, -0.004, 0.008, sign="+")
    ('4.1 % (3.2-5.0)', '+0.2 % (-0.4 to +0.8)')
    """
    if high is None or too_wide(1 + low, 1 + high):
        return f"{100 * value:{sign}.1f} % ({TOO_WIDE})"
    middle, left, right = (f"{round(100 * number, 1) + 0.0:{sign}.1f}" for number in (value, low, high))
    return f"{middle} % ({left}{' to ' if sign else '-'}{right})"


def _no_curve(cells: pl.DataFrame, confirmed: pl.DataFrame, advice: Advice) -> str:
    known = cells.filter(pl.col("throughput_per_s").is_not_null())
    sizes = known["gpus"].unique().sort().to_list()
    # Of several models the first is spoken of: work per second says nothing between them.
    own = known.filter(pl.col("workload") == known["workload"][0])
    fastest = own.sort("throughput_per_s", descending=True).row(0, named=True)
    counts = ", ".join(map(str, sizes))
    workers = "CPU workers" if fastest["device"] == "cpu" else "GPUs"
    one = workers.removesuffix("s")
    missing = f"1 {one} as the base" if 1 not in sizes else f"a second {one} count"
    if len(sizes) > 1:
        missing = f"two {one} counts with equal batch (weak: per {one}, strong: global) and otherwise equal settings"
    unit = fastest["work_unit"] or "unit"
    settings = _beside_subject(fastest, beside_size(fastest["label"] or ""))
    rate = f"{rounded(fastest['throughput_per_s'])} {unit}s/s"
    settled = (
        confirmed.sort("gpus", descending=True, maintain_order=True).unique("gpus", maintain_order=True).to_dicts()
    )
    found = "".join(f"; at {row['gpus']} {workers} {_confirmation(row)}" for row in settled)
    return (
        f"No efficiency yet: {one} counts with a result: {counts}; {hardware_text(fastest)}: {fastest['workload']}"
        f"{f' with {settings}' if settings else ''} at {rate}; {advice.run} {missing}{found}."
    )


def _bandwidth(cells: pl.DataFrame, bandwidth: pl.DataFrame, advice: Advice) -> str:
    wide = bandwidth.filter(pl.col("gpus") > 1)
    if not wide.height:
        more = "an output of 2 GPUs" if advice.imported else "2 GPUs"
        return f"Collectives ran on one GPU only, which has no bus bandwidth; {advice.run} {more} or more."
    ranked = wide.join(cells.select("cell_id", "is_default"), on="cell_id")
    order = ["gpus", "is_default", "size_bytes", "busbw_gb_s"]
    row = ranked.sort(order, descending=True, nulls_last=True).row(0, named=True)
    cell = cells.row(by_predicate=pl.col("cell_id") == row["cell_id"], named=True)
    if row["busbw_gb_s"] is None:
        return f"{hardware_text(cell)} ran {row['operation']}, but no bandwidth was recorded; see the remarks."
    low, high = row["busbw_low"], row["busbw_high"]
    bounds = "" if low is None or high is None else f" ({low:.3g}-{high:.3g})"
    if too_wide(low, high):
        bounds = f" ({TOO_WIDE})"
    defaults = cell["defaults"] if advice.imported else DEFAULTS
    settings = defaults if cell["is_default"] else cell["series"]
    return (
        f"{hardware_text(cell)}: {row['busbw_gb_s']:.3g}{bounds} GB/s bus bandwidth in {row['operation']} of "
        f"{size(row['size_bytes'])} with {settings}."
    )
