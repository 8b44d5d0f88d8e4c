"""The answer of a run in one sentence, or what is missing for one and what to run next.

Only the default settings are headlined: a winner chosen among many cells is called unconfirmed. Called by
`analysis.conclude`.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from rtxscale.analysis.conclusions import NEEDS_VISITS


def headline(
    cells: pl.DataFrame, efficiency: pl.DataFrame, best: pl.DataFrame, bandwidth: pl.DataFrame, outcomes: pl.DataFrame
) -> str:
    """One sentence from the tables of a run; `cells` is `CellTable.frame`."""
    if not outcomes.height:
        return "Nothing has been measured yet; run the sweep."
    if not cells.height:
        return _nothing_ok(outcomes)
    if efficiency.height:
        return _scaling(cells, efficiency, best)
    if cells["throughput_per_s"].is_not_null().any():
        return _no_curve(cells)
    if bandwidth.height:
        return _bandwidth(cells, bandwidth)
    return "The trials ended ok but hold neither a throughput nor a bandwidth; see the remarks."


def interval_text(value: float, low: float | None, high: float | None) -> str:
    """A ratio with its interval.

    >>> interval_text(0.93, 0.91, 0.94), interval_text(0.93, None, None)
    ('0.93 (0.91-0.94)', '0.93')
    """
    return f"{value:.2f}" if low is None or high is None else f"{value:.2f} ({low:.2f}-{high:.2f})"


def hardware_text(cell: dict[str, Any]) -> str:
    """What a cell ran on, such as `4x NVIDIA H200` or `2 CPU workers`."""
    gpus, name = cell["gpus"], cell["device_name"]
    if cell["device"] == "cpu":
        return f"{gpus} CPU worker{'s' if gpus > 1 else ''}"
    return f"{gpus}x {name}" if name else f"{gpus} GPU{'s' if gpus > 1 else ''}"


def _nothing_ok(outcomes: pl.DataFrame) -> str:
    counts = ", ".join(f"{row['trials']} {row['outcome']}" for row in outcomes.iter_rows(named=True))
    first = outcomes.row(0, named=True)
    reason = f" ({first['message']})" if first["message"] else ""
    return f"No trial can be counted: {counts}; first look at {first['example']}{reason}."


def _scaling(cells: pl.DataFrame, efficiency: pl.DataFrame, best: pl.DataFrame) -> str:
    chosen = _headlined(efficiency)
    row = chosen[0]
    cell = cells.row(by_predicate=pl.col("cell_id") == row["cell_id"], named=True)
    base = "one" if row["base_gpus"] == 1 else str(row["base_gpus"])
    scale = row["gpus"] / row["base_gpus"]
    bounds = [None if row[name] is None else row[name] * scale for name in ("efficiency_low", "efficiency_high")]
    speedup = interval_text(row["speedup"], *bounds).replace(" (", "x (", 1) if bounds[0] else f"{row['speedup']:.2f}x"
    kinds = ", ".join(_efficiency(item) + (f" at {item['speedup']:.2f}x" if item is not row else "") for item in chosen)
    sentence = (
        f"{hardware_text(cell)} run {cell['workload']} at {speedup} of {base}, {kinds}, with {_settings(row, cell)}"
    )
    if any(NEEDS_VISITS in item["note"] for item in chosen):
        sentence += "; one visit gives no interval, run at least 2"
    return f"{sentence}{_winner(best, row)}."


def _efficiency(row: dict[str, Any]) -> str:
    value = interval_text(row["efficiency"], row["efficiency_low"], row["efficiency_high"])
    return f"{row['curve']} efficiency {value}"


def _headlined(efficiency: pl.DataFrame) -> list[dict[str, Any]]:
    """The largest size of the first default series of each curve, weak before strong; else of any series."""
    points = efficiency.filter(pl.col("cell_id") != pl.col("base_cell_id"))
    default = points.filter("is_default")
    used = default if default.height else points
    largest = used.filter(pl.col("gpus") == pl.col("gpus").max())
    return largest.unique("curve", keep="first", maintain_order=True).to_dicts()


def _settings(row: dict[str, Any], cell: dict[str, Any]) -> str:
    if not row["is_default"]:
        return str(row["series"])
    defaults = "defaults" if cell["device"] == "cpu" else "NCCL's and DDP's defaults"
    return defaults if row["series"].startswith("defaults") else f"{row['series']} and {defaults}"


def _winner(best: pl.DataFrame, row: dict[str, Any]) -> str:
    found = best.filter((pl.col("gpus") == row["gpus"]) & (pl.col("curve") == row["curve"]) & (pl.col("gain") > 0))
    if not row["is_default"] or not found.height:
        return ""
    one = found.sort("gain", descending=True).row(0, named=True)
    name, gain = one["label"].partition(", ")[2], f"{100 * one['gain']:.1f} %"
    if one["gain_low"] is None:
        return f"; fastest measured: {name}, {gain} over the default, unconfirmed"
    if one["gain_low"] > 0:
        return f"; best cell ({name}) measured {gain} faster, unconfirmed"
    return f"; no setting is separable from the defaults (fastest measured: {name}, {gain})"


def _no_curve(cells: pl.DataFrame) -> str:
    known = cells.filter(pl.col("throughput_per_s").is_not_null())
    sizes = known["gpus"].unique().sort().to_list()
    fastest = known.sort("throughput_per_s", descending=True).row(0, named=True)
    counts = ", ".join(map(str, sizes))
    missing = "1 GPU as the base" if 1 not in sizes else "a second GPU count"
    if len(sizes) > 1:
        missing = "two GPU counts with equal batch (weak: per GPU, strong: global) and otherwise equal settings"
    unit = fastest["work_unit"] or "unit"
    return (
        f"No efficiency yet: GPU counts with a result: {counts}; {hardware_text(fastest)}: {fastest['workload']} at "
        f"{fastest['throughput_per_s']:.4g} {unit}s/s; run {missing}."
    )


def _bandwidth(cells: pl.DataFrame, bandwidth: pl.DataFrame) -> str:
    wide = bandwidth.filter(pl.col("gpus") > 1)
    if not wide.height:
        return "Collectives ran on one GPU only, which has no bus bandwidth; run 2 GPUs or more."
    ranked = wide.join(cells.select("cell_id", "is_default"), on="cell_id")
    order = ["gpus", "is_default", "size_bytes", "busbw_gb_s"]
    row = ranked.sort(order, descending=True, nulls_last=True).row(0, named=True)
    cell = cells.row(by_predicate=pl.col("cell_id") == row["cell_id"], named=True)
    if row["busbw_gb_s"] is None:
        return f"{hardware_text(cell)} ran {row['operation']}, but no bandwidth was recorded; see the remarks."
    low, high = row["busbw_low"], row["busbw_high"]
    bounds = "" if low is None or high is None else f" ({low:.3g}-{high:.3g})"
    return (
        f"{hardware_text(cell)}: {row['busbw_gb_s']:.3g}{bounds} GB/s bus bandwidth in {row['operation']} of "
        f"{row['size_bytes'] / 2**20:g} MiB with {'defaults' if cell['is_default'] else cell['series']}."
    )
