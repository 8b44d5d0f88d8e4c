"""Telemetry charts: the time axis, the bins and the windows."""

from __future__ import annotations

import polars as pl
import pytest

from rtxscale.report.charts.telemetry import POINTS, clock_of, telemetry_figures
from rtxscale.results.read import polars_schema

SECOND = 1_000_000_000
START = 1_790_000_000 * SECOND


def samples(seconds, **columns):
    rows = [
        {"node": "n", "device": "gpu", "uuid": "GPU-b", "t_ns": START + round(s * SECOND), **columns} for s in seconds
    ]
    return pl.LazyFrame(rows, schema=polars_schema("telemetry"))


def trials(*windows, uuids=("GPU-b", "GPU-a")):
    rows = [
        {
            "gpu_uuids": list(uuids),
            "window_start_ns": START + round(a * SECOND),
            "window_end_ns": START + round(b * SECOND),
        }
        for a, b in windows
    ]
    names = ("gpu_uuids", "window_start_ns", "window_end_ns")
    return pl.DataFrame(rows, schema={name: polars_schema("trials")[name] for name in names})


def test_long_pauses_are_cut_to_five_seconds():
    clock = clock_of(pl.Series([START, START + 10 * SECOND, START + 1000 * SECOND, START + 1010 * SECOND]))
    minutes = clock.minutes(pl.Series([START, START + 10 * SECOND, START + 1000 * SECOND, START + 1010 * SECOND]))
    assert (minutes * 60).to_list() == pytest.approx([0, 10, 15, 25])
    assert clock.part(pl.Series([START, START + 1000 * SECOND])).to_list() == [0, 1]


def test_what_is_not_reported_has_no_chart():
    assert [f.key for f in telemetry_figures(samples(range(10), power_w=300.0), trials())] == ["telemetry-power"]
    assert list(telemetry_figures(samples([]), trials())) == []


def test_a_short_run_is_drawn_whole_with_its_windows():
    (figure,) = telemetry_figures(
        samples([n / 2 for n in range(120)], power_w=300.0), trials((5, 9), (8, 12), (20, 25))
    )
    assert 115 <= len(figure.datasets["samples"]) <= 120
    spans = [(row["start"] * 60, row["end"] * 60) for row in figure.datasets["windows"]]
    assert spans == [
        (pytest.approx(5, abs=0.01), pytest.approx(12, abs=0.01)),
        (pytest.approx(20, abs=0.01), pytest.approx(25, abs=0.01)),
    ]
    assert "Shaded" in figure.caption


def test_a_long_run_shows_only_samples_inside_windows_and_stays_small():
    seconds = range(20_000)
    busy = [(start, start + 10) for start in range(0, 20_000, 40)]
    power = [500.0 if second % 40 <= 10 else 90.0 for second in seconds]
    frame = samples(seconds).with_columns(pl.Series("power_w", power))
    (figure,) = telemetry_figures(frame, trials(*busy))
    drawn = figure.datasets["samples"]
    assert len(drawn) <= POINTS
    assert {row["mean"] for row in drawn} == {500.0}
    assert "inside measured windows" in figure.caption


def test_no_sample_from_beside_a_window_is_in_the_range_of_a_long_run():
    seconds = [tick / 10 for tick in range(40_000)]
    busy = [(start + 5.3, start + 15.3) for start in range(0, 4_000, 40)]  # edges inside half seconds
    power = [500.0 if 5.25 < second % 40 < 15.35 else 90.0 for second in seconds]
    frame = samples(seconds).with_columns(pl.Series("power_w", power))
    (figure,) = telemetry_figures(frame, trials(*busy))
    assert "inside measured windows" in figure.caption
    assert {(row["low"], row["mean"], row["high"]) for row in figure.datasets["samples"]} == {(500.0, 500.0, 500.0)}


def test_gpus_are_numbered_by_rank_and_utilisation_is_percent():
    one = samples(range(5), utilisation=0.5)
    other = samples(range(5), utilisation=1.0).with_columns(uuid=pl.lit("GPU-a"))
    host = samples(range(5), utilisation=0.1).with_columns(uuid=pl.lit(None, dtype=pl.String), device=pl.lit("host"))
    (figure,) = telemetry_figures(pl.concat([host, other, one]), trials((1, 2)))
    assert figure.labels == ("GPU 0", "GPU 1", "host")
    assert {row["series"]: row["mean"] for row in figure.datasets["samples"]} == {
        "GPU 0": 50.0,
        "GPU 1": 100.0,
        "host": 10.0,
    }


def test_power_at_the_wall_stands_beside_that_of_the_gpus():
    gpu = samples(range(10), power_w=300.0)
    wall = samples(range(10), wall_power_w=520.0).with_columns(
        uuid=pl.lit(None, dtype=pl.String), device=pl.lit("wall")
    )
    host = samples(range(10), utilisation=0.1).with_columns(uuid=pl.lit(None, dtype=pl.String), device=pl.lit("host"))
    drawn = {figure.key: figure for figure in telemetry_figures(pl.concat([gpu, wall, host]), trials((1, 2)))}
    assert drawn["telemetry-power"].labels == ("GPU 0", "wall")
    means = {row["series"]: row["mean"] for row in drawn["telemetry-power"].datasets["samples"]}
    assert means == {"GPU 0": 300.0, "wall": 520.0}
    assert drawn["telemetry-utilisation"].labels == ("host",)
