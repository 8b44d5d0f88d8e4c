"""Sampling in threads: rows drained once, bounded memory, faults survived, ticks counted."""

import threading
import time

import pytest

from rtxscale.results.schema import TELEMETRY, arrow_schema
from rtxscale.telemetry.fields import FIELDS
from rtxscale.telemetry.nvml import NvmlProbe
from rtxscale.telemetry.replay import ReplayProbe
from rtxscale.telemetry.sampler import RowBuffer, Sampler, next_tick, update_period_s, update_periods_s

from .fake_nvml import FakeGpu, FakeNvml


def wait_until(condition, within_s=5.0):
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


@pytest.fixture
def running():
    """Starts samplers and stops them at the end."""
    started = []

    def start(probe, **options):
        sampler = Sampler(probe, "node-1", **{"period_s": 0.01, "slow_period_s": 0.01, "learning_s": 0, **options})
        started.append(sampler)
        sampler.start()
        return sampler

    yield start
    for sampler in started:
        sampler.stop()


class CountingProbe:
    """Counts its fast reads; a read may wait or fail."""

    name = "counting"

    def __init__(self, action=lambda _: None):
        self.reads = 0
        self.closed = False
        self._action = action

    def devices(self):
        return ()

    def read_fast(self):
        self.reads += 1
        self._action(self.reads)
        yield {"device": "gpu", "uuid": "a", "power_w": float(self.reads)}

    def read_slow(self):
        yield from ()

    def close(self):
        self.closed = True


def test_field_names_and_units_are_the_schemas():
    units = {column.name: column.unit for column in TELEMETRY}
    assert {field.name: field.unit for field in FIELDS} == {field.name: units[field.name] for field in FIELDS}
    sampled = {field.name for field in FIELDS}
    identity = {"trial_id", "attempt", "session_id", "node", "device", "uuid", "t_ns", "monotonic_ns"}
    beside = {"clock_offset_s", "clock_error_s", "wall_power_w", "energy_update_s"}
    assert {column.name for column in TELEMETRY} == sampled | identity | beside


def test_rows_are_drained_once_and_in_order(running):
    probe = CountingProbe()
    sampler = running(probe)
    wait_until(lambda: probe.reads >= 5)
    first = sampler.drain()
    wait_until(lambda: probe.reads >= 10)
    sampler.stop()
    last = sampler.drain()
    powers = first["power_w"].to_pylist() + last["power_w"].to_pylist()
    assert powers == [float(number) for number in range(1, probe.reads + 1)]
    assert sampler.drain().num_rows == 0
    assert first.schema.equals(arrow_schema("telemetry"), check_metadata=True)
    assert probe.closed


def test_rows_carry_node_and_both_clocks(running):
    probe = CountingProbe()
    before_ns, before_monotonic_ns = time.time_ns(), time.monotonic_ns()
    sampler = running(probe)
    wait_until(lambda: probe.reads >= 3)
    sampler.stop()
    rows = sampler.drain().to_pylist()
    assert {row["node"] for row in rows} == {"node-1"}
    assert all(before_ns <= row["t_ns"] <= time.time_ns() for row in rows)
    assert all(before_monotonic_ns <= row["monotonic_ns"] <= time.monotonic_ns() for row in rows)
    assert {row["trial_id"] for row in rows} == {None}


def test_fast_and_slow_rows_of_gpus(running):
    sampler = running(NvmlProbe(FakeNvml([FakeGpu("GPU-a"), FakeGpu("GPU-b", bus="00000000:02:00.0")])))
    rows = []
    wait_until(lambda: rows.extend(sampler.drain().to_pylist()) or {"fast", "slow"} <= set(map(cadence, rows)))
    latest = sampler.latest()
    assert latest["power_w"] == 602.0
    assert latest["temperature_max_c"] == 61.0
    assert latest["gpus"]["GPU-a"]["pcie_width"] == 16


def cadence(row):
    return "slow" if row["pcie_width"] is not None else "fast"


def test_a_slow_read_does_not_hold_up_the_fast_ones(running):
    gate = threading.Event()
    probe = CountingProbe()
    probe.read_slow = lambda: iter([gate.wait(5)])
    running(probe)
    wait_until(lambda: probe.reads >= 10)
    gate.set()


def test_a_probe_that_raises_is_counted_and_asked_again(running):
    def fail_twice(reads):
        if reads <= 2:
            raise RuntimeError("driver hiccup")

    probe = CountingProbe(fail_twice)
    sampler = running(probe)
    wait_until(lambda: probe.reads >= 4)
    latest = sampler.latest()
    assert latest["errors"] == 2
    assert latest["last_error"] == "RuntimeError: driver hiccup"
    assert sampler.drain().num_rows >= 1


def test_a_lost_gpu_leaves_the_progress_line_and_is_named(running):
    gpu = FakeGpu("GPU-a")
    nvml = FakeNvml([gpu, FakeGpu("GPU-b", bus="00000000:02:00.0")])
    sampler = running(NvmlProbe(nvml))
    wait_until(lambda: len(sampler.latest()["gpus"]) == 2)
    gpu.lost = True
    wait_until(lambda: "GPU-a" in sampler.latest()["lost"])
    assert set(sampler.latest()["gpus"]) == {"GPU-b"}
    assert sampler.latest()["power_w"] == 301.0


def test_what_is_not_read_any_more_has_no_newest_value(running):
    gpu = FakeGpu("GPU-a")
    sampler = running(NvmlProbe(FakeNvml([gpu, FakeGpu("GPU-b", bus="00000000:02:00.0")])))
    wait_until(lambda: sampler.latest()["power_w"] == 602.0)
    gpu.fields[186] = (3, 3_700_000_000)  # garbage, which is dropped
    wait_until(lambda: "power_w" not in sampler.latest()["gpus"]["GPU-a"])
    assert sampler.latest()["power_w"] == 301.0
    wait_until(lambda: "pcie_width" in sampler.latest()["gpus"]["GPU-a"])
    assert sampler.latest()["gpus"]["GPU-a"]["sm_clock_mhz"] == 2400.0


def test_late_ticks_are_counted_not_made_up(running):
    probe = CountingProbe(lambda reads: time.sleep(0.1) if reads == 1 else None)
    sampler = running(probe)
    wait_until(lambda: probe.reads >= 3)
    assert sampler.latest()["missed_ticks"] >= 8


def test_next_tick_keeps_to_the_grid():
    assert next_tick(0, 0.001, 0.1) == (1, 0)
    assert next_tick(0, 0.1, 0.1) == (2, 1)
    assert next_tick(9, 0.95, 0.1) == (10, 0)


def test_memory_is_bounded_and_the_loss_counted():
    buffer = RowBuffer(capacity_rows=100)
    for number in range(1000):
        buffer.add({"device": "gpu", "uuid": "a", "power_w": float(number)})
    kept = buffer.take()
    assert kept.num_rows <= 100
    assert kept.num_rows + buffer.dropped == 1000
    assert kept["power_w"].to_pylist()[-1] == 999.0


def test_the_counters_update_period_is_found_from_dense_samples():
    rows = [
        {"device": "gpu", "uuid": "a", "monotonic_ns": t * 5_000_000, "energy_j": float(t // 20), "power_w": 75.0}
        for t in range(100)
    ]
    assert update_periods_s(rows) == {"a": {"power_w": None, "energy_j": pytest.approx(0.1)}}


def test_too_few_changes_give_no_period():
    assert update_period_s([]) is None
    assert update_period_s([(0, 1.0), (5, 2.0), (9, 3.0)]) is None


def test_learning_gives_periods_and_loses_no_rows(running):
    energy = iter(range(100_000))
    gpu = FakeGpu("GPU-a", nvmlDeviceGetTotalEnergyConsumption=lambda: next(energy))
    sampler = running(NvmlProbe(FakeNvml([gpu])), learning_s=0.1)
    wait_until(lambda: sampler.update_periods_s())
    period_s = sampler.update_periods_s()["GPU-a"]["energy_j"]
    assert 0.001 <= period_s <= 0.1
    drained = []
    wait_until(lambda: drained.extend(sampler.drain().to_pylist()) or drained[-1]["energy_update_s"] is not None)
    assert drained[-1]["energy_update_s"] == period_s
    assert drained[0]["energy_update_s"] is None  # not known yet
    assert len(drained) > 5


def test_a_replayed_trace_comes_out_as_it_went_in(running):
    trace = [
        {"device": "gpu", "uuid": uuid, "t_ns": tick * 100, "monotonic_ns": tick, "power_w": 100.0 + tick}
        for tick in range(20)
        for uuid in ("a", "b")
    ]
    sampler = running(ReplayProbe(trace))
    rows = []
    wait_until(lambda: rows.extend(sampler.drain().to_pylist()) or len(rows) >= 40)
    assert [{key: row[key] for key in trace[0]} for row in rows] == trace


def test_stop_before_start_and_twice():
    sampler = Sampler(CountingProbe(), "n")
    sampler.stop()
    sampler.stop()
