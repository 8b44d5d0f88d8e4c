"""The node and the environment rows, with GPUs, without, and with a broken NVML library."""

import getpass
import platform
import re

import pytest

from rtxscale.telemetry import facts
from rtxscale.telemetry.facts import describe_node, host_environment, local_node, usable_cpus

from .fake_nvml import DRIVER_NOT_LOADED, NOT_SUPPORTED, Failing, FakeGpu, FakeNvml


def two_gpus():
    late = FakeGpu("GPU-b", name="NVIDIA RTX PRO 5000 Blackwell", bus="00000000:C1:00.0", memory_mib=48935)
    return FakeNvml([late, FakeGpu("GPU-a", bus="00000000:01:00.0")])


def values(rows):
    return {row["name"]: row["value"] for row in rows}


def test_gpus_in_pci_order_with_their_facts():
    node = local_node("n1", {}, two_gpus())
    assert [(gpu.uuid, gpu.index, gpu.name, gpu.memory_mib, gpu.power_limit_w) for gpu in node.gpus] == [
        ("GPU-a", 0, "NVIDIA GeForce RTX 5090", 32607, 575.0),
        ("GPU-b", 1, "NVIDIA RTX PRO 5000 Blackwell", 48935, 575.0),
    ]
    assert node.node_id == "n1"
    assert node.cpus >= 1


def test_links_between_gpus_of_the_pool_are_part_of_the_node():
    nvml = FakeNvml([FakeGpu(f"GPU-{name}", bus=f"00000000:0{bus}:00.0") for bus, name in enumerate("abc", start=1)])
    nvml.nvmlDeviceGetTopologyCommonAncestor = lambda _one, _other: 20
    links = local_node("n", {}, nvml).links
    assert [(link.a, link.b, link.label) for link in links] == [
        ("GPU-a", "GPU-b", "PXB"),
        ("GPU-a", "GPU-c", "PXB"),
        ("GPU-b", "GPU-c", "PXB"),
    ]
    assert [(link.a, link.b) for link in local_node("n", {"CUDA_VISIBLE_DEVICES": "0,2"}, nvml).links] == [
        ("GPU-a", "GPU-c")
    ]
    assert local_node("n", {"CUDA_VISIBLE_DEVICES": "0"}, nvml).links == ()
    assert local_node("n", {}, two_gpus()).links == ()  # an NVML that does not tell


@pytest.mark.parametrize(("value", "uuids"), [("1", ["GPU-b"]), ("1,0", ["GPU-a", "GPU-b"]), ("GPU-b", ["GPU-b"])])
def test_the_users_gpus_are_the_pool_and_keep_their_index(value, uuids):
    node = local_node("n", {"CUDA_VISIBLE_DEVICES": value}, two_gpus())
    assert [gpu.uuid for gpu in node.gpus] == uuids
    assert {gpu.uuid: gpu.index for gpu in node.gpus}[uuids[-1]] == 1


def test_hidden_gpus_are_explained():
    node, notes = describe_node("n", {"CUDA_VISIBLE_DEVICES": "0,0"}, two_gpus())
    assert node.gpus == ()
    assert "twice" in notes[0]


def test_a_mig_instance_can_be_named():
    board = FakeGpu("GPU-a", nvmlDeviceGetMigMode=[1, 1])
    board.mig_instances = [FakeGpu("MIG-1", name="NVIDIA H100 80GB HBM3 MIG 1g.10gb", memory_mib=9984)]
    node, notes = describe_node("n", {"CUDA_VISIBLE_DEVICES": "MIG-1"}, FakeNvml([board]))
    assert [(gpu.uuid, gpu.memory_mib) for gpu in node.gpus] == [("MIG-1", 9984)]
    assert "MIG mode" in notes[0]


def test_a_gpu_that_is_lost_is_not_in_the_pool():
    nvml = two_gpus()
    nvml.gpus[1].lost = True
    node, notes = describe_node("n", {}, nvml)
    assert [gpu.uuid for gpu in node.gpus] == ["GPU-b"]
    assert "fell off the bus" in notes[0]


@pytest.mark.parametrize("nvml", [FakeNvml(init_error=DRIVER_NOT_LOADED), FakeNvml([]), object()])
def test_without_a_usable_nvml_there_is_a_node_without_gpus_and_a_reason(nvml):
    node, notes = describe_node("n", {"CUDA_VISIBLE_DEVICES": "0"}, nvml)
    assert node.gpus == ()
    assert notes[0].startswith("no GPU can be seen: ")
    rows = values(host_environment(nvml))
    assert rows["NVML"] == notes[0]
    assert rows["CUDA driver"] == "unknown"


def test_a_broken_nvml_package_is_a_reason_not_a_traceback(monkeypatch):
    def broken(_):
        raise OSError("libnvidia-ml.so.1: file too short")

    monkeypatch.setattr("importlib.import_module", broken)
    _, notes = describe_node("n", {})
    assert "file too short" in notes[0]


def test_environment_rows_of_two_gpus():
    rows = host_environment(two_gpus())
    assert all(set(row) == {"subject", "name", "value"} for row in rows)
    assert all(isinstance(row["value"], str) and row["value"] for row in rows)
    named = values(rows)
    assert len(named) == len(rows)
    assert named["driver"] == "580.95.05"
    assert named["CUDA driver"] == "13.0"
    assert named["gpu0 name"] == "NVIDIA GeForce RTX 5090"
    assert named["gpu1 power limit"] == "575.0 W"
    assert named["gpu1 largest power limit"] == "600.0 W"
    assert named["gpu0 pcie max"] == "generation 5, 16 lanes"
    assert named["gpu0 persistence mode"] == "on"
    assert named["gpu0 mig"] == "not applicable"
    assert named["gpu0 compute capability"] == "12.0"


def test_what_nvml_does_not_say_is_written_as_unknown():
    gpu = FakeGpu("GPU-a", name=Failing(999), memory_mib=None)
    for call in list(gpu.calls):
        gpu.calls[call] = Failing(NOT_SUPPORTED)
    named = values(host_environment(FakeNvml([gpu])))
    unknown = {name for name, value in named.items() if name.startswith("gpu0") and value == "unknown"}
    assert {"gpu0 name", "gpu0 power limit", "gpu0 memory", "gpu0 pcie max", "gpu0 persistence mode"} <= unknown
    assert "energy_j (not supported by this GPU)" in named["gpu0 telemetry not given"]


def test_rows_are_the_same_at_each_call_though_readings_change():
    nvml = two_gpus()
    before = host_environment(nvml)
    for gpu in nvml.gpus:
        gpu.calls["nvmlDeviceGetTemperature"] = 90
        gpu.calls["nvmlDeviceGetFanSpeed"] = Failing(10)
        gpu.calls["nvmlDeviceGetCurrPcieLinkGeneration"] = 1
    assert host_environment(nvml) == before
    assert nvml.open == 0


def test_no_host_or_user_name_in_the_rows():
    words = {word for row in host_environment(two_gpus()) for word in re.split(r"[\s/,;]+", row["value"])}
    assert platform.node() not in words
    assert getpass.getuser() not in words - {"root"}


@pytest.mark.parametrize(
    ("quota", "expected"), [("max 100000\n", 8), ("150000 100000\n", 2), ("50000 100000", 1), ("garbage", 8), ("", 8)]
)
def test_usable_cpus_respect_affinity_and_the_containers_quota(monkeypatch, tmp_path, quota, expected):
    monkeypatch.setattr(facts.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    path = tmp_path / "cpu.max"
    path.write_text(quota)
    monkeypatch.setattr(facts, "CPU_QUOTA", path)
    assert usable_cpus() == expected
