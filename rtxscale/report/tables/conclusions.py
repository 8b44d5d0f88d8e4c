"""The conclusions as small tables of text, shared by the terminal and the page.

Each builder takes frames of `Conclusions` and returns tables whose cells are final texts: numbers rounded, intervals
in brackets, units in the headings. Called by `terminal` and `page`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from rtxscale.analysis.conclusions import NEEDS_VISITS, UNCONFIRMED, Conclusions
from rtxscale.report.bandwidth_series import bandwidth_series, told_apart
from rtxscale.report.numbers import NOTHING, duration, gain, how_many, interval, number, percent, throughput_unit
from rtxscale.report.scaling_curves import leading_series
from rtxscale.stats.rounding import size

BASE = "base"
"""The analysis' note on the point that others are compared with: plain from the table itself."""
ONLY = "only cell"
SHORT = 16
"""Texts up to so many characters stay on one line."""
SIZES = 4
"""Message sizes shown of a bandwidth table."""
LOGGED = "Timed with NCCL's log on, which proves the settings and slows small messages: take latencies from nccl-tests."


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of texts. `right` names the columns that are set flush right; `note` stands below."""

    key: str
    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    right: frozenset[str] = frozenset()
    note: str = ""

    @property
    def whole(self) -> frozenset[str]:
        """Columns whose texts are too short to be broken over lines."""
        texts = zip(self.columns, zip(*self.rows, strict=True), strict=True) if self.rows else ()
        return frozenset(name for name, column in texts if max(map(len, column)) <= SHORT)


def scaling_tables(conclusions: Conclusions, workers: str) -> Iterator[Table]:
    """For each curve, the default series and the best one."""
    unit = unit_of(conclusions)
    columns = (workers, unit, "speed-up", "efficiency", "per extra")
    for kind in ("weak", "strong"):
        curve = conclusions.efficiency.filter((pl.col("curve") == kind) & pl.col("throughput_per_s").is_not_null())
        for label, points in leading_series(curve, conclusions.cells):
            yield Table(
                key=f"scaling-{kind}",
                title=f"{kind.capitalize()} scaling, {label}",
                columns=columns,
                rows=[_scaling_row(point) for point in points],
                right=frozenset(columns),
                note="; ".join(dict.fromkeys(filter(None, map(_note_words, points)))),
            )


def _note_words(point: dict[str, Any]) -> str:
    """The analysis' note on a point, where it says more than the table itself."""
    note = point["note"] or ""
    return "" if note == BASE else note.replace(NEEDS_VISITS, f"no interval: {NEEDS_VISITS}")


def scaling_words(workers: str) -> str:
    """What the columns of `scaling_tables` mean."""
    one = workers.removesuffix("s")
    return (
        f"Efficiency: throughput per {one} over that of the base. Per extra: what each {one} beyond the base adds, "
        "over the throughput of one."
    )


def unit_of(conclusions: Conclusions) -> str:
    """Unit of the throughput, such as `images/s`."""
    return throughput_unit(next(iter(conclusions.cells["work_unit"].drop_nulls()), None))


def _scaling_row(point: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(point["gpus"]),
        interval(point["throughput_per_s"], point["throughput_low"], point["throughput_high"]),
        number(point["speedup"], 3),
        interval(point["efficiency"], point["efficiency_low"], point["efficiency_high"], least=2),
        number(point["extra_gpu"], 3),
    )


def best_table(conclusions: Conclusions, workers: str) -> Table | None:
    """The best cell of each GPU count, by its gain over the default, where there is a choice; else None."""
    best = conclusions.best.filter(pl.col("verdict").fill_null("") != ONLY)
    if best.is_empty():
        return None
    several = best["curve"].n_unique() > 1
    columns = (
        workers,
        *(("curve",) if several else ()),
        "setting",
        unit_of(conclusions),
        "over the default",
        "verdict",
    )
    rows = [
        (
            str(row["gpus"]),
            *((row["curve"],) if several else ()),
            (row["label"] or NOTHING).removeprefix(f"gpus {row['gpus']}, "),
            number(row["throughput_per_s"]),
            gain(row["gain"], row["gain_low"], row["gain_high"]),
            row["verdict"] or NOTHING,
        )
        for row in best.iter_rows(named=True)
    ]
    right = frozenset({workers, unit_of(conclusions), "over the default"})
    open_ones = conclusions.confirmed.is_empty() and any(UNCONFIRMED in row[-1] for row in rows)
    note = "Selected gains flatter the best of many: `rtxscale confirm RUN` settles them." if open_ones else ""
    return Table(key="best", title="Best cells", columns=columns, rows=rows, right=right, note=note)


def confirmed_table(conclusions: Conclusions, workers: str) -> Table | None:
    """Gains over the default as selected and as confirmed, side by side; None where nothing was confirmed."""
    confirmed = conclusions.confirmed
    if confirmed.is_empty():
        return None
    several = confirmed["curve"].n_unique() > 1
    columns = (workers, *(("curve",) if several else ()), "setting", "selected", "confirmed", "visits", "verdict")
    rows = [
        (
            str(row["gpus"]),
            *((row["curve"] or NOTHING,) if several else ()),
            (row["label"] or NOTHING).removeprefix(f"gpus {row['gpus']}, "),
            gain(row["selected_gain"]),
            gain(row["gain"], row["gain_low"], row["gain_high"]),
            str(row["visits"]),
            row["verdict"] or NOTHING,
        )
        for row in confirmed.iter_rows(named=True)
    ]
    right = frozenset({workers, "selected", "confirmed", "visits"})
    return Table(key="confirmed", title="Gains over the default", columns=columns, rows=rows, right=right)


def effects_table(conclusions: Conclusions, workers: str) -> Table | None:
    """Effect of each value, largest change first; None without effects."""
    known = pl.col("ratio").is_finite() & (pl.col("ratio") > 0)
    effects = conclusions.effects.filter(known).sort(pl.col("ratio").log().abs(), descending=True)
    if effects.is_empty():
        return None
    columns = ("setting", "against", workers, "ratio", "p (Holm)", "verdict")
    rows = [
        (
            f"{row['axis']} {row['value']}",
            row["reference"] or NOTHING,
            str(row["gpus"]),
            interval(row["ratio"], row["ratio_low"], row["ratio_high"]),
            number(row["p_holm"], 2),
            row["verdict"] or NOTHING,
        )
        for row in effects.iter_rows(named=True)
    ]
    return Table(
        key="effects",
        title="Effect of each setting on throughput",
        columns=columns,
        rows=rows,
        right=frozenset({workers, "ratio", "p (Holm)"}),
        note=_holm_note(effects, workers),
    )


def _holm_note(effects: pl.DataFrame, workers: str) -> str:
    """Why an interval may exclude 1 where the verdict says that nothing can be told; empty where none does."""
    excludes = (pl.col("ratio_low") > 1) | (pl.col("ratio_high") < 1)
    open_ones = effects.filter(excludes & (pl.col("verdict") == "not separable")).height
    if not open_ones:
        return ""
    return (
        f"{open_ones} interval{'s exclude' if open_ones > 1 else ' excludes'} 1 where the verdict is not separable: "
        "an interval is that of one comparison alone, the verdict is corrected by Holm for all comparisons of its "
        f"number of {workers}, of which some would look different by chance."
    )


def bandwidth_tables(conclusions: Conclusions, workers: str) -> Iterator[Table]:
    """Bus bandwidth of each collective: settings down, message sizes across."""
    named = bandwidth_series(conclusions.bandwidth, conclusions.cells, workers)
    # nccl-tests' own numbers, once imported, are means alone.
    logged = [LOGGED] if conclusions.device == "cuda" and named["time_p50_s"].is_not_null().any() else []
    for operation in named["operation"].unique(maintain_order=True):
        rows = named.filter(pl.col("operation") == operation)
        sizes = _spread(sorted(rows["size_bytes"].unique().to_list()))
        known = {(row["series"], row["size_bytes"]): row["busbw_gb_s"] for row in rows.iter_rows(named=True)}
        labels = told_apart(rows)
        columns = ("setting", *(size(item) for item in sizes))
        left_out = rows["series"].n_unique() - len(labels)
        yield Table(
            key=f"bandwidth-{operation}",
            title=f"{str(operation).replace('_', '-')}, bus bandwidth in GB/s",
            columns=columns,
            rows=[(label, *(number(known.get((label, item)), 3) for item in sizes)) for label in labels],
            right=frozenset(columns[1:]),
            note=" ".join([f"{left_out} more settings are not shown."] * (left_out > 0) + logged),
        )


def _spread(sizes: list[int]) -> list[int]:
    """At most `SIZES` of them, the smallest and the largest included."""
    if len(sizes) <= SIZES:
        return sizes
    return [sizes[round(place * (len(sizes) - 1) / (SIZES - 1))] for place in range(SIZES)]


def drift_table(conclusions: Conclusions, workers: str) -> Table | None:
    """How far each session drifted by its sentinels, the largest spread first; None without sentinels."""
    drift = conclusions.drift.sort("spread", descending=True, nulls_last=True, maintain_order=True)
    if drift.is_empty():
        return None
    columns = ("session", workers, "visit", "sentinels", "length", "drift", "spread", "threshold", "verdict")
    rows = [
        (
            row["session_id"],
            str(row["gpus"]),
            str(row["visit"]),
            str(row["sentinels"]),
            duration(None if row["minutes"] is None else 60 * row["minutes"]),
            gain(row["drift"]),
            percent(row["spread"]),
            percent(row["threshold"]),
            row["verdict"],
        )
        for row in drift.iter_rows(named=True)
    ]
    return Table(
        key="drift",
        title="Drift within sessions",
        columns=columns,
        rows=rows,
        right=frozenset(columns[1:-1]),
        note="Drift: last sentinel against the first. Spread: largest against smallest; above the threshold it drifts.",
    )


def outcomes_table(conclusions: Conclusions) -> Table | None:
    """How trials ended and why; None when nothing was recorded."""
    if conclusions.outcomes.is_empty():
        return None
    rows = [
        (_ending(row), str(row["trials"]), row["example"] or NOTHING, row["message"] or NOTHING)
        for row in conclusions.outcomes.iter_rows(named=True)
    ]
    rows += [
        (
            f"{_ending(row)}, then tried again",
            f"{row['trials']} attempt{'s' * (row['trials'] != 1)}",
            row["example"] or NOTHING,
            row["message"] or NOTHING,
        )
        for row in conclusions.retries.iter_rows(named=True)
    ]
    columns = ("outcome", "trials", "example", "message")
    note = "A trial is counted once, by its last attempt." if conclusions.retries.height else ""
    return Table(key="outcomes", title="Outcomes", columns=columns, rows=rows, right=frozenset({"trials"}), note=note)


def _ending(row: dict[str, Any]) -> str:
    """The outcome, with what the trials were for where that is not the sweep's question."""
    return str(row["outcome"]) if row["stage"] == "sweep" else f"{row['outcome']} ({row['stage']})"


def cells_table(conclusions: Conclusions, workers: str, limit: int) -> Table | None:
    """The fastest `limit` cells of all; None without cells."""
    cells = conclusions.cells
    if cells.is_empty():
        return None
    shown = cells.sort(["gpus", "throughput_per_s"], descending=[False, True], nulls_last=True).head(limit)
    unit = unit_of(conclusions)
    columns = ("cell", "setting", workers, unit, "step (ms)", "power (W)", "memory (MiB)", "trials", "flags")
    rows = [
        (
            row["cell_id"],
            row["label"],
            str(row["gpus"]),
            interval(row["throughput_per_s"], row["throughput_low"], row["throughput_high"]),
            number(None if row["step_time_p50_s"] is None else 1000 * row["step_time_p50_s"]),
            number(row["power_w"]),
            number(row["memory_peak_mib"]),
            f"{row['trials']} in {how_many(row['sessions'], 'sessions')}",
            row["flags"] or NOTHING,
        )
        for row in shown.iter_rows(named=True)
    ]
    note = f"{cells.height - shown.height} more cells: rtxscale show --csv cells." if cells.height > limit else ""
    right = frozenset({workers, unit, "step (ms)", "power (W)", "memory (MiB)"})
    return Table(key="cells", title="All cells", columns=columns, rows=rows, right=right, note=note)
