"""What a window's telemetry adds up to, against values worked out by hand."""

import csv
from pathlib import Path

import pytest

from rtxscale.results.schema import table
from rtxscale.telemetry.nvml import NvmlProbe
from rtxscale.telemetry.window import reason_shares, summarise

from .fake_nvml import NOT_SUPPORTED, Failing, FakeGpu, FakeNvml

GOLDEN = Path(__file__).parents[2] / "golden" / "telemetry"
SECOND = 1_000_000_000


def gpu_rows(uuid, seconds, **columns):
    """One row per time; a column is a list, or a function of the time in seconds."""
    for index, second in enumerate(seconds):
        values = {name: given(second) if callable(given) else given[index] for name, given in columns.items()}
        yield {"device": "gpu", "uuid": uuid, "t_ns": round(second * SECOND), **values}


def window(rows, uuids, start_s, end_s):
    return summarise(table("telemetry", rows), uuids, round(start_s * SECOND), round(end_s * SECOND))


def tenths(until_s):
    return [index / 10 for index in range(round(until_s * 10) + 1)]


def test_two_gpus_at_constant_power():
    rows = [
        *gpu_rows("a", tenths(10), power_w=lambda _: 200.0, energy_j=lambda s: 1000 + 200 * s),
        *gpu_rows("b", tenths(10), power_w=lambda _: 300.0, energy_j=lambda s: 7 + 300 * s),
        *gpu_rows("other", tenths(10), power_w=lambda _: 999.0, energy_j=lambda s: 999 * s),
    ]
    found = window(rows, ["a", "b"], 2, 8)
    assert found["energy_j"] == pytest.approx(500 * 6)
    assert found["power_w"] == pytest.approx(500)
    assert found["energy_source"] == "counter"


def test_counter_and_integral_are_both_given_so_that_they_can_be_compared():
    rows = [*gpu_rows("a", tenths(10), power_w=lambda _: 200.0, energy_j=lambda s: 210 * s)]
    found = window(rows, ["a"], 2, 8)
    assert found["energy_counter_j"] == found["energy_j"] == pytest.approx(210 * 6)
    assert found["energy_integral_j"] == pytest.approx(200 * 6)


def test_how_often_the_slowest_counter_stepped_in_the_window():
    rows = [
        *gpu_rows("a", tenths(10), energy_j=lambda s: 200 * s, energy_update_s=lambda _: 0.01),
        *gpu_rows("b", tenths(10), energy_j=lambda s: 200 * s, energy_update_s=lambda _: 0.1),
        *gpu_rows("c", tenths(10), energy_j=lambda s: 200 * s),
    ]
    assert window(rows, ["a", "b"], 2, 8)["energy_updates"] == pytest.approx(60)
    assert window(rows, ["a"], 2, 8)["energy_updates"] == pytest.approx(600)
    assert window(rows, ["a", "c"], 2, 8)["energy_updates"] == 60, "no period is known of c: as many as samples show"


def test_a_counter_too_slow_for_its_period_to_be_seen_is_counted_by_its_steps():
    rows = list(gpu_rows("a", tenths(20), energy_j=lambda s: 300.0 * int(s + 0.01) + 1))
    assert window(rows, ["a"], 0.5, 19.5)["energy_updates"] == 19


def test_edges_between_samples_belong_to_the_window():
    rows = list(gpu_rows("a", tenths(10), energy_j=lambda s: 250 * s, power_w=lambda _: 250.0))
    assert window(rows, ["a"], 2.03, 7.98)["energy_j"] == pytest.approx(250 * 5.95)


def test_a_drain_that_ends_inside_the_window_is_extrapolated():
    rows = list(gpu_rows("a", [0.05, 0.5, 0.95], energy_j=lambda s: 400 * s, power_w=lambda _: 400.0))
    found = window(rows, ["a"], 0, 1)
    assert found["energy_j"] == pytest.approx(400)
    assert found["power_w"] == pytest.approx(400)


def test_the_integral_weighs_by_time_not_by_sample():
    rows = list(gpu_rows("a", [0, 0.1, 0.2, 1.0], power_w=[100.0, 100.0, 100.0, 300.0]))
    found = window(rows, ["a"], 0, 1)
    assert found["energy_j"] == pytest.approx(100 * 0.2 + 200 * 0.8)
    assert found["energy_source"] == "integral"
    assert found["power_w"] == pytest.approx(found["energy_j"])


def test_one_gpu_without_a_counter_makes_the_whole_sum_an_integral():
    rows = [
        *gpu_rows("a", tenths(2), power_w=lambda _: 100.0, energy_j=lambda s: 90 * s),
        *gpu_rows("b", tenths(2), power_w=lambda _: 100.0),
    ]
    found = window(rows, ["a", "b"], 0, 2)
    assert found["energy_source"] == "integral"
    assert found["energy_j"] == pytest.approx(400)


def test_a_counter_that_stands_still_is_no_energy_of_zero():
    rows = [
        *gpu_rows("a", tenths(2), power_w=lambda _: 300.0, energy_j=lambda s: 300 * s),
        *gpu_rows("b", tenths(2), power_w=lambda _: 300.0, energy_j=lambda _: 5000.0),
    ]
    found = window(rows, ["a", "b"], 0, 2)
    assert (found["energy_j"], found["energy_source"]) == (pytest.approx(1200), "integral")
    assert found["energy_counter_j"] is None


def test_a_hole_in_the_samples_is_bridged_by_a_counter_and_by_nothing_else():
    seconds = [second for second in tenths(20) if second <= 1 or second >= 19]
    bare = list(gpu_rows("a", seconds, power_w=lambda _: 300.0))
    assert window(bare, ["a"], 0, 20)["energy_j"] is None
    assert window(bare, ["a"], 0, 20)["power_w"] is None
    found = window(gpu_rows("a", seconds, power_w=lambda _: 300.0, energy_j=lambda s: 310 * s), ["a"], 0, 20)
    assert (found["energy_j"], found["power_w"]) == (pytest.approx(6200), pytest.approx(310))
    sparse = list(gpu_rows("a", range(0, 300, 60), power_w=lambda _: 300.0))
    assert window(sparse, ["a"], 0, 240)["energy_j"] == pytest.approx(300 * 240), "a slow cadence is no hole"


@pytest.mark.parametrize("set_by_s", [40, -5])
def test_a_window_in_which_the_clock_was_set_has_no_energy(set_by_s):
    def shown(second):  # at 10 s
        return second if second < 10 else second + set_by_s

    watts = {"power_w": lambda s: 300.0 if s < 10 else 600.0, "energy_j": lambda s: 1000 + 450 * s}
    rows = [
        {**row, "t_ns": round(shown(second) * SECOND), "monotonic_ns": round((second + 77) * SECOND)}
        for second, row in zip(tenths(21), gpu_rows("a", tenths(21), **watts), strict=True)
    ]
    found = window(rows, ["a"], 0, 20 + set_by_s)
    assert (found["energy_j"], found["power_w"], found["energy_source"]) == (None, None, None)


def test_a_clock_that_is_slewed_was_not_set():
    rows = [
        {**row, "monotonic_ns": round(row["t_ns"] * 1.0005)}
        for row in gpu_rows("a", range(1001), power_w=lambda _: 300.0)
    ]
    assert window(rows, ["a"], 0, 1000)["energy_j"] == pytest.approx(300_000)


def test_a_gpu_without_power_leaves_no_sum_instead_of_a_part():
    rows = [*gpu_rows("a", tenths(2), power_w=lambda _: 100.0), *gpu_rows("b", tenths(2), temperature_c=lambda _: 50.0)]
    found = window(rows, ["a", "b"], 0, 2)
    assert (found["energy_j"], found["power_w"], found["energy_source"]) == (None, None, None)
    assert found["temperature_max_c"] == 50


def test_samples_that_span_too_little_of_the_window_say_nothing():
    rows = list(gpu_rows("a", tenths(1), power_w=lambda _: 100.0, energy_j=lambda s: 100 * s))
    assert window(rows, ["a"], 0, 10)["energy_j"] is None


@pytest.mark.parametrize(("start_s", "end_s"), [(0, 1), (5, 5), (6, 5)])
def test_no_rows_or_no_window_is_all_none(start_s, end_s):
    assert set(window([], ["a"], start_s, end_s).values()) == {None}
    rows = list(gpu_rows("a", [5.0, 5.0], power_w=lambda _: 100.0))
    assert window(rows, ["a"], start_s, end_s)["energy_j"] is None


def test_no_gpus_is_all_none():
    rows = [{"device": "host", "uuid": None, "t_ns": 1, "utilisation": 0.5}]
    assert set(window(rows, [], 0, 1).values()) == {None}


def test_only_real_slowdowns_count_as_throttling():
    reasons = [
        ["gpu_idle"],
        ["sw_power_cap"],
        ["applications_clocks_setting", "display_clock_setting"],
        ["sync_boost", "other 0x800"],
        [],
        ["sw_thermal_slowdown"],
        ["hw_slowdown", "hw_thermal_slowdown"],
        ["hw_power_brake_slowdown", "sw_power_cap"],
    ]
    rows = list(gpu_rows("a", range(8), throttle_reasons=reasons, sm_clock_mhz=[2000.0] * 4 + [1000.0] * 4))
    found = window(rows, ["a"], 0, 7)
    assert found["throttle_share"] == pytest.approx(3 / 8)
    assert found["sm_clock_mhz"] == pytest.approx(1500)
    shares = reason_shares(table("telemetry", rows), ["a"], 0, 7 * SECOND)
    assert shares["sw_power_cap"] == pytest.approx(2 / 8)


def test_a_gpu_that_was_sampled_less_often_weighs_as_much_as_the_others():
    rows = [
        *gpu_rows("a", tenths(10), throttle_reasons=lambda _: [], sm_clock_mhz=lambda _: 2000.0),
        *gpu_rows("b", range(11), throttle_reasons=lambda _: ["hw_slowdown"], sm_clock_mhz=lambda _: 1000.0),
        *gpu_rows("tells none", tenths(10), power_w=lambda _: 300.0),
    ]
    found = window(rows, ["a", "b", "tells none"], 0, 10)
    assert found["throttle_share"] == pytest.approx(0.5)
    assert found["sm_clock_mhz"] == pytest.approx(1500)


def test_a_moment_that_was_sampled_densely_weighs_as_much_as_any_other():
    seconds = [index / 200 for index in range(100)] + [0.5 + index / 10 for index in range(196)]
    rows = list(gpu_rows("a", seconds, throttle_reasons=lambda s: ["hw_slowdown", "sw_power_cap"] if s < 0.5 else []))
    found = window(rows, ["a"], 0, 20)
    assert found["throttle_share"] == pytest.approx(0.5 / 20, rel=0.01)
    assert found["power_cap_share"] == found["throttle_share"]


def test_slow_rows_without_reasons_do_not_dilute_the_share():
    rows = [
        *gpu_rows("a", [0, 1], throttle_reasons=[["hw_slowdown"], ["hw_slowdown"]]),
        *gpu_rows("a", [0, 0.2, 0.4, 0.6], pcie_width=[16] * 4),
    ]
    assert window(rows, ["a"], 0, 1)["throttle_share"] == 1


def test_the_busy_share_is_that_of_the_gpu_with_least_to_do():
    def busy(share):  # what is read in the first second is of the pause before the window
        return lambda s: share if s >= 3 else 0.0

    rows = [
        *gpu_rows("a", tenths(10), utilisation=busy(1.0)),
        *gpu_rows("b", tenths(10), utilisation=busy(0.75)),
        *gpu_rows("tells none", tenths(10), power_w=lambda _: 100.0),
    ]
    assert window(rows, ["a", "b"], 2, 9)["gpu_busy_share"] == pytest.approx(0.75)
    assert window(rows, ["a"], 2, 9)["gpu_busy_share"] == pytest.approx(1.0)
    assert window(rows, ["a", "tells none"], 2, 9)["gpu_busy_share"] is None


def test_temperature_is_of_the_window_alone():
    rows = list(gpu_rows("a", [0, 1, 2, 3], temperature_c=[95.0, 60.0, 61.0, 96.0]))
    assert window(rows, ["a"], 0.5, 2.5)["temperature_max_c"] == 61


def trap_rows():
    """The recorded traps, read through the NVML probe as a driver would give them."""
    with (GOLDEN / "power_samples_traps.csv").open() as lines:
        samples = list(csv.DictReader(lines))
    gpus = {}
    for number in ("0", "1"):
        limits = [400_000, 600_000]
        gpu = FakeGpu(number, bus=f"0{number}:00.0", nvmlDeviceGetPowerManagementLimitConstraints=limits)
        gpu.fields = {}
        gpu.calls["nvmlDeviceGetPowerUsage"] = 0
        gpus[number] = gpu
    for sample in samples:
        gpu = gpus[sample["gpu"]]
        unsupported = Failing(NOT_SUPPORTED)
        gpu.calls["nvmlDeviceGetPowerUsage"] = float(sample["power_w"]) * 1000 if sample["power_w"] else unsupported
        gpu.calls["nvmlDeviceGetTotalEnergyConsumption"] = int(sample["energy_mj"] or 0) or unsupported
        for row in NvmlProbe(FakeNvml([gpu])).read_fast():
            yield {**row, "t_ns": round(float(sample["t_s"]) * SECOND)}


def test_recorded_traps_counter_over_averaged_power():
    found = window(trap_rows(), ["0"], 0, 1)
    assert found["energy_source"] == "counter"
    assert found["energy_j"] == pytest.approx(290)


def test_recorded_traps_a_restarted_counter_gives_the_integral_without_the_garbage_sample():
    found = window(trap_rows(), ["0"], 0, 2)
    assert found["energy_source"] == "integral"
    assert found["energy_j"] == pytest.approx(75 * 0.2 + 182.5 * 0.8 + 290 * 0.01 + 290.5 * 0.99)


def test_recorded_traps_unsupported_is_not_zero_energy():
    found = window(trap_rows(), ["1"], 0, 1)
    assert found["energy_j"] is None
    assert found["power_w"] is None
