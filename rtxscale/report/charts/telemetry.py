"""Power, temperature, clock, load and memory of every GPU over the run, with windows and slowdowns shaded.

Samples are averaged into bins before they are drawn, and long pauses between invocations are cut out of the time axis;
the caption says so. Where a bin would mix windows with the gaps between them, it holds only samples inside windows.
What a machine does not report has no chart. Called by `charts.figures`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

from rtxscale.report.charts.figure import Figure, chart_of, series_color, tooltips
from rtxscale.report.charts.throttle_bands import throttled_spans, throttled_words
from rtxscale.report.numbers import number
from rtxscale.telemetry.window import WALL

TICK_NS = 500_000_000
"""Samples are first averaged over half seconds."""
LONGEST_PAUSE_S = 30.0
SHOWN_PAUSE_S = 5.0
BINS = 500
POINTS = 3200
"""Most points of one chart, over all devices."""
BANDS = 200
"""Most spans of slowdowns that one chart shows."""
FINE_S = 1.5
"""Bins up to this width still show each window by itself."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One chart: a column of the telemetry table, its axis title, and what its values are multiplied by."""

    column: str
    key: str
    title: str
    axis: str
    factor: float = 1.0
    zero: bool = True
    top: float | None = None
    """Fixed upper end of the axis."""
    section: str = "telemetry"
    banded: bool = False
    """Whether slowdowns are drawn behind it."""
    host: bool = True
    """Whether the host's own value is drawn too."""


METRICS = (
    Metric(
        column="temperature_c",
        key="temperature",
        title="Temperature",
        axis="core temperature (°C)",
        zero=False,
        banded=True,
    ),
    Metric(
        column="hotspot_temperature_c",
        key="hotspot",
        title="Hot-spot temperature",
        axis="hot spot (°C)",
        zero=False,
        banded=True,
    ),
    Metric(
        column="memory_temperature_c",
        key="memory-temperature",
        title="Memory temperature",
        axis="memory temperature (°C)",
        zero=False,
        banded=True,
    ),
    Metric(column="sm_clock_mhz", key="clock", title="SM clock", axis="SM clock (MHz)", banded=True),
    Metric(column="power_w", key="power", title="Power", axis="power (W)", banded=True),
    Metric(
        column="utilisation", key="utilisation", title="Utilisation", axis="utilisation (%)", factor=100.0, top=100.0
    ),
    Metric(
        column="memory_used_mib",
        key="memory",
        title="GPU memory in use",
        axis="memory in use (GiB)",
        factor=1 / 1024,
        section="memory",
        host=False,
    ),
)


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Unix nanoseconds to minutes of the run, pauses longer than `LONGEST_PAUSE_S` cut down to `SHOWN_PAUSE_S`."""

    start_ns: int
    resumes_ns: tuple[int, ...] = ()
    cut_s: tuple[float, ...] = (0.0,)
    """Seconds cut out before the first resume, after the first, after the second, ..."""

    def minutes(self, times_ns: pl.Series) -> pl.Series:
        """Minutes of the run for each time."""
        part = pl.Series(list(self.resumes_ns), dtype=pl.Int64).search_sorted(times_ns, side="right")
        cut = pl.Series(list(self.cut_s), dtype=pl.Float64).gather(part)
        return ((times_ns - self.start_ns) / 1e9 - cut) / 60

    def part(self, times_ns: pl.Series) -> pl.Series:
        """Which uninterrupted part of the run each time is in, from 0."""
        return pl.Series(list(self.resumes_ns), dtype=pl.Int64).search_sorted(times_ns, side="right").cast(pl.Int64)


def clock_of(times_ns: pl.Series) -> Clock:
    """The clock of a run whose samples were taken at these times, in order and not empty."""
    steps = times_ns.diff().fill_null(0)
    resumed = steps > LONGEST_PAUSE_S * 1e9
    cuts = (steps.filter(resumed) / 1e9 - SHOWN_PAUSE_S).cum_sum().to_list()
    return Clock(start_ns=times_ns[0], resumes_ns=tuple(times_ns.filter(resumed).to_list()), cut_s=(0.0, *cuts))


def telemetry_figures(telemetry: pl.LazyFrame, trials: pl.DataFrame) -> Iterator[Figure]:
    """One chart per metric that was reported; none without telemetry."""
    spans = _spans(trials)
    ticks = _ticks(_with_wall(telemetry), spans)
    if ticks.is_empty():
        return
    clock = clock_of(ticks["t_ns"].unique().sort())
    names = _device_names(ticks, trials)
    samples = ticks.join(names, on=["node", "uuid"], how="left", nulls_equal=True, maintain_order="left").with_columns(
        clock.minutes(ticks["t_ns"]).alias("minute"), clock.part(ticks["t_ns"]).alias("part")
    )
    bin_s = _bin_width(samples, names.height)
    windows = _windows(spans, clock)
    coarse = bin_s > FINE_S and bool(windows)
    drawn = samples.filter("inside") if coarse else samples
    slowed = throttled_spans(telemetry)
    bands = _bands(slowed, clock)
    for metric in METRICS:
        rows = _binned(drawn if metric.host else drawn.filter(pl.col("uuid").is_not_null()), metric, bin_s)
        if rows:
            present = {row["series"] for row in rows}
            labels = [name for name in names["series"] if name in present]
            words = [_caption(bin_s, clock, inside=coarse, shaded=bool(windows))]
            words += [throttled_words(slowed)] if metric.banded else []
            shades = {"windows": [] if coarse else windows, "slowdowns": bands if metric.banded else []}
            yield _figure(metric, rows, labels, shades, " ".join(filter(None, words)))


def _bands(slowed: pl.DataFrame, clock: Clock) -> list[dict[str, Any]]:
    """Spans of slowdowns in minutes of the run; of very many only the longest are drawn."""
    shown = slowed.sort(pl.col("end_ns") - pl.col("start_ns"), descending=True).head(BANDS).sort("start_ns")
    starts, ends = clock.minutes(shown["start_ns"]).round(4), clock.minutes(shown["end_ns"]).round(4)
    return [
        {"start": start, "end": max(start, end), "text": text}
        for start, end, text in zip(starts, ends, shown["reasons"], strict=True)
    ]


def _with_wall(telemetry: pl.LazyFrame) -> pl.LazyFrame:
    """A power meter as a device of its own, its readings where those of GPUs are."""
    is_wall = pl.col("device") == WALL
    return telemetry.with_columns(
        uuid=pl.when(is_wall).then(pl.lit(WALL)).otherwise("uuid"),
        power_w=pl.when(is_wall).then("wall_power_w").otherwise("power_w"),
    )


def _ticks(telemetry: pl.LazyFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Mean, least and largest of each metric per device and half second, in time order; an edge of a window cuts one.

    `inside`: whether it lies in one of the `spans`.
    """
    values = [
        getattr(pl.col(metric.column), how)().cast(pl.Float64).mul(metric.factor).alias(f"{metric.key}_{how}")
        for metric in METRICS
        for how in ("mean", "min", "max")
    ]
    tick = (pl.col("t_ns") // TICK_NS).alias("tick")
    # An odd place among the edges start, end, start, end, ... lies between a start and its end.
    edges = pl.concat([spans["start_ns"], spans["end_ns"] + 1]).sort()
    inside = (pl.lit(edges).search_sorted(pl.col("t_ns"), side="right") % 2 == 1).alias("inside")
    return (
        telemetry.filter(pl.col("t_ns").is_not_null())
        .group_by("node", "uuid", tick, inside)
        .agg(pl.col("t_ns").min(), *values)
        .sort("t_ns", "node", "uuid")
        .collect()
    )


def _device_names(ticks: pl.DataFrame, trials: pl.DataFrame) -> pl.DataFrame:
    """`GPU 0` and so on, in rank order where trials say it; `wall`, `host`; with their node where there are several."""
    ranked = [uuid for uuids in trials["gpu_uuids"].drop_nulls().to_list() for uuid in uuids]
    order = {uuid: place for place, uuid in reversed(list(enumerate(dict.fromkeys(ranked))))}
    devices = ticks.select("node", "uuid").unique().sort("node", "uuid", nulls_last=True).to_dicts()
    several = len({device["node"] for device in devices}) > 1
    devices.sort(key=lambda device: (device["uuid"] in (None, WALL), order.get(device["uuid"], len(order))))
    rows = []
    for place, device in enumerate(devices):
        name = {None: "host", WALL: WALL}.get(device["uuid"], f"GPU {place}")
        node = "an unnamed node" if device["node"] is None else device["node"][:8]
        suffix = f" on {node}" if several else ""
        rows.append({**device, "series": name + suffix})
    return pl.DataFrame(rows, schema={"node": pl.String, "uuid": pl.String, "series": pl.String})


def _bin_width(samples: pl.DataFrame, devices: int) -> float:
    """Seconds per bin: half a second, or as many as keep every chart within `BINS` and `POINTS`."""
    span_s = 60 * float(samples["minute"].max() or 0.0)  # type: ignore[arg-type]  # of a float column
    return max(TICK_NS / 1e9, span_s / max(20, min(BINS, POINTS // devices)))


def _binned(samples: pl.DataFrame, metric: Metric, bin_s: float) -> list[dict[str, Any]]:
    """Points to draw: mean, least and largest of each device and bin."""
    mean = f"{metric.key}_mean"
    place = (pl.col("minute") * 60 / bin_s).floor().alias("bin")
    rows = (
        samples.filter(pl.col(mean).is_finite())
        .group_by("series", "part", place, maintain_order=True)
        .agg(
            pl.col("minute").mean(),
            pl.col(mean).mean().alias("mean"),
            pl.col(f"{metric.key}_min").min().alias("low"),
            pl.col(f"{metric.key}_max").max().alias("high"),
        )
        .select("series", "part", pl.col("minute").round(4), pl.col("mean", "low", "high").round_sig_figs(4))
    )
    return [{**row, "text": number(row["mean"], 3)} for row in rows.iter_rows(named=True)]


def _spans(trials: pl.DataFrame) -> pl.DataFrame:
    """Measured windows by Unix time, `start_ns` and `end_ns`, in order, those that overlap joined."""
    start, end = pl.col("window_start_ns"), pl.col("window_end_ns")
    apart = (start > end.cum_max().shift()).fill_null(value=False)
    known = trials.select(start, end).drop_nulls().filter(start <= end).sort(start)
    joined = known.group_by(apart.cum_sum().alias("span"), maintain_order=True).agg(
        start.min().alias("start_ns"), end.max().alias("end_ns")
    )
    return joined.select("start_ns", "end_ns")


def _windows(spans: pl.DataFrame, clock: Clock) -> list[dict[str, float]]:
    """The spans of measured windows in minutes of the run."""
    starts, ends = clock.minutes(spans["start_ns"]), clock.minutes(spans["end_ns"])
    return [{"start": start, "end": end} for start, end in zip(starts.round(4), ends.round(4), strict=True)]


def _caption(bin_s: float, clock: Clock, *, inside: bool, shaded: bool) -> str:
    words = f"Mean over {number(bin_s, 2)} s"
    words += " of the samples inside measured windows" if inside else ""
    words += "; the band is the range within."
    if shaded and not inside:
        words += " Shaded: measured windows."
    if clock.resumes_ns:
        words += f" Pauses over {LONGEST_PAUSE_S:.0f} s ({len(clock.resumes_ns)}) are cut out."
    return words


def _figure(
    metric: Metric,
    rows: list[dict[str, Any]],
    labels: list[str],
    shades: dict[str, list[dict[str, Any]]],
    caption: str,
) -> Figure:
    times = alt.Axis(title="minutes of the run", tickCount=8)
    x = alt.X("minute:Q", axis=times, scale=alt.Scale(nice=False, zero=False))
    axis, scale = alt.Axis(title=metric.axis, tickCount=4, minExtent=44), alt.Scale(zero=metric.zero, nice=True)
    if metric.top is not None:
        scale = alt.Scale(domain=[0, metric.top])
    color = series_color(labels)
    base = chart_of("samples")
    series = [alt.Detail("part:N")]
    hints = [*tooltips(series="device", text=metric.axis), alt.Tooltip("minute:Q", title="minute", format=".2f")]
    low = alt.Y("low:Q", axis=axis, scale=scale)
    layers = [
        base.mark_area(opacity=0.2).encode(x=x, y=low, y2="high:Q", color=color, detail=series),
        base.mark_line(strokeWidth=1.5).encode(
            x=x, y=alt.Y("mean:Q", axis=axis, scale=scale), color=color, detail=series, tooltip=hints
        ),
    ]
    at = alt.X("start:Q", axis=times, scale=alt.Scale(nice=False, zero=False))
    behind = [
        chart_of(name).mark_rect(style=style).encode(x=at, x2="end:Q", **({"tooltip": told} if told else {}))
        for name, style, told in (("windows", "window", []), ("slowdowns", "slowdown", tooltips(text="held back by")))
        if shades[name]
    ]
    return Figure(
        key=f"telemetry-{metric.key}",
        section=metric.section,
        title=metric.title,
        caption=caption,
        chart=alt.layer(*behind, *layers).properties(width="container", height=170),
        datasets={"samples": rows, **shades},
        labels=tuple(labels),
        shaped=False,
    )
