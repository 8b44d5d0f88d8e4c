"""A recorded trace: everything that the probe gave, totals that fit, and the same rows when it is played back."""

import errno
import sys
import time

import polars as pl
import pytest
from typer.testing import CliRunner

from rtxscale.cli.main import app
from rtxscale.results.schema import table
from rtxscale.telemetry.fields import FAST, SLOW, Device
from rtxscale.telemetry.nvml import NvmlProbe
from rtxscale.telemetry.recorder import (
    Recorded,
    energy_ratio,
    fields_seen,
    pseudonymous,
    record,
    totals,
    write_trace,
)
from rtxscale.telemetry.replay import ReplayProbe

from .fake_nvml import NOT_SUPPORTED, Failing, FakeGpu, FakeNvml


@pytest.fixture(scope="module")
def recorded():
    """A second or so of a GPU at 301 W with an exact counter, and of one without a counter."""
    began = time.monotonic()
    counter = {"nvmlDeviceGetTotalEnergyConsumption": lambda: round(301_000 * (time.monotonic() - began))}
    bare = FakeGpu("GPU-secret-b", bus="00000000:02:00.0", nvmlDeviceGetTotalEnergyConsumption=Failing(NOT_SUPPORTED))
    probe = NvmlProbe(FakeNvml([FakeGpu("GPU-secret-a", **counter), bare]))
    return record(probe, lambda: time.sleep(0.5), period_s=0.02)


def test_every_field_that_the_probe_gives_is_in_the_trace(recorded):
    assert set(fields_seen(recorded.samples)) == (FAST | SLOW) - {"hotspot_temperature_c"}
    assert recorded.errors == 0
    assert recorded.samples["monotonic_ns"].to_pylist() == sorted(recorded.samples["monotonic_ns"].to_pylist())


def test_totals_of_each_gpu(recorded):
    first, bare = totals(recorded)
    assert first.power_mean_w == pytest.approx(301, rel=1e-6)
    assert first.energy_counter_j / first.energy_integral_j == pytest.approx(1, abs=0.01)
    assert first.energy_ratio is None, "half a second is no two blocks"
    assert (first.temperature_max_c, first.slowdown_share) == (61.0, 0.0)
    assert bare.energy_counter_j is None
    assert bare.energy_integral_j > 0
    assert dict(bare.absent)["energy_j"] == "not supported by this GPU"


def test_a_trace_is_added_up_by_the_clock_that_nobody_sets():
    set_at_s = 5
    rows = [
        {
            "device": "gpu",
            "uuid": "a",
            "t_ns": (tick - (30 if tick >= 10 * set_at_s else 0)) * 100_000_000,
            "monotonic_ns": tick * 100_000_000,
            "power_w": 300.0,
            "energy_j": 1000.0 + 30 * tick,
        }
        for tick in range(101)
    ]
    devices = (Device(kind="gpu", uuid="a"),)
    (one,) = totals(Recorded(samples=table("telemetry", rows), devices=devices, missed_ticks=0, errors=0))
    assert one.energy_integral_j == pytest.approx(3000)
    assert one.energy_counter_j == pytest.approx(3000)
    assert one.power_mean_w == pytest.approx(300)


def test_a_gpu_that_tells_no_power_keeps_the_energy_of_its_counter():
    rows = [
        {"device": "gpu", "uuid": "a", "t_ns": tick, "monotonic_ns": tick * 100_000_000, "energy_j": 1000.0 + 30 * tick}
        for tick in range(101)
    ]
    devices = (Device(kind="gpu", uuid="a"),)
    (one,) = totals(Recorded(samples=table("telemetry", rows), devices=devices, missed_ticks=0, errors=0))
    assert one.energy_counter_j == pytest.approx(3000)
    assert (one.energy_integral_j, one.power_mean_w, one.energy_ratio) == (None, None, None)


def test_rows_without_room_are_counted_in_the_trace(monkeypatch):
    monkeypatch.setattr("rtxscale.telemetry.recorder.CAPACITY_ROWS", 10)
    probe = NvmlProbe(FakeNvml([FakeGpu("GPU-a")]))
    recorded = record(probe, lambda: time.sleep(0.5), period_s=0.01)
    assert recorded.samples.num_rows <= 10
    assert recorded.dropped_rows > 0


def series(seconds, value):
    """Samples at 10 Hz; `value` of the time in seconds."""
    return [(tick * 100_000_000, value(tick / 10)) for tick in range(10 * seconds + 1)]


def test_the_ratio_of_both_energies_has_an_interval_over_blocks():
    wobble = [0.99, 1.01, 1.0, 0.995, 1.005, 1.0, 0.99, 1.01, 1.0, 1.0]
    powers = series(60, lambda s: 300.0 * wobble[min(int(s / 6), 9)])
    found = energy_ratio(series(60, lambda s: 309.0 * s), powers)
    assert (found.blocks, found.block_s) == (10, 6.0)
    assert found.ratio == pytest.approx(1.03, abs=0.002)
    assert found.low < 1.03 < found.high
    assert found.high - found.low == pytest.approx(2 * 2.262 * 0.0071 / 10**0.5, rel=0.1)


def test_a_ratio_that_has_no_interval_is_none():
    steady = series(60, lambda _: 300.0)
    assert energy_ratio(series(60, lambda s: 300.0 * s), series(3, lambda _: 300.0)) is None
    assert energy_ratio([], steady) is None
    assert energy_ratio(steady, []) is None
    assert energy_ratio(series(60, lambda _: 5.0), steady) is None, "a counter that stands still"


def test_the_block_in_which_a_counter_restarts_is_left_out():
    restarted = series(60, lambda s: 300.0 * s if s < 33 else 300.0 * (s - 33))
    found = energy_ratio(restarted, series(60, lambda _: 300.0))
    assert found.blocks == 9
    assert found.ratio == pytest.approx(1, abs=1e-6)


def test_it_is_played_back_as_it_was(recorded, tmp_path):
    write_trace(recorded.samples, tmp_path / "trace.parquet")
    probe = ReplayProbe.from_parquet(tmp_path / "trace.parquet")
    assert {device.uuid for device in probe.devices()} == {"GPU-secret-a", "GPU-secret-b"}
    ticks = []
    while tick := list(probe.read_fast()):
        ticks.append(tick)
    original = [row for row in recorded.samples.to_pylist() if row["power_w"] is not None]
    assert [(row["uuid"], row["t_ns"], row.get("energy_j")) for t in ticks for row in t] == [
        (row["uuid"], row["t_ns"], row["energy_j"]) for row in original
    ]
    assert all(len(tick) == 2 for tick in ticks)
    assert next(iter(probe.read_slow()))["remapped_rows"] == 3


def test_pseudonyms_replace_every_uuid(recorded):
    samples, names = pseudonymous(recorded)
    assert names == {"GPU-secret-a": "GPU-0", "GPU-secret-b": "GPU-1"}
    assert set(samples["uuid"].to_pylist()) == {"GPU-0", "GPU-1"}


def invoke(*words):
    return CliRunner().invoke(app, ["record", *map(str, words)])


def test_the_command_records_while_a_program_runs(tmp_path):
    trace = tmp_path / "trace.parquet"
    done = invoke(trace, "--period", "0.02", "--", sys.executable, "-c", "import time; time.sleep(0.2)")
    assert done.exit_code == 0, done.output
    assert "fields with values: " in done.output
    assert list(ReplayProbe.from_parquet(trace).read_fast())


def test_with_pseudonyms_no_uuid_is_written_or_said(tmp_path, monkeypatch):
    probe = NvmlProbe(FakeNvml([FakeGpu("GPU-secret-a")]))
    monkeypatch.setattr("rtxscale.telemetry.probe.open_probe", lambda: probe)
    done = invoke(tmp_path / "trace.parquet", "--pseudonyms", "--seconds", "1")
    assert done.exit_code == 0, done.output
    assert "GPU-0 (" in done.output
    assert "secret" not in done.output
    assert b"secret" not in (tmp_path / "trace.parquet").read_bytes()


def test_a_program_that_fails_is_said_and_what_was_recorded_is_kept(tmp_path):
    assert invoke(tmp_path / "trace.parquet", "--", sys.executable, "-c", "raise SystemExit(3)").exit_code == 1
    assert (tmp_path / "trace.parquet").exists()


def test_a_program_that_does_not_end_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr("rtxscale.cli.record.GONE_S", 0.2)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    done = invoke(tmp_path / "trace.parquet", "--seconds", "1", "--", sys.executable, "-c", deaf)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "trace.parquet").exists()


def test_what_was_recorded_before_ctrl_c_is_kept(tmp_path):
    pl.DataFrame({"step": [1, 2]}).lazy().sum().collect()  # polars' handler has system calls restarted
    trace, began = tmp_path / "trace.parquet", time.monotonic()
    interrupting = "import os, signal, time; time.sleep(0.3); os.kill(os.getppid(), signal.SIGINT); time.sleep(60)"
    done = invoke(trace, "--period", "0.02", "--", sys.executable, "-c", interrupting)
    assert done.exit_code == 130, done.output
    assert time.monotonic() - began < 50, "it went on until the program had ended by itself"
    assert list(ReplayProbe.from_parquet(trace).read_fast())


def test_a_trace_that_cannot_be_written_leaves_what_was_there(recorded, tmp_path, monkeypatch):
    trace = tmp_path / "trace.parquet"
    trace.write_bytes(b"before")

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("rtxscale.telemetry.recorder.pq.write_table", full)
    done = invoke(trace, "--seconds", "1")
    assert (done.exit_code, "No space left" in done.output) == (1, True)
    assert trace.read_bytes() == b"before"


@pytest.mark.parametrize("words", [("--period", "inf"), ("--period", "nan"), ("--seconds", "inf"), ("--seconds", "0")])
def test_times_that_no_clock_can_wait_for_are_refused(tmp_path, words):
    assert invoke(tmp_path / "trace.parquet", *words).exit_code == 2


def test_nothing_but_a_file_is_written_over(tmp_path):
    (tmp_path / "link").symlink_to("elsewhere")
    for place in (tmp_path, tmp_path / "link", "/dev/null"):
        done = invoke(place, "--seconds", "60")
        assert (done.exit_code, "expected a regular file" in done.output) == (2, True)


def test_what_cannot_be_is_said_at_once(tmp_path):
    assert invoke(tmp_path / "gone" / "trace.parquet", "--seconds", "60").exit_code == 2
    missing = invoke(tmp_path / "trace.parquet", "--", "no-such-program")
    assert (missing.exit_code, "no-such-program" in missing.output) == (1, True)
