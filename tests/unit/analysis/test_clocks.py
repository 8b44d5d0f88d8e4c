"""Clock event reasons over windows, efficiency at equal clocks, and single cards."""

import math

import polars as pl
import pytest
from made_trials import assert_sound, collectives_frame, made_cell, made_row, trials_frame, visits

from rtxscale.analysis.cells import slot_spread
from rtxscale.analysis.clocks import window_samples
from rtxscale.analysis.conclude import conclude_tables
from rtxscale.results.read import polars_schema
from rtxscale.results.schema import table
from rtxscale.stats.intervals import log_moments, ratio_interval

AXES = {"gpus": [1, 2]}
SECOND = 1_000_000_000
CARDS = ["GPU-a", "GPU-b"]


def telemetry_frame(rows):
    return pl.DataFrame(pl.from_arrow(table("telemetry", rows)), schema=polars_schema("telemetry")).lazy()


def concluded(rows, telemetry=None):
    frame = None if telemetry is None else telemetry_frame(telemetry)
    conclusions = conclude_tables(trials_frame(rows), collectives_frame(), axes=AXES, telemetry=frame)
    assert_sound(conclusions)
    return conclusions


def windowed(cell, value, visit=1, **columns):
    start = visit * 100 * SECOND
    window = {"window_start_ns": start, "window_end_ns": start + 9 * SECOND, "gpu_uuids": CARDS[: cell.gpus]}
    return made_row(cell, value, visit=visit, **window, **columns)


def samples_of(row, reasons, uuid="GPU-a", seconds=range(10), **columns):
    """One sample a second; `reasons` is asked for the second within the window."""
    return [
        {
            "trial_id": row["trial_id"],
            "attempt": 1,
            "device": "gpu",
            "uuid": uuid,
            "t_ns": row["window_start_ns"] + second * SECOND,
            "throttle_reasons": reasons(second),
            "sm_clock_mhz": 2000.0,
            **columns,
        }
        for second in seconds
    ]


def shares(conclusions, gpus=2):
    rows = conclusions.throttling.filter(pl.col("gpus") == gpus)
    return {row["reason"]: (row["share"], row["most"], row["trials"]) for row in rows.iter_rows(named=True)}


def test_the_share_of_each_reason_over_the_window_of_the_used_cards():
    row = windowed(made_cell(2, 64), 100.0)
    telemetry = samples_of(row, lambda s: ["sw_power_cap"] if s < 5 else [])
    telemetry += samples_of(row, lambda s: ["sw_power_cap", "hw_thermal_slowdown"] if s == 0 else [], uuid="GPU-b")
    outside = samples_of(row, lambda s: ["hw_power_brake_slowdown"], seconds=(-1, 10))
    idle = samples_of(row, lambda s: ["gpu_idle"], uuid="GPU-c")
    found = shares(concluded([row], telemetry + outside + idle))
    assert set(found) == {"sw_power_cap", "hw_thermal_slowdown"}
    assert found["sw_power_cap"] == pytest.approx((6 / 20, 6 / 20, 1))
    assert found["hw_thermal_slowdown"] == pytest.approx((1 / 20, 1 / 20, 1))


def test_shares_are_means_over_trials_those_without_the_reason_included():
    first, second = windowed(made_cell(2, 64), 100.0), windowed(made_cell(2, 64), 101.0, visit=2)
    telemetry = samples_of(first, lambda s: ["sw_power_cap"]) + samples_of(second, lambda s: [])
    assert shares(concluded([first, second], telemetry)) == {"sw_power_cap": (0.5, 1.0, 2)}


def test_a_card_that_tells_no_reasons_is_not_counted_as_free_of_them():
    row = windowed(made_cell(2, 64), 100.0)
    telemetry = samples_of(row, lambda s: ["sw_power_cap"]) + samples_of(row, lambda s: None, uuid="GPU-b")
    assert shares(concluded([row], telemetry))["sw_power_cap"][0] == 1.0
    assert concluded([row], samples_of(row, lambda s: None)).throttling.height == 0
    assert concluded([row]).throttling.height == 0


def test_a_card_that_was_sampled_less_often_weighs_as_much_as_the_others():
    row = windowed(made_cell(2, 64), 100.0)
    telemetry = samples_of(row, lambda s: ["sw_power_cap"], seconds=(0, 9))
    telemetry += samples_of(row, lambda s: ["sw_power_cap"] if s < 2 else [], uuid="GPU-b")
    assert shares(concluded([row], telemetry))["sw_power_cap"] == pytest.approx((0.6, 0.6, 1))


def test_samples_of_a_trial_are_reduced_per_card():
    row = windowed(made_cell(2, 64), 100.0)
    telemetry = samples_of(row, lambda s: [], power_w=400.0) + samples_of(
        row, lambda s: [], uuid="GPU-b", power_w=500.0
    )
    frame = window_samples(telemetry_frame(telemetry), trials_frame([row]))
    assert frame.select("uuid", "samples", "power_w", "sm_clock_mhz").rows() == [
        ("GPU-a", 10, 400.0, 2000.0),
        ("GPU-b", 10, 500.0, 2000.0),
    ]


def test_efficiency_at_equal_clocks_stands_beside_the_raw_one():
    base, two = [100.0, 101.0, 99.0], [180.0, 182.0, 179.0]
    rows = visits(made_cell(1, 64), *base, sm_clock_mhz=2000.0) + visits(made_cell(2, 64), *two, sm_clock_mhz=1900.0)
    row = concluded(rows).efficiency.filter(pl.col("gpus") == 2).row(0, named=True)
    raw = ratio_interval(log_moments(two), log_moments(base))
    assert row["efficiency"] == pytest.approx(float(raw.estimate) / 2)
    assert row["equal_clocks"] == pytest.approx(float(raw.estimate) / 2 * 2000 / 1900)
    assert row["equal_clocks_low"] == pytest.approx(float(raw.low) / 2 * 2000 / 1900)
    assert row["sm_clock_mhz"] == 1900.0


def test_throttled_trials_count_in_the_raw_efficiency_only():
    rows = visits(made_cell(1, 64), 100.0, 100.0, sm_clock_mhz=2000.0)
    rows += visits(made_cell(2, 64), 190.0, 120.0, sm_clock_mhz=2000.0)
    rows[-1]["flags"] = ["throttled"]
    row = concluded(rows).efficiency.filter(pl.col("gpus") == 2).row(0, named=True)
    assert row["efficiency"] == pytest.approx(math.sqrt(190 * 120) / 200)
    assert row["equal_clocks"] == pytest.approx(0.95)


def test_without_clocks_there_is_no_efficiency_at_equal_clocks():
    rows = visits(made_cell(1, 64), 100.0) + visits(made_cell(2, 64), 190.0, sm_clock_mhz=2000.0)
    row = concluded(rows).efficiency.filter(pl.col("gpus") == 2).row(0, named=True)
    assert (row["efficiency"], row["equal_clocks"]) == (pytest.approx(0.95), None)


def test_a_batch_without_clocks_takes_no_other_batch_its_efficiency_at_equal_clocks():
    rows = visits(made_cell(1, 128), 100.0, 100.0) + visits(made_cell(2, 128), 190.0, 190.0)
    rows += visits(made_cell(1, 64), 100.0, 100.0, sm_clock_mhz=2000.0)
    rows += visits(made_cell(2, 64), 180.0, 180.0, sm_clock_mhz=1900.0)
    found = concluded(rows).efficiency.filter(pl.col("gpus") == 2).select("series", "equal_clocks")
    assert dict(found.iter_rows()) == {
        "defaults, batch 128 per GPU": None,
        "defaults, batch 64 per GPU": pytest.approx(0.9 * 2000 / 1900),
    }


def test_cards_are_compared_in_the_visits_that_all_of_them_have():
    cell = made_cell(1, 64)
    measured = ((0, 1, 100.0), (1, 1, 98.0), (0, 2, 90.0))  # the second visit was slower, and card 1 failed in it
    rows = [made_row(cell, value, slot=slot, visit=visit, gpu_uuids=[f"GPU-{slot}"]) for slot, visit, value in measured]
    conclusions = concluded(rows)
    assert conclusions.cards.select("uuid", "of_fastest", "visits").rows() == [("GPU-1", 0.98, 1), ("GPU-0", 1.0, 1)]
    assert slot_spread(trials_frame(rows))["slot_spread"].to_list() == pytest.approx([2 / 99])
    apart = concluded([row for row in rows if (row["slot"], row["visit"]) != (0, 1)])
    assert apart.cards["of_fastest"].to_list() == pytest.approx([90 / 98, 1.0]), "no visit has both"


def test_cards_are_listed_slowest_first_and_the_slowest_is_named():
    cell = made_cell(1, 64)
    rows = [
        made_row(cell, speed * level, slot=slot, visit=visit, gpu_uuids=[f"GPU-{slot}"])
        for slot, speed in ((0, 100.0), (1, 95.0))
        for visit, level in ((1, 1.0), (2, 1.01))
    ]
    conclusions = concluded(rows)
    assert conclusions.cards.select("uuid", "slot", "visits").rows() == [("GPU-1", 1, 2), ("GPU-0", 0, 2)]
    assert conclusions.cards["of_fastest"].to_list() == pytest.approx([0.95, 1.0])
    assert all(row["throughput_low"] < row["throughput_per_s"] for row in conclusions.cards.iter_rows(named=True))
    assert any("Slowest card in (gpus 1): GPU-1, 5.0 % behind" in remark for remark in conclusions.remarks)
    assert concluded([row for row in rows if row["slot"] == 0]).cards.height == 0


def test_a_clock_that_is_no_number_is_none():
    rows = visits(made_cell(1, 64), 100.0, 101.0, sm_clock_mhz=2000.0)
    rows += [made_row(made_cell(2, 64), 180.0, sm_clock_mhz=clock) for clock in (math.inf,)]
    rows += [made_row(made_cell(2, 64), 181.0, visit=2, sm_clock_mhz=1900.0)]
    found = concluded(rows)
    assert found.efficiency["sm_clock_mhz"].to_list() == [2000.0, 1900.0]
