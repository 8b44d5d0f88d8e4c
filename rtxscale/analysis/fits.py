"""Scaling laws of every curve and the latency-bandwidth line of every collective, or why there is none.

Karp-Flatt, Amdahl and the universal law hold at constant total work, so they are taken of strong curves only;
Gustafson's of weak ones. Laws are fitted to the visits' means; each size has sessions of its own, so visits are
independent points. A collective's sizes share a session, so its line is fitted within each visit and the interval is
over visits. Called by `analysis.conclude`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import polars as pl

from rtxscale.analysis.bandwidth import right_rows
from rtxscale.analysis.cells import Replicates
from rtxscale.analysis.conclusions import NEEDS_VISITS
from rtxscale.analysis.frames import shaped
from rtxscale.analysis.headline import TOO_WIDE, too_wide
from rtxscale.analysis.tables import FITS
from rtxscale.stats import fits
from rtxscale.stats.differences import mean_interval
from rtxscale.stats.fits import Fit, Line, Refusal
from rtxscale.stats.intervals import geometric_mean_interval, log_moments

Row = dict[str, Any]

KARP_FLATT, AMDAHL, USL, GUSTAFSON, LINE = "Karp-Flatt", "Amdahl", "USL", "Gustafson", "alpha-beta"
CURVE_OF: dict[str, str] = {KARP_FLATT: "strong", AMDAHL: "strong", USL: "strong", GUSTAFSON: "weak"}
SOURCES: dict[str, str] = {
    KARP_FLATT: fits.KARP_FLATT_SOURCE,
    AMDAHL: fits.AMDAHL_SOURCE,
    USL: fits.USL_SOURCE,
    GUSTAFSON: fits.GUSTAFSON_SOURCE,
    LINE: fits.HOCKNEY_SOURCE,
}
SHARE = "serial share"
BELOW_ZERO = "below 0: noise or superlinear, check the base"
ABOVE_ONE = "above 1: noise or slower than the base"
SHORTEST_S = 1e-12
"""No collective is that fast."""
NOISE = 1e-9
"""A share nearer to zero is what floating-point numbers make of zero."""
ROUGH = 0.1
"""Points that scatter by more than this around a law do not follow it."""
CONSTANT_WORK = {"strong": "constant global batch", "weak": "constant batch per GPU"}


def fit_table(
    efficiency: pl.DataFrame,
    measured: Replicates,
    collectives: pl.DataFrame,
    counted: pl.DataFrame,
    cells: pl.DataFrame,
    attestation: pl.DataFrame,
) -> pl.DataFrame:
    """One row per law, curve and parameter; `value` is null and `note` says why where there is no fit."""
    rows = [*_curve_rows(efficiency, measured), *_line_rows(collectives, counted, cells, attestation)]
    return shaped(pl.DataFrame(rows, schema=FITS, orient="row"), FITS)


def _curve_rows(efficiency: pl.DataFrame, measured: Replicates) -> Iterator[Row]:
    if not efficiency.height:
        return
    for law, curve in CURVE_OF.items():
        points = efficiency.filter(pl.col("curve") == curve)
        if not points.height:
            words = f"holds at {CONSTANT_WORK[curve]}; the run has no {curve} curve"
            yield _row(law, curve=curve, parameter=_PARAMETERS[law][0][0], note=words)
        for group in points.partition_by(["series", "base_cell_id"], maintain_order=True):
            yield from _LAWS[law](law, group.sort("gpus"), measured)


def _per_size(law: str, group: pl.DataFrame, measured: Replicates) -> Iterator[Row]:
    """The serial share at each size, from the speed-up and its interval."""
    share = fits.karp_flatt if law == KARP_FLATT else fits.gustafson
    for point in group.filter(pl.col("cell_id") != pl.col("base_cell_id")).iter_rows(named=True):
        scale = point["gpus"] / point["base_gpus"]
        told = _bounded(point["efficiency_low"], point["efficiency_high"])
        bounds = [None if bound is None else bound * scale for bound in told[:2]]
        value, high, low = (
            None if speedup is None else _settled(float(share(speedup, scale)))
            for speedup in (point["speedup"], *bounds)
        )
        notes = [_relative(point), told[2], _beyond(value, low, high)]
        yield _row(
            law,
            **_place(point),
            cell_id=point["cell_id"],
            gpus=point["gpus"],
            parameter=SHARE,
            unit="1",
            value=value,
            low=low,
            high=high,
            note=_joined(notes),
        )


def _fitted(law: str, group: pl.DataFrame, measured: Replicates) -> Iterator[Row]:
    """The parameters of one law over the visits of one curve."""
    first = group.row(0, named=True)
    points = group.select("cell_id", "gpus").join(measured.visits, on="cell_id").sort("gpus", "visit")
    scale = points["gpus"].to_numpy() / first["base_gpus"]
    fit = (fits.fit_amdahl if law == AMDAHL else fits.fit_usl)(scale, points["throughput_per_s"].to_numpy())
    names = _PARAMETERS[law]
    if isinstance(fit, Refusal):
        yield _row(law, **_place(first), parameter=names[0][0], note=_joined([_relative(first), fit.words]))
        return
    values = zip(names, *_shares(fit), strict=True)
    for (name, unit), value, low, high in values:
        beyond = _beyond(value, low, high) if name == SHARE else BELOW_ZERO if _negative(high) else ""
        notes = [_relative(first), beyond, _rough(fit.scatter)]
        yield _row(
            law,
            **_place(first),
            parameter=name,
            unit=unit,
            value=value,
            low=low,
            high=high,
            sizes=fit.sizes,
            points=fit.points,
            scatter=fit.scatter,
            note=_joined([*notes, _peak(fit, first) if law == USL and name == "coherency" else ""]),
        )


_PARAMETERS: dict[str, tuple[tuple[str, str], ...]] = {
    KARP_FLATT: ((SHARE, "1"),),
    AMDAHL: ((SHARE, "1"),),
    USL: (("contention", "1"), ("coherency", "1")),
    GUSTAFSON: ((SHARE, "1"),),
}
_LAWS: dict[str, Callable[[str, pl.DataFrame, Replicates], Iterator[Row]]] = {
    KARP_FLATT: _per_size,
    AMDAHL: _fitted,
    USL: _fitted,
    GUSTAFSON: _per_size,
}


def _line_rows(
    collectives: pl.DataFrame, counted: pl.DataFrame, cells: pl.DataFrame, attestation: pl.DataFrame
) -> Iterator[Row]:
    """Latency and bandwidth of each cell's collectives; one GPU has no bus."""
    rows = right_rows(collectives, counted).filter((pl.col("busbw_gb_s") > 0) & (pl.col("time_mean_s") > SHORTEST_S))
    if not rows.height:
        return
    seen = _seen(counted, attestation)
    means = rows.group_by("cell_id", "operation", "visit", "size_bytes", maintain_order=True).agg(
        pl.col("time_mean_s").mean(), (pl.col("busbw_gb_s") / pl.col("algbw_gb_s")).mean().alias("bus_factor")
    )
    ordered = cells.select("cell_id", "label", "gpus", "is_default").join(means, on="cell_id", maintain_order="left")
    for group in ordered.partition_by(["cell_id", "operation"], maintain_order=True):
        first = group.row(0, named=True)
        place = {
            "series": first["label"],
            "is_default": first["is_default"],
            "cell_id": first["cell_id"],
            "gpus": first["gpus"],
            "operation": first["operation"],
            **seen.get(first["cell_id"], {}),
        }
        yield from _lines(group, place)


def _lines(group: pl.DataFrame, place: Row) -> Iterator[Row]:
    found = [
        fits.fit_line(visit["size_bytes"].to_numpy(), visit["time_mean_s"].to_numpy())
        for visit in group.partition_by("visit", maintain_order=True)
    ]
    lines = [line for line in found if isinstance(line, Line)]
    if not lines:
        words = next(line.words for line in found if isinstance(line, Refusal))
        yield _row(LINE, **place, parameter="latency", note=words)
        return
    latency = mean_interval([line.latency_s for line in lines])
    rates = log_moments([line.bytes_per_s for line in lines])
    rate = geometric_mean_interval(rates)
    factor = float(np.mean(group["bus_factor"].to_numpy())) / 1e9
    scatter = float(np.mean([line.scatter for line in lines]))
    notes = [_rough(scatter), _mixed(place)]
    shared = {
        "sizes": min(line.sizes for line in lines),
        "points": sum(line.sizes for line in lines),
        "scatter": scatter,
    }
    low, high, few = _bounded(float(rate.low), float(rate.high))
    alone = NEEDS_VISITS if len(lines) < 2 else ""
    told: Row = {"value": float(latency.estimate), "low": float(latency.low), "high": float(latency.high)}
    yield _row(LINE, **place, parameter="latency", unit="s", **told, **shared, note=_joined([alone, *notes]))
    told = {"value": factor * float(rate.estimate), "low": _times(factor, low), "high": _times(factor, high)}
    yield _row(LINE, **place, parameter="bus bandwidth", unit="GB/s", **told, **shared, note=_joined([few, *notes]))


def _bounded(low: float | None, high: float | None) -> tuple[float | None, float | None, str]:
    """Bounds of a ratio, none where they say nothing, and why there are none.

    >>> _bounded(0.9, 1.0), _bounded(float("nan"), float("nan"))
    ((0.9, 1.0, ''), (None, None, 'needs >= 2 visits'))
    """
    known = [bound if bound is not None and np.isfinite(bound) else None for bound in (low, high)]
    if known[0] is None:
        return None, None, NEEDS_VISITS
    return (None, None, TOO_WIDE) if too_wide(*known) else (known[0], known[1], "")


def _times(factor: float, bound: float | None) -> float | None:
    return None if bound is None else factor * bound


def _seen(counted: pl.DataFrame, attestation: pl.DataFrame) -> dict[str, Row]:
    """Cell id -> the algorithms and protocols that its trials were seen to use, else what was asked for."""
    subjects = {"nccl.algorithm": "algorithm", "nccl.protocol": "protocol"}
    asked = counted.select(
        "cell_id", pl.col("nccl_algorithm").alias("algorithm"), pl.col("nccl_protocol").alias("protocol")
    )
    names: dict[str, Row] = {
        row["cell_id"]: {name: row[name] for name in subjects.values()} for row in asked.iter_rows(named=True)
    }
    observed = (
        attestation.filter(pl.col("subject").is_in(list(subjects)) & pl.col("observed").is_not_null())
        .join(counted.select("trial_id", "attempt", "cell_id"), on=["trial_id", "attempt"])
        .select("cell_id", "subject", pl.col("observed").str.split(", "))
        .explode("observed")
        .group_by("cell_id", "subject")
        .agg(pl.col("observed").unique().sort().str.join(", "))
    )
    for row in observed.iter_rows(named=True):
        names[row["cell_id"]][subjects[row["subject"]]] = row["observed"]
    return names


def _mixed(place: Row) -> str:
    mixed = [name for name in ("algorithm", "protocol") if ", " in (place.get(name) or "")]
    return f"one line over more than one {' and '.join(mixed)}" if mixed else ""


def _shares(fit: Fit) -> list[list[float]]:
    """Values, lower and upper bounds of what a law has beside the throughput of one worker."""
    interval = fit.parameters
    columns = (interval.estimate, interval.low, interval.high)
    return [[_settled(value) for value in column[1:].tolist()] for column in columns]


def _settled(share: float) -> float:
    """The share, zero where it is but noise.

    >>> _settled(-1.6e-15), _settled(-0.02)
    (0.0, -0.02)
    """
    return 0.0 if abs(share) < NOISE else share


def _peak(fit: Fit, first: Row) -> str:
    """Where throughput would turn, when the coherency is more than noise."""
    (contention, coherency), (_, low), _ = _shares(fit)
    peak = fits.usl_peak(contention, coherency) if low > 0 else None
    return "" if peak is None else f"throughput would peak at {peak * first['base_gpus']:.0f} GPUs"


def _relative(point: Row) -> str:
    return "" if point["base_gpus"] == 1 else f"relative to {point['base_gpus']} GPUs"


def _rough(scatter: float) -> str:
    return f"the points scatter by {100 * scatter:.0f} % and do not follow it" if scatter > ROUGH else ""


def _beyond(share: float | None, low: float | None, high: float | None) -> str:
    """What is said of a serial share that is none, or whose interval holds such.

    >>> _beyond(1.2, None, None), _beyond(0.1, -0.1, 0.3), _beyond(0.1, 0.0, 0.3)
    ('above 1: noise or slower than the base', 'reaches below 0: noise or superlinear', '')
    """
    if share is None:
        return ""
    if share < 0 or share > 1:
        return BELOW_ZERO if share < 0 else ABOVE_ONE
    below, above = low is not None and low < 0, high is not None and high > 1
    if below and above:
        return "reaches below 0 and above 1: noise"
    if below:
        return "reaches below 0: noise or superlinear"
    return "reaches above 1: noise or slower than the base" if above else ""


def _negative(value: float | None) -> bool:
    return value is not None and value < 0


def _place(point: Row) -> Row:
    return {name: point[name] for name in ("curve", "series", "is_default")}


def _joined(notes: Iterable[str]) -> str:
    return "; ".join(note for note in notes if note)


def _row(law: str, **columns: Any) -> Row:
    known: Row = dict.fromkeys(FITS)
    return known | {"law": law, "source": SOURCES[law]} | columns
