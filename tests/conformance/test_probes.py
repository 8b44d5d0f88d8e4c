"""One class that every probe passes: what a sampler may rely on."""

import importlib.util
from pathlib import Path

import pytest

from rtxscale.results.schema import table
from rtxscale.telemetry.fields import FAST, SLOW
from rtxscale.telemetry.host import HostProbe
from rtxscale.telemetry.nvml import NvmlProbe
from rtxscale.telemetry.probe import JoinedProbe, open_probe
from rtxscale.telemetry.replay import ReplayProbe


def _fake_nvml():
    path = Path(__file__).parents[1] / "unit" / "telemetry" / "fake_nvml.py"
    spec = importlib.util.spec_from_file_location("conformance_fake_nvml", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fake = _fake_nvml()


def gpus():
    bare = fake.FakeGpu("GPU-b", name=b"NVIDIA \xf8", bus="00000000:02:00.0", memory_mib=None)
    bare.fields = {}
    bare.calls.update(dict.fromkeys(bare.calls, fake.Failing(fake.NOT_SUPPORTED)))
    bare.calls["nvmlDeviceGetTemperature"] = 40
    return fake.FakeNvml([bare, fake.FakeGpu("GPU-a")])


def recorded():
    probe = NvmlProbe(gpus())
    return [
        {**row, "t_ns": tick, "monotonic_ns": tick}
        for tick in range(5)
        for row in (*probe.read_fast(), *probe.read_slow())
    ]


def replayed_from_parquet(directory):
    pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    path = directory / "trace.parquet"
    pq.write_table(table("telemetry", recorded()), path)
    return ReplayProbe.from_parquet(path)


MAKERS = {
    "nvml": lambda _: NvmlProbe(gpus()),
    "host": lambda _: HostProbe(),
    "joined": lambda _: JoinedProbe((NvmlProbe(gpus()), HostProbe())),
    "replay": lambda _: ReplayProbe(recorded()),
    "replay from Parquet": replayed_from_parquet,
    "this machine": lambda _: open_probe(),
    "a machine with a broken driver": lambda _: open_probe(fake.FakeNvml(init_error=18)),
}


@pytest.mark.parametrize("kind", MAKERS)
class TestProbe:
    @pytest.fixture
    def probe(self, kind, tmp_path):
        probe = MAKERS[kind](tmp_path)
        yield probe
        probe.close()

    def test_it_has_a_name_and_distinct_devices(self, probe):
        devices = probe.devices()
        assert probe.name
        assert devices
        assert len({(device.kind, device.uuid) for device in devices}) == len(devices)
        assert all((device.uuid is None) == (device.kind == "host") for device in devices)

    @pytest.mark.parametrize(("cadence", "fields"), [("read_fast", FAST), ("read_slow", SLOW)])
    def test_rows_are_of_its_devices_and_of_the_cadences_fields(self, probe, cadence, fields):
        known = {(device.kind, device.uuid) for device in probe.devices()}
        for _ in range(2):
            rows = list(getattr(probe, cadence)())
            keys = [(row["device"], row["uuid"]) for row in rows]
            assert set(keys) <= known
            assert len(set(keys)) == len(keys)
            for row in rows:
                values = set(row) - {"device", "uuid", "t_ns", "monotonic_ns"}
                assert values
                assert values <= fields
                assert None not in [row[name] for name in values]

    def test_rows_fit_the_table(self, probe):
        rows = [*probe.read_fast(), *probe.read_slow()]
        assert table("telemetry", rows).num_rows == len(rows)

    def test_values_are_in_range(self, probe):
        list(probe.read_fast())
        for row in probe.read_fast():
            assert 0 <= row.get("utilisation", 0) <= 1
            assert row.get("memory_used_mib", 1) > 0
            assert row.get("power_w", 1) > 0
            assert row.get("temperature_c", 1) > 0

    def test_devices_can_be_asked_while_reading(self, probe):
        before = [(device.kind, device.uuid) for device in probe.devices()]
        list(probe.read_fast())
        assert [(device.kind, device.uuid) for device in probe.devices()] == before

    def test_closed_it_gives_nothing_and_can_be_closed_again(self, probe):
        probe.close()
        probe.close()
        assert list(probe.read_fast()) == []
        assert list(probe.read_slow()) == []


def test_a_recorded_trace_replays_what_was_recorded():
    rows = recorded()
    probe = ReplayProbe(rows)
    replayed = [row for _ in range(5) for row in (*probe.read_fast(), *probe.read_slow())]
    assert replayed == rows
    assert list(probe.read_fast()) == []


def test_gpus_and_host_are_watched_together_and_the_host_alone_without_nvml():
    both = open_probe(gpus())
    assert [device.kind for device in both.devices()] == ["gpu", "gpu", "host"]
    alone = open_probe(fake.FakeNvml(init_error=fake.DRIVER_NOT_LOADED))
    assert [device.kind for device in alone.devices()] == ["host"]
