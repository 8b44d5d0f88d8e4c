"""Telemetry on real GPUs: two ways to energy agree, traces hold every field, and watching costs no throughput."""

import contextlib
import json
import subprocess
import sys
import time
from statistics import median

import numpy as np
import pytest

from rtxscale.stats.compare import paired_ratio
from rtxscale.telemetry.nvml import NvmlProbe, NvmlUnavailableError
from rtxscale.telemetry.probe import open_probe
from rtxscale.telemetry.recorder import fields_seen, record, totals, write_trace
from rtxscale.telemetry.replay import ReplayProbe

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]

SPAN_S = 60.0
ENERGY_MARGIN = 0.01
THROUGHPUT_MARGIN = 0.005
PAIRS, MEASURED_S = 10, 5.0
ALWAYS = {"power_w", "temperature_c", "sm_clock_mhz", "memory_clock_mhz", "throttle_reasons", "performance_state"}
ALWAYS |= {"utilisation", "memory_used_mib", "pcie_generation", "pcie_width", "processes"}
"""Fields that every NVIDIA GPU of the table gives."""


@pytest.fixture(scope="module")
def gpus():
    """What NVML says of the GPUs here."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU, found none")
    try:
        probe = NvmlProbe()
    except NvmlUnavailableError as error:
        pytest.skip(f"needs NVML: {error}")
    if any(device.mig for device in probe.devices()):
        pytest.skip("needs whole GPUs, found MIG mode")
    yield probe.devices()
    probe.close()


@contextlib.contextmanager
def load(seconds):
    """All GPUs at full load in another process, after its start-up."""
    command = [sys.executable, "-m", "rtxscale.doctor.torch_process", json.dumps([["load", seconds]])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert "begins" in process.stdout.readline()
            time.sleep(15)  # CUDA starts, clocks and power settle
            yield
        finally:
            process.kill()


@pytest.fixture(scope="module", params=["idle", "loaded"])
def recorded(request, gpus):
    """A minute of telemetry of all GPUs."""
    if request.param == "loaded":
        with load(SPAN_S + 60):
            return request.param, record(open_probe(), lambda: time.sleep(SPAN_S))
    time.sleep(5)
    return request.param, record(open_probe(), lambda: time.sleep(SPAN_S))


def test_counter_and_integral_agree_over_a_minute(recorded):
    kind, trace = recorded
    found = totals(trace)
    assert found
    ratios = {(place, one.name): one.energy_ratio for place, one in enumerate(found) if one.energy_ratio is not None}
    if not ratios:
        pytest.skip("needs a GPU with an energy counter and a power reading, found none")
    print(f"{kind}: counter over integral {ratios}, mean power {[one.power_mean_w for one in found]}")
    for name, ratio in ratios.items():
        assert ratio.ratio == pytest.approx(1, abs=ENERGY_MARGIN), name


def test_a_trace_holds_every_field_that_the_cards_give_and_replays(recorded, tmp_path):
    kind, trace = recorded
    absent = set.intersection(*(set(dict(one.absent)) for one in totals(trace)))
    seen = set(fields_seen(trace.samples))
    print(f"{kind}: not given {sorted(absent)}")
    assert seen >= ALWAYS - absent
    assert trace.errors == 0, trace.last_error
    assert trace.missed_ticks <= 0.02 * SPAN_S / 0.1
    write_trace(trace.samples, tmp_path / "trace.parquet")
    probe = ReplayProbe.from_parquet(tmp_path / "trace.parquet")
    rows = 0
    while tick := list(probe.read_fast()):
        rows += len(tick)
    assert rows >= 0.9 * (len(totals(trace)) + 1) * SPAN_S / 0.1


def test_watching_at_ten_hertz_costs_no_throughput(gpus, tmp_path):
    """On and off in the order A B B A, in a process of its own as in a sweep: the whole interval is within 0.5 %."""
    steps = training_step()
    for _ in range(3):
        steps_per_second(steps)  # warm
    on, off = [], []
    for pair in range(PAIRS):
        for watched in (True, False) if pair % 2 == 0 else (False, True):
            with watching(tmp_path) if watched else contextlib.nullcontext():
                (on if watched else off).append(steps_per_second(steps))
    found = paired_ratio(on, off)
    low, ratio, high = (float(value) for value in (found.low, found.ratio, found.high))
    print(f"throughput with telemetry over without: {ratio:.5f} ({low:.5f} to {high:.5f}), {PAIRS} pairs")
    spread = float(np.std(np.log(np.array(on) / np.array(off))))
    if high - low > 2 * THROUGHPUT_MARGIN:
        pytest.skip(f"needs a quieter machine: pairs scatter by {spread:.2%}, the interval is {low:.5f} to {high:.5f}")
    assert low >= 1 - THROUGHPUT_MARGIN
    assert ratio == pytest.approx(1, abs=THROUGHPUT_MARGIN)


@contextlib.contextmanager
def watching(directory):
    """All telemetry of this machine sampled in another process."""
    command = [sys.executable, "-m", "rtxscale", "record", str(directory / "watched.parquet"), "--seconds", "600"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            time.sleep(4)  # imports, and NVML opens
            assert process.poll() is None
            yield
        finally:
            process.kill()


def training_step():
    """A step of many kernels, such as training launches: host and device are both busy."""
    import torch

    torch.manual_seed(0)
    layers = [
        layer for _ in range(24) for layer in (torch.nn.Linear(2048, 2048), torch.nn.GELU(), torch.nn.LayerNorm(2048))
    ]
    model = torch.nn.Sequential(*layers).cuda().bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batch = torch.randn(4096, 2048, device="cuda", dtype=torch.bfloat16)

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(batch).float().square().mean().backward()
        optimizer.step()

    return step


def steps_per_second(step):
    """Rate over a few seconds, by the clock between two waits for the device."""
    import torch

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < MEASURED_S:
        for _ in range(10):
            step()
        torch.cuda.synchronize()
        done += 10
    return done / (time.perf_counter() - began)


def test_the_counters_update_period_is_learnt(gpus):
    """A window is long enough only against this period."""
    from rtxscale.telemetry.sampler import Sampler

    sampler = Sampler(open_probe(), "node0", learning_s=2.0)
    sampler.start()
    time.sleep(3)
    periods = sampler.update_periods_s()
    sampler.stop()
    print(f"update periods: {periods}")
    known = [fields["energy_j"] for fields in periods.values() if fields["energy_j"] is not None]
    if not known:
        pytest.skip("needs a GPU with an energy counter, found none")
    assert 0.004 <= median(known) <= 0.5
