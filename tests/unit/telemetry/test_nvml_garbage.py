"""Garbage that drivers give with a status of success: dropped, said once, and nothing else goes with it."""

import pytest

from rtxscale.telemetry.nvml import NvmlProbe

from .fake_nvml import NOT_SUPPORTED, Failing, FakeGpu, FakeNvml


def read(probe):
    return {row["uuid"]: row for row in probe.read_fast()}


@pytest.mark.parametrize(("limits", "watts", "kept"), [([1, 600_000], 620, True), ([1, 600_000], 3.7e6, False)])
def test_garbage_power_is_dropped_and_a_short_excursion_is_not(limits, watts, kept):
    gpu = FakeGpu("GPU-a", nvmlDeviceGetPowerManagementLimitConstraints=limits)
    gpu.fields[186] = (3, watts * 1000)
    probe = NvmlProbe(FakeNvml([gpu]))
    assert ("power_w" in read(probe)["GPU-a"]) is kept
    assert ("power_w" in dict(probe.devices()[0].absent)) is not kept


def test_garbage_power_is_dropped_on_a_board_without_known_limits():
    gpu = FakeGpu("GPU-a", nvmlDeviceGetPowerManagementLimitConstraints=Failing(NOT_SUPPORTED))
    gpu.fields[186] = (3, 3_700_000_000)
    assert "power_w" not in read(NvmlProbe(FakeNvml([gpu])))["GPU-a"]


def test_a_largest_limit_of_zero_is_not_known():
    gpu = FakeGpu("GPU-a", nvmlDeviceGetPowerManagementLimitConstraints=[0, 0])
    assert read(NvmlProbe(FakeNvml([gpu])))["GPU-a"]["power_w"] == 301.0


def test_zero_power_and_a_counter_at_zero_are_no_readings():
    gpu = FakeGpu("GPU-a", nvmlDeviceGetTotalEnergyConsumption=0)
    gpu.fields[186] = (1, 0)
    probe = NvmlProbe(FakeNvml([gpu]))
    row = read(probe)["GPU-a"]
    assert row.keys().isdisjoint({"power_w", "energy_j"})
    assert row["power_average_w"] == 299.0
    assert dict(probe.devices()[0].absent)["power_w"] == "implausible reading of 0 W dropped"
    gpu.fields[186] = (1, 301_000)
    assert read(probe)["GPU-a"]["power_w"] == 301.0


def test_readings_of_all_ones_are_dropped_whatever_their_unit():
    ones = {"nvmlDeviceGetTotalEnergyConsumption": 2**64 - 1, "nvmlDeviceGetTemperature": 2**32 - 1}
    row = read(NvmlProbe(FakeNvml([FakeGpu("GPU-a", **ones)])))["GPU-a"]
    assert row.keys().isdisjoint({"energy_j", "temperature_c"})
    assert row["sm_clock_mhz"] == 2400.0


def test_a_counter_of_all_ones_is_dropped_and_the_rows_go_on():
    gpu = FakeGpu("GPU-a", nvmlDeviceGetTotalEccErrors=2**64 - 1)
    probe = NvmlProbe(FakeNvml([gpu]))
    (row,) = probe.read_slow()
    assert row.keys().isdisjoint({"ecc_corrected", "ecc_uncorrected"})
    assert row["pcie_replays"] == 2
    assert "implausible reading of 18446744073709551615 dropped" in dict(probe.devices()[0].absent)["ecc_corrected"]
