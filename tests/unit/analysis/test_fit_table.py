"""Which law is fitted to which curve, and what is said where there is none."""

import math

import numpy as np
import polars as pl
import pytest
from made_trials import assert_sound, collectives_frame, made_cell, made_row, trials_frame, visits

from rtxscale.analysis.conclude import conclude_tables

AXES = {"gpus": [1, 2, 4, 8], "nccl.algorithm": ["auto", "ring"]}
MIB = 2**20


def concluded(rows, collectives=(), attestation=None):
    conclusions = conclude_tables(
        trials_frame(rows), collectives_frame(collectives), axes=AXES, attestation=attestation
    )
    assert_sound(conclusions)
    return conclusions


def law(conclusions, name, parameter=None):
    rows = conclusions.fits.filter(pl.col("law") == name)
    return rows if parameter is None else rows.filter(pl.col("parameter") == parameter)


def strong_rows(sizes, serial, coherency=0.0, total=128):
    rows = []
    for gpus in sizes:
        speed = 100.0 * gpus / (1 + serial * (gpus - 1) + coherency * gpus * (gpus - 1))
        rows += visits(made_cell(gpus, total // gpus), speed, speed * 1.001, study="strong")
    return rows


def test_a_strong_curve_gives_karp_flatt_amdahl_and_the_universal_law():
    conclusions = concluded(strong_rows((1, 2, 4, 8, 16), 0.05, 0.002))
    amdahl = law(conclusions, "Amdahl").row(0, named=True)
    assert (amdahl["sizes"], amdahl["points"]) == (5, 10)
    assert amdahl["low"] < amdahl["value"] < amdahl["high"]
    found = dict(law(conclusions, "USL").select("parameter", "value").iter_rows())
    assert found == pytest.approx({"contention": 0.05, "coherency": 0.002}, abs=1e-4)
    peak = math.sqrt((1 - 0.05) / 0.002)
    assert f"peak at {peak:.0f} GPUs" in law(conclusions, "USL", "coherency")["note"][0]
    shares = dict(law(conclusions, "Karp-Flatt").select("gpus", "value").iter_rows())
    speedup = 16 / (1 + 0.05 * 15 + 0.002 * 240)
    assert shares[16] == pytest.approx((1 / speedup - 1 / 16) / (1 - 1 / 16), rel=1e-6)
    assert all(row["low"] < row["value"] < row["high"] for row in law(conclusions, "Karp-Flatt").iter_rows(named=True))


def test_a_curve_with_few_sizes_is_refused_in_words():
    conclusions = concluded(strong_rows((1, 2), 0.05))
    assert law(conclusions, "Amdahl").select("value", "note").rows() == [(None, "needs >= 3 worker counts, found 2")]
    assert law(conclusions, "USL").select("value", "note").rows() == [(None, "needs >= 5 worker counts, found 2")]
    assert law(conclusions, "Karp-Flatt")["value"].to_list() == [pytest.approx(0.05)]


def test_strong_laws_are_not_taken_of_a_weak_curve():
    rows = visits(made_cell(1, 64), 100.0, 101.0) + visits(made_cell(4, 64), 370.0, 371.0)
    conclusions = concluded(rows)
    for name in ("Karp-Flatt", "Amdahl", "USL"):
        (note,) = law(conclusions, name)["note"]
        assert note == "holds at constant global batch; the run has no strong curve"
    row = law(conclusions, "Gustafson").row(0, named=True)
    extra = conclusions.efficiency.filter(pl.col("gpus") == 4)["extra_gpu"][0]
    assert row["value"] == pytest.approx(1 - extra)
    assert row["low"] < row["value"] < row["high"]


def test_a_share_without_interval_says_what_it_needs():
    rows = [made_row(made_cell(1, 64), 100.0), made_row(made_cell(2, 64), 204.0)]
    row = law(concluded(rows), "Gustafson").row(0, named=True)
    assert row["value"] == pytest.approx(-0.04)
    assert row["low"] is None
    assert "needs >= 2 visits" in row["note"]
    assert "below 0" in row["note"]


def test_a_share_that_is_but_noise_of_floating_point_is_zero():
    weak = [row for gpus in (1, 2, 4, 8) for row in visits(made_cell(gpus, 64), 100.1 * gpus, 100.1 * gpus)]
    shares = law(concluded(weak), "Gustafson").select("value", "low", "high", "note").unique().rows()
    assert shares == [(0.0, 0.0, 0.0, "")]
    strong = concluded(strong_rows((1, 2, 4, 8, 16), 0.0)).fits.filter(pl.col("curve") == "strong")
    assert set(strong["value"]) == {0.0}
    assert not strong["note"].str.contains("peak").any()


def test_a_curve_without_one_gpu_is_relative():
    conclusions = concluded(strong_rows((2, 4, 8), 0.05))
    assert "relative to 2 GPUs" in law(conclusions, "Amdahl")["note"][0]
    # X(2p) / X(2) = p / (1 + s' (p - 1)) with s' = 2 s / (1 + s)
    assert law(conclusions, "Amdahl")["value"][0] == pytest.approx(0.1 / 1.05, abs=1e-4)


def collective_rows(trial_row, latency, rate, sizes=(1, 64, 512)):
    factor = 2 * (trial_row["gpus"] - 1) / trial_row["gpus"]
    for size in sizes:
        time = latency + size * MIB / rate
        algbw = size * MIB / time / 1e9
        yield {
            "trial_id": trial_row["trial_id"],
            "attempt": 1,
            "operation": "all_reduce",
            "size_bytes": size * MIB,
            "dtype": "fp32",
            "time_mean_s": time,
            "algbw_gb_s": algbw,
            "busbw_gb_s": algbw * factor,
        }


def test_latency_and_bandwidth_of_each_cell_over_visits():
    latencies, rates = (20e-6, 22e-6), (20e9, 21e9)
    rows = visits(made_cell(4, 64), 100.0, 101.0, nccl_algorithm="auto", nccl_protocol="auto")
    collectives = [
        item
        for row, latency, rate in zip(rows, latencies, rates, strict=True)
        for item in collective_rows(row, latency, rate)
    ]
    seen = pl.DataFrame(
        [
            {"trial_id": rows[0]["trial_id"], "attempt": 1, "subject": "nccl.algorithm", "observed": "ring"},
            {"trial_id": rows[0]["trial_id"], "attempt": 1, "subject": "nccl.protocol", "observed": "simple, ll"},
        ]
    ).with_columns(requested=pl.lit("auto"), verdict=pl.lit("not applicable"), evidence=pl.lit(""))
    conclusions = concluded(rows, collectives, seen)
    latency = law(conclusions, "alpha-beta", "latency").row(0, named=True)
    assert latency["value"] == pytest.approx(21e-6, rel=1e-4)
    # two visits: 12.706 x half their difference
    assert latency["high"] - latency["value"] == pytest.approx(12.706e-6, rel=1e-3)
    assert (latency["algorithm"], latency["protocol"]) == ("ring", "ll, simple")
    assert "more than one protocol" in latency["note"]
    bandwidth = law(conclusions, "alpha-beta", "bus bandwidth").row(0, named=True)
    assert bandwidth["value"] == pytest.approx(math.sqrt(20 * 21) * 1.5, rel=1e-4)
    assert (bandwidth["unit"], bandwidth["sizes"], bandwidth["points"]) == ("GB/s", 3, 6)


def test_a_collective_with_two_sizes_has_no_line():
    rows = visits(made_cell(2, 64), 100.0)
    conclusions = concluded(rows, list(collective_rows(rows[0], 1e-5, 1e10, sizes=(1, 64))))
    (note,) = law(conclusions, "alpha-beta")["note"]
    assert note == "needs >= 3 message sizes, found 2"


def test_points_that_follow_no_line_are_said_to():
    rows = visits(made_cell(2, 64), 100.0)
    collectives = list(collective_rows(rows[0], 1e-5, 1e10, sizes=(1, 8, 64, 512)))
    collectives[1]["time_mean_s"] *= 2
    notes = law(concluded(rows, collectives), "alpha-beta")["note"]
    assert all("do not follow it" in note for note in notes)


def test_nothing_measured_has_no_fits():
    assert concluded([]).fits.height == 0
    assert concluded([made_row(made_cell(2, 64), np.nan)]).fits.height == 0


def test_bounds_that_say_nothing_are_left_out_with_the_reason():
    rows = strong_rows((1, 2), 0.05)
    for row in rows:
        row["throughput_per_s"] *= 3 ** row["visit"]
    (row,) = law(concluded(rows), "Karp-Flatt").iter_rows(named=True)
    assert (row["low"], row["high"]) == (None, None)
    assert row["note"] == "interval wider than x10: more visits"


@pytest.mark.parametrize(
    ("speeds", "note"),
    [
        ((204.0, 204.1), "below 0: noise or superlinear, check the base"),
        ((98.0, 98.1), "above 1: noise or slower than the base"),
        ((197.0, 201.0), "reaches below 0: noise or superlinear"),
        ((101.0, 104.0), "reaches above 1: noise or slower than the base"),
        ((135.0, 150.0), "reaches below 0 and above 1: noise"),
        ((150.0, 150.5), ""),
    ],
)
def test_a_serial_share_that_is_none_or_may_be_none_has_a_word(speeds, note):
    rows = visits(made_cell(1, 64), 100.0, 100.1) + visits(made_cell(2, 64), *speeds)
    assert law(concluded(rows), "Gustafson")["note"].to_list() == [note]
    strong = [row | {"study": "strong"} for row in visits(made_cell(1, 64), 100.0, 100.1)]
    strong += [row | {"study": "strong"} for row in visits(made_cell(2, 32), *speeds)]
    (found,) = law(concluded(strong), "Karp-Flatt")["note"]
    assert ("above" in found, "below" in found) == ("above" in note, "below" in note)
