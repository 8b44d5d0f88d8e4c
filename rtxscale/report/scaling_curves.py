"""Weak and strong curves made ready to draw: which series are told apart, which are context, and where each begins.

Called by `charts.scaling` and `tables.conclusions`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from rtxscale.analysis.leading import ranked_series
from rtxscale.analysis.settings import UNTOLD
from rtxscale.report.chosen import GREY, evenly
from rtxscale.report.numbers import interval, number, telling

TOLD_APART = 6


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One curve made ready to draw: rows told apart, rows in grey, and the labels of the former in order."""

    kind: str
    rows: list[dict[str, Any]]
    context: list[dict[str, Any]]
    labels: list[str]
    others: int = 0
    """Series that are not told apart; of many, `context` holds only some."""

    @property
    def counts(self) -> list[int]:
        """GPU counts on the axis."""
        return sorted({row["gpus"] for row in self.rows})


def curve_of(kind: str, efficiency: pl.DataFrame, cells: pl.DataFrame | None = None) -> Curve:
    """Split the series into those told apart and those in grey, and give each the point of its base."""
    told = _told_apart(efficiency, cells)
    rows: list[dict[str, Any]] = []
    others: list[tuple[str, pl.DataFrame]] = []
    for (series, is_default), points in efficiency.sort("gpus").group_by("series", "is_default", maintain_order=True):
        label = _label(str(series), bool(is_default))
        if label in told:
            rows.extend(_row(label, point) for point in _with_base(points, efficiency))
        else:
            others.append((label, points))
    others.sort(key=lambda pair: (pair[1]["gpus"][-1], pair[1]["throughput_per_s"][-1]))
    context = [_row(label, point) for label, points in evenly(others, GREY) for point in _with_base(points, efficiency)]
    return Curve(kind=kind, rows=rows, context=context, labels=told, others=len(others))


def leading_series(efficiency: pl.DataFrame, cells: pl.DataFrame) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Label and points of the default series and of the best one, each led by its base."""
    labels = _told_apart(efficiency, cells) if not efficiency.is_empty() else []
    defaults = {_label(row["series"], True) for row in efficiency.iter_rows(named=True) if row["is_default"]}
    wanted = [label for label in labels if label in defaults]
    wanted += [label for label in _ranked(efficiency, cells) if label not in defaults][:1]
    groups = efficiency.sort("gpus").group_by("series", "is_default", maintain_order=True)
    found = {_label(str(series), bool(default)): points for (series, default), points in groups}
    for label in wanted:
        yield label, _with_base(found[label], efficiency)


def _label(series: str, is_default: bool) -> str:
    if not is_default or series == UNTOLD:
        return series
    return series if "default" in series.lower() else f"default ({series})" if series else "default"


def _told_apart(efficiency: pl.DataFrame, cells: pl.DataFrame | None) -> list[str]:
    """Labels, the leading series first; of many, only the defaults, the best and the worst at the largest GPU count."""
    labels = _ranked(efficiency, cells)
    if len(labels) <= TOLD_APART:
        return labels
    defaults = efficiency.filter("is_default")["series"].n_unique()
    by_rate = _ranked(efficiency)
    leading = labels[: max(1, min(defaults, TOLD_APART - 2))]
    return list(dict.fromkeys([*leading, *by_rate[defaults:][:1], by_rate[-1]]))


def _ranked(efficiency: pl.DataFrame, cells: pl.DataFrame | None = None) -> list[str]:
    """The labels of all series, the leading one first."""
    ranked = ranked_series(efficiency, cells)
    return [_label(row["series"], row["is_default"]) for row in ranked.iter_rows(named=True)]


def _with_base(points: pl.DataFrame, efficiency: pl.DataFrame) -> list[dict[str, Any]]:
    """The series' points, led by its base where the base belongs to another series (it is shared at one GPU)."""
    rows = points.to_dicts()
    first = rows[0]
    if first["base_gpus"] is None or first["gpus"] == first["base_gpus"]:
        return rows
    base = efficiency.filter(pl.col("cell_id") == first["base_cell_id"]).head(1).to_dicts()
    return [*base, *rows]


def _row(label: str, point: dict[str, Any]) -> dict[str, Any]:
    """The fields that the drawing and its tooltips need; nothing else travels into the page."""
    shares = (point["efficiency"], point["efficiency_low"], point["efficiency_high"])
    rates = (point["throughput_per_s"], point["throughput_low"], point["throughput_high"])
    (rate_low, rate_high), (share_low, share_high) = telling(*rates[1:]), telling(*shares[1:])
    return {
        "series": label,
        "is_default": point["is_default"],
        "gpus": point["gpus"],
        "rate": rates[0],
        "rate_low": rate_low,
        "rate_high": rate_high,
        "efficiency": shares[0],
        "efficiency_low": share_low,
        "efficiency_high": share_high,
        "rate_text": interval(*rates),
        "efficiency_text": interval(*shares, least=2),
        "speedup_text": number(point["speedup"], 3),
        "extra_text": number(point["extra_gpu"], 3),
        "note": point["note"] or "",
        "cell": point["cell_id"],
    }
