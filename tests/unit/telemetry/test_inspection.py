"""What NVML says of GPUs and pairs once: guarded value by value, in PCI bus order."""

from types import SimpleNamespace

import pytest

from rtxscale.telemetry.inspection import inspect_gpus, peer_label
from rtxscale.telemetry.nvml import NvmlUnavailableError

from .fake_nvml import DRIVER_NOT_LOADED, MIB, FakeGpu, FakeNvml, NVMLError


class Detailed(FakeNvml):
    """An NVML with the calls that only the doctor makes. `links` is what each NVLink of a GPU leads to."""

    def __init__(self, gpus, links=None, level=30, peer=0):
        super().__init__(gpus)
        self.links, self.level, self.peer = links or {}, level, peer

    def nvmlDeviceGetTopologyCommonAncestor(self, one, other):  # noqa: N802  NVML's own names
        return self.level

    def nvmlDeviceGetP2PStatus(self, one, other, capability):  # noqa: N802
        return self.peer

    def nvmlDeviceGetBAR1MemoryInfo(self, gpu):  # noqa: N802
        return SimpleNamespace(bar1Total=32768 * MIB)

    def nvmlDeviceGetGpcClkVfOffset(self, gpu):  # noqa: N802
        return 150

    def nvmlDeviceGetNvLinkState(self, gpu, link):  # noqa: N802
        if link >= len(self.links.get(gpu.uuid, ())):
            raise NVMLError(2)
        return self.links[gpu.uuid][link] != "down"

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, gpu, link):  # noqa: N802
        return 2 if self.links[gpu.uuid][link] == "switch" else 0

    def nvmlDeviceGetNvLinkRemotePciInfo(self, gpu, link):  # noqa: N802
        return SimpleNamespace(busId=self.links[gpu.uuid][link])


def two(**options):
    return Detailed([FakeGpu("GPU-b", bus="00000000:C1:00.0"), FakeGpu("GPU-a", bus="00000000:01:00.0")], **options)


def test_gpus_and_pairs_in_pci_order():
    found = inspect_gpus(two())
    assert [gpu.device.uuid for gpu in found.gpus] == ["GPU-a", "GPU-b"]
    first = found.gpus[0]
    assert (first.bar1_mib, first.core_offset_mhz, first.memory_offset_mhz) == (32768, 150, None)
    assert (first.utilisation, first.throttle_reasons) == (0.97, ("sw_power_cap",))
    (pair,) = found.pairs
    assert (pair.a, pair.b, pair.level, pair.nvlinks, pair.peer_label) == (0, 1, 30, 0, "OK")
    assert (found.driver, found.cuda_driver) == ("580.95.05", "13.0")


@pytest.mark.parametrize(
    ("links", "count"),
    [
        # Bus ids of different length name the same GPU.
        ({"GPU-a": ["0000:c1:00.0"] * 4, "GPU-b": ["0000:01:00.0"] * 4}, 4),
        ({"GPU-a": ["0000:C1:00.0", "down", "0000:C1:00.0"], "GPU-b": ["0000:01:00.0"] * 3}, 2),
        ({"GPU-a": ["switch"] * 18, "GPU-b": ["switch"] * 17}, 17),
        ({"GPU-a": ["0000:F1:00.0"] * 4, "GPU-b": ["0000:F1:00.0"] * 4}, 0),
        ({}, 0),
    ],
)
def test_nvlinks_between_two_gpus(links, count):
    assert inspect_gpus(two(links=links)).pairs[0].nvlinks == count


@pytest.mark.parametrize(
    ("statuses", "label"),
    [([0, 0], "OK"), ([0, 2], "GNS"), ([1, 0], "CNS"), ([3, 3], "TNS"), ([4, 4], "DR"), ([5, 5], "NS"), ([6, 6], "U")],
)
def test_peer_labels(statuses, label):
    assert peer_label(statuses) == label


def test_an_old_binding_tells_less_and_nothing_fails():
    found = inspect_gpus(FakeNvml([FakeGpu("GPU-a"), FakeGpu("GPU-b", bus="00000000:02:00.0")]))
    assert (found.gpus[0].bar1_mib, found.gpus[0].core_offset_mhz) == (None, None)
    (pair,) = found.pairs
    assert (pair.level, pair.nvlinks, pair.peer_label) == (None, 0, None)


def test_a_lost_gpu_is_there_but_in_no_pair():
    nvml = two()
    nvml.gpus[0].lost = True
    found = inspect_gpus(nvml)
    assert len(found.gpus) + len(found.unreachable) == 2
    assert found.pairs == ()


def test_a_gpu_that_falls_off_the_bus_while_it_is_looked_at():
    nvml = two()
    late = nvml.gpus[0]
    late.calls["nvmlDeviceGetTemperature"] = lambda: (_ for _ in ()).throw(NVMLError(15))
    found = inspect_gpus(nvml)
    assert [bool(gpu.device.lost) for gpu in found.gpus] == [False, True]
    assert found.pairs == ()


def test_nvml_is_left_as_it_was_found():
    nvml = two()
    inspect_gpus(nvml)
    assert nvml.open == 0
    with pytest.raises(NvmlUnavailableError):
        inspect_gpus(FakeNvml(init_error=DRIVER_NOT_LOADED))
