"""NVML probes: one metric, one GPU or one driver generation that fails takes nothing else with it."""

from types import SimpleNamespace

import pytest

from rtxscale.telemetry.fields import FAST, SLOW
from rtxscale.telemetry.nvml import POWER_INSTANT, POWER_USAGE, NvmlProbe, NvmlUnavailableError
from rtxscale.telemetry.nvml_errors import ERRORS, Outcome, explain
from rtxscale.telemetry.nvml_readers import EVENT_REASONS, FAST_READERS, SLOW_READERS

from .fake_nvml import DRIVER_NOT_LOADED, FUNCTION_NOT_FOUND, NOT_SUPPORTED, Failing, FakeGpu, FakeNvml, NVMLError


class Uncounted(FakeNvml):
    """Starts, and then does not say how many GPUs there are."""

    def __init__(self, code):
        super().__init__([FakeGpu("GPU-a")])
        self.code = code

    def nvmlDeviceGetCount(self):  # noqa: N802  NVML's own name
        raise NVMLError(self.code)


def read(probe):
    return {row["uuid"]: row for row in probe.read_fast()}


def test_all_fields_in_the_tables_units():
    probe = NvmlProbe(FakeNvml([FakeGpu("GPU-a")]))
    assert read(probe)["GPU-a"] == {
        "device": "gpu",
        "uuid": "GPU-a",
        "power_w": 301.0,
        "power_average_w": 299.0,
        "energy_j": 5000.0,
        "temperature_c": 61.0,
        "memory_temperature_c": 70.0,
        "sm_clock_mhz": 2400.0,
        "memory_clock_mhz": 14001.0,
        "throttle_reasons": ["sw_power_cap"],
        "performance_state": 0,
        "utilisation": 0.97,
        "memory_used_mib": 1000.0,
    }
    assert next(probe.read_slow()) == {
        "device": "gpu",
        "uuid": "GPU-a",
        "fan_percent": 55.0,
        "pcie_generation": 5,
        "pcie_width": 16,
        "pcie_rx_mb_s": 12000.0,
        "pcie_tx_mb_s": 12000.0,
        "pcie_replays": 2,
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
        "remapped_rows": 3,
        "processes": 0,
        "xids": [],
    }
    assert dict(probe.devices()[0].absent) == {"hotspot_temperature_c": "NVML has no such reading"}


def test_named_fields_of_one_gpu_are_read_alone():
    def forbidden():
        raise AssertionError("read without being named")

    other = FakeGpu("GPU-b", bus="00000000:02:00.0", nvmlDeviceGetTemperature=forbidden)
    probe = NvmlProbe(FakeNvml([FakeGpu("GPU-a", nvmlDeviceGetPowerUsage=forbidden), other]))
    row = probe.read_named("GPU-a", ("temperature_c", "sm_clock_mhz"))
    assert row == {"device": "gpu", "uuid": "GPU-a", "temperature_c": 61.0, "sm_clock_mhz": 2400.0}
    assert probe.read_named("GPU-c", ("temperature_c",)) is None
    assert "temperature_c" not in (probe.read_named("GPU-b", ("temperature_c", "sm_clock_mhz")) or {})
    probe.close()
    assert probe.read_named("GPU-a", ("temperature_c",)) is None


def test_readers_cover_the_field_table():
    assert set(FAST_READERS) == FAST
    assert {*SLOW_READERS, "xids"} == SLOW


def test_fields_of_nvml_are_asked_for_in_one_call():
    gpu = FakeGpu("GPU-a")
    nvml = FakeNvml([gpu])
    probe = NvmlProbe(nvml)
    asked = []
    ask = nvml.nvmlDeviceGetFieldValues
    nvml.nvmlDeviceGetFieldValues = lambda handle, fields: asked.append(list(fields)) or ask(handle, fields)
    read(probe)
    assert [sorted(fields) for fields in asked] == [[82, 185, 186]]


def test_fields_of_nvml_are_asked_for_one_by_one_where_the_batch_fails():
    nvml = FakeNvml([FakeGpu("GPU-a")])
    probe = NvmlProbe(nvml)
    ask = nvml.nvmlDeviceGetFieldValues

    def one_only(handle, fields):
        return ask(handle, fields) if len(fields) == 1 else _raise(2)

    nvml.nvmlDeviceGetFieldValues = one_only
    row = read(probe)["GPU-a"]
    assert (row["power_w"], row["power_average_w"], row["memory_temperature_c"]) == (301.0, 299.0, 70.0)


def slow(probe):
    return {row["uuid"]: row for row in probe.read_slow()}


def test_xid_errors_come_once_in_order_and_only_on_their_gpu():
    gpu, other = FakeGpu("GPU-a"), FakeGpu("GPU-b", bus="00000000:02:00.0")
    probe = NvmlProbe(FakeNvml([gpu, other]))
    assert slow(probe)["GPU-a"]["xids"] == []
    gpu.xids += [31, 43]
    rows = slow(probe)
    assert (rows["GPU-a"]["xids"], rows["GPU-b"]["xids"]) == ([31, 43], [])
    assert slow(probe)["GPU-a"]["xids"] == []


def test_closing_stops_listening_for_xid_errors():
    nvml = FakeNvml([FakeGpu("GPU-a")])
    made, create = [], nvml.nvmlEventSetCreate
    nvml.nvmlEventSetCreate = lambda: made.append(create()) or made[-1]
    probe = NvmlProbe(nvml)
    slow(probe)
    assert [events.gpu is None for events in made] == [False]
    probe.close()
    assert [events.gpu is None for events in made] == [True]


def test_xid_errors_that_may_not_be_read_are_absent_not_empty():
    nvml = FakeNvml([FakeGpu("GPU-a")])
    nvml.nvmlDeviceRegisterEvents = lambda *_: _raise(4)
    probe = NvmlProbe(nvml)
    assert "xids" not in slow(probe)["GPU-a"]
    assert dict(probe.devices()[0].absent)["xids"] == "no permission"


def test_a_card_without_ecc_has_no_counts_of_errors():
    gpu = FakeGpu("GPU-a")
    gpu.calls |= {"nvmlDeviceGetTotalEccErrors": Failing(NOT_SUPPORTED), "nvmlDeviceGetRemappedRows": Failing(3)}
    probe = NvmlProbe(FakeNvml([gpu]))
    row = slow(probe)["GPU-a"]
    assert {"ecc_corrected", "ecc_uncorrected", "remapped_rows"}.isdisjoint(row)
    assert dict(probe.devices()[0].absent)["ecc_corrected"] == "not supported by this GPU"


class MismatchError(Exception):
    """What the binding raises for a function that the driver lacks: without a code."""


@pytest.mark.parametrize("missing", [MismatchError("lib"), Failing(FUNCTION_NOT_FOUND)])
def test_processes_of_an_older_driver_are_read_in_its_structure(missing):
    gpu = FakeGpu("GPU-a", nvmlDeviceGetComputeRunningProcesses=missing)
    nvml = FakeNvml([gpu])
    nvml.nvmlDeviceGetComputeRunningProcesses_v2 = lambda _: [SimpleNamespace(pid=7, usedGpuMemory=None)]
    probe = NvmlProbe(nvml)
    assert [process.pid for process in probe.processes()] == [7]
    assert slow(probe)["GPU-a"]["processes"] == 1


def test_calls_that_left_the_binding_are_replaced_by_their_successors():
    nvml = FakeNvml([FakeGpu("GPU-a")], missing=["nvmlDeviceGetTemperature", "nvmlDeviceGetFanSpeed"])
    nvml.nvmlDeviceGetTemperatureV = lambda *_: 62
    nvml.nvmlDeviceGetFanSpeed_v2 = lambda _, fan: 40 + fan
    probe = NvmlProbe(nvml)
    assert read(probe)["GPU-a"]["temperature_c"] == 62.0
    assert slow(probe)["GPU-a"]["fan_percent"] == 40.0


@pytest.mark.parametrize("gone", [13, 26])
def test_calls_that_left_the_driver_are_replaced_by_their_successors(gone):
    old = {"nvmlDeviceGetTemperature": Failing(gone), "nvmlDeviceGetFanSpeed": Failing(gone)}
    nvml = FakeNvml([FakeGpu("GPU-a", **old)])
    nvml.nvmlDeviceGetTemperatureV = lambda *_: 62
    nvml.nvmlDeviceGetFanSpeed_v2 = lambda _, fan: 40 + fan
    probe = NvmlProbe(nvml)
    assert read(probe)["GPU-a"]["temperature_c"] == 62.0
    assert slow(probe)["GPU-a"]["fan_percent"] == 40.0


def test_one_gpus_unsupported_metric_is_absent_there_and_nowhere_else():
    bare = FakeGpu("GPU-b", bus="00000000:02:00.0")
    bare.calls["nvmlDeviceGetTotalEnergyConsumption"] = Failing(NOT_SUPPORTED)
    bare.fields = {}
    probe = NvmlProbe(FakeNvml([FakeGpu("GPU-a"), bare]))
    rows = read(probe)
    assert rows["GPU-a"]["energy_j"] == 5000.0
    assert "energy_j" not in rows["GPU-b"]
    assert rows["GPU-b"]["power_w"] == 300.0
    absent = dict(probe.devices()[1].absent)
    assert absent["energy_j"] == "not supported by this GPU"
    assert set(absent) == {"energy_j", "power_average_w", "memory_temperature_c"}
    assert probe.devices()[0].absent == ()


def test_an_unsupported_metric_is_asked_for_once():
    asked = []
    gpu = FakeGpu("GPU-a")
    gpu.calls["nvmlDeviceGetFanSpeed"] = lambda: asked.append(1) or _raise(NOT_SUPPORTED)
    probe = NvmlProbe(FakeNvml([gpu]))
    for _ in range(3):
        list(probe.read_slow())
    assert len(asked) == 1


def _raise(code):
    raise FakeNvml.NVMLError(code)


def test_a_passing_fault_is_asked_again():
    answers = iter([Failing(10), 62, 63])
    gpu = FakeGpu("GPU-a")
    gpu.calls["nvmlDeviceGetTemperature"] = lambda: next_or_raise(answers)
    probe = NvmlProbe(FakeNvml([gpu]))
    assert [read(probe)["GPU-a"].get("temperature_c") for _ in range(3)] == [None, 62.0, 63.0]
    assert dict(probe.devices()[0].absent) == {"temperature_c": "timed out"}


def next_or_raise(answers):
    value = next(answers)
    if isinstance(value, Failing):
        _raise(value.code)
    return value


def test_a_lost_gpu_is_recorded_and_the_others_go_on():
    first, second = FakeGpu("GPU-a"), FakeGpu("GPU-b", bus="00000000:02:00.0")
    probe = NvmlProbe(FakeNvml([first, second]))
    assert set(read(probe)) == {"GPU-a", "GPU-b"}
    first.lost = True
    assert set(read(probe)) == {"GPU-b"}
    assert set(read(probe)) == {"GPU-b"}
    lost, alive = probe.devices()
    assert "lost" in lost.lost
    assert alive.lost == ""


@pytest.mark.parametrize("seen_by", ["fast", "slow"])
def test_the_xid_error_of_a_gpu_that_is_lost_is_told_once(seen_by):
    gpu = FakeGpu("GPU-a")
    probe = NvmlProbe(FakeNvml([gpu, FakeGpu("GPU-b", bus="00000000:02:00.0")]))
    assert slow(probe)["GPU-a"]["xids"] == []
    gpu.xids, gpu.lost = [31, 79], True
    if seen_by == "fast":
        assert set(read(probe)) == {"GPU-b"}
    rows = [row for _ in range(3) for row in probe.read_slow() if row["uuid"] == "GPU-a"]
    assert rows == [{"device": "gpu", "uuid": "GPU-a", "xids": [31, 79]}]


def test_a_gpu_that_cannot_be_opened_is_named_and_the_others_are_watched():
    gone = FakeGpu("GPU-a")
    gone.lost = True
    probe = NvmlProbe(FakeNvml([gone, FakeGpu("GPU-b")]))
    assert [device.uuid for device in probe.devices()] == ["GPU-b"]
    assert probe.unreachable == ("GPU 0: the GPU is lost: it fell off the bus",)


def test_gpus_come_in_pci_bus_order_whatever_nvmls_order():
    gpus = [FakeGpu(f"GPU-{bus}", bus=f"00000000:{bus}:00.0") for bus in ("C1", "81", "41", "01")]
    probe = NvmlProbe(FakeNvml(gpus))
    assert [device.uuid for device in probe.devices()] == ["GPU-01", "GPU-41", "GPU-81", "GPU-C1"]


NAMES = [
    (b"NVIDIA H200", "NVIDIA H200"),
    ("NVIDIA H200", "NVIDIA H200"),
    (b"NVIDIA \xf8", "NVIDIA \N{REPLACEMENT CHARACTER}"),
    (UnicodeDecodeError("utf-8", b"NVIDIA \xf8", 7, 8, "invalid start byte"), "NVIDIA \N{REPLACEMENT CHARACTER}"),
    (Failing(999), "unknown"),
]


@pytest.mark.parametrize(("given", "expected"), NAMES)
def test_names_as_bytes_text_and_neither(given, expected):
    probe = NvmlProbe(FakeNvml([FakeGpu(b"GPU-a", name=given, bus=b"00000000:01:00.0")]))
    (device,) = probe.devices()
    assert (device.name, device.uuid, device.pci_bus_id) == (expected, "GPU-a", "00000000:01:00.0")


@pytest.mark.parametrize("missing", [["nvmlDeviceGetCurrentClocksEventReasons"], []])
def test_event_reasons_fall_back_to_throttle_reasons(missing):
    gpu = FakeGpu("GPU-a")
    gpu.calls["nvmlDeviceGetCurrentClocksEventReasons"] = Failing(FUNCTION_NOT_FOUND)
    gpu.calls["nvmlDeviceGetCurrentClocksThrottleReasons"] = 0x60
    probe = NvmlProbe(FakeNvml([gpu], missing=missing))
    assert read(probe)["GPU-a"]["throttle_reasons"] == ["sw_thermal_slowdown", "hw_thermal_slowdown"]


def test_no_reasons_at_all_is_an_empty_list_and_unknown_bits_are_kept():
    gpu = FakeGpu("GPU-a", nvmlDeviceGetCurrentClocksEventReasons=0)
    assert read(NvmlProbe(FakeNvml([gpu])))["GPU-a"]["throttle_reasons"] == []
    gpu.calls["nvmlDeviceGetCurrentClocksEventReasons"] = 0x1_0000_0001
    assert read(NvmlProbe(FakeNvml([gpu])))["GPU-a"]["throttle_reasons"] == ["gpu_idle", "other 0x100000000"]


def test_which_power_was_read_is_recorded():
    old = FakeGpu("GPU-b", bus="00000000:02:00.0")
    old.fields = {}
    instant, usage = NvmlProbe(FakeNvml([FakeGpu("GPU-a"), old])).devices()
    assert instant.power_source == POWER_INSTANT
    assert usage.power_source == POWER_USAGE


def test_a_part_with_unified_memory_has_no_memory_figures():
    gpu = FakeGpu("GPU-a", name="NVIDIA GB10", bus="0000000F:01:00.0", memory_mib=None)
    probe = NvmlProbe(FakeNvml([gpu]))
    assert probe.devices()[0].memory_mib is None
    assert "memory_used_mib" not in read(probe)["GPU-a"]
    assert read(probe)["GPU-a"]["power_w"] == 301.0


def test_mig_board_utilisation_is_absent_and_its_instances_are_known():
    gpu = FakeGpu("GPU-a", nvmlDeviceGetMigMode=[1, 1], nvmlDeviceGetUtilizationRates=Failing(NOT_SUPPORTED))
    gpu.mig_instances = [FakeGpu("MIG-1", name="NVIDIA H100 80GB HBM3 MIG 1g.10gb", memory_mib=9984)]
    probe = NvmlProbe(FakeNvml([gpu]))
    (device,) = probe.devices()
    assert device.mig
    assert [(one.uuid, one.memory_mib) for one in device.mig_instances] == [("MIG-1", 9984)]
    assert "utilisation" not in read(probe)["GPU-a"]


def test_an_older_binding_without_newer_functions_still_gives_the_rest():
    missing = ["nvmlDeviceGetFieldValues", "nvmlDeviceGetMigMode", "nvmlDeviceGetPowerManagementDefaultLimit"]
    probe = NvmlProbe(FakeNvml([FakeGpu("GPU-a")], missing=missing))
    row = read(probe)["GPU-a"]
    assert row["power_w"] == 300.0
    assert "memory_temperature_c" not in row
    assert probe.devices()[0].power_default_w is None


def test_the_unknown_performance_state_is_absent():
    gpu = FakeGpu("GPU-a", nvmlDeviceGetPerformanceState=32)
    assert "performance_state" not in read(NvmlProbe(FakeNvml([gpu])))["GPU-a"]


@pytest.mark.parametrize(
    ("nvml", "reason"),
    [
        (FakeNvml(init_error=DRIVER_NOT_LOADED), "driver is not loaded"),
        (FakeNvml(init_error=18), "reboot"),
        (FakeNvml([]), "no NVIDIA GPU"),
        (object(), "lacks the function"),
        (Uncounted(4), "does not count the GPUs: no permission"),
        (Uncounted(999), "does not count the GPUs: unknown NVML error"),
    ],
)
def test_unusable_nvml_says_why(nvml, reason):
    with pytest.raises(NvmlUnavailableError, match=reason):
        NvmlProbe(nvml)
    assert getattr(nvml, "open", 0) == 0


def test_close_shuts_down_once():
    nvml = FakeNvml([FakeGpu("GPU-a")])
    probe = NvmlProbe(nvml)
    probe.close()
    probe.close()
    assert nvml.open == 0
    assert list(probe.read_fast()) == []


def test_every_nvml_error_of_the_binding_has_a_meaning():
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    known = {getattr(pynvml, name) for name in dir(pynvml) if name.startswith("NVML_ERROR_")}
    assert known == set(ERRORS)


def test_every_event_reason_of_the_binding_has_a_name():
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    families = ("nvmlClocksThrottleReason", "nvmlClocksEventReason")
    bits = {
        getattr(pynvml, name)
        for name in dir(pynvml)
        if name.startswith(families) and not name.endswith(("All", "None", "Unknown"))
    }
    assert bits == set(EVENT_REASONS)


def test_the_numbers_used_are_the_bindings():
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    from rtxscale.telemetry import nvml_readers

    assert pynvml.NVML_FI_DEV_POWER_INSTANT == nvml_readers.FIELD_POWER_INSTANT
    assert pynvml.NVML_FI_DEV_POWER_AVERAGE == nvml_readers.FIELD_POWER_AVERAGE
    assert pynvml.NVML_FI_DEV_MEMORY_TEMP == nvml_readers.FIELD_MEMORY_TEMPERATURE
    assert pynvml.nvmlMemory_v2 == nvml_readers.MEMORY_V2
    assert (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM) == (nvml_readers.CLOCK_SM, nvml_readers.CLOCK_MEMORY)
    assert (pynvml.NVML_PCIE_UTIL_TX_BYTES, pynvml.NVML_PCIE_UTIL_RX_BYTES) == (
        nvml_readers.PCIE_TX,
        nvml_readers.PCIE_RX,
    )


def test_the_real_bindings_functions_exist():
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    used = [name for name in dir(FakeNvml) if name.startswith("nvml")] + list(FakeGpu("x").calls)
    assert [name for name in used if not hasattr(pynvml, name)] == []


def test_an_unlisted_error_code_is_passing():
    failure = explain(FakeNvml.NVMLError(777))
    assert failure.outcome is Outcome.UNAVAILABLE
    assert "777" in failure.reason
