"""A delay lasts as long as it says, on hosts that wake up late and on devices whose clock changes."""

import time
from collections import deque
from types import SimpleNamespace

import pytest
import torch

from rtxscale.spec.cell import Planted
from rtxscale.workloads.delay import Delayed, DeviceDelay, HostDelay, with_delay


class Inner:
    unit = "image"
    work_per_step = 4.0

    def __init__(self):
        self.did = []

    def step(self):
        self.did.append("step")
        return 0.25

    def loss(self):
        return 1.5

    def buckets(self):
        return ("bucket",)

    def attest(self):
        return ("attested",)

    def close(self):
        self.did.append("close")


def on(rank, device="cpu"):
    return SimpleNamespace(rank=rank, device=torch.device(device))


@pytest.mark.parametrize(
    ("planted", "rank", "delayed"),
    [
        ({}, 0, False),
        ({"arm": "a01"}, 0, False),
        ({"delay_ms": 2.0}, 1, True),
        ({"delay_ms": 2.0, "delay_rank": 1}, 0, False),
        ({"delay_ms": 2.0, "delay_rank": 1}, 1, True),
        ({"delay_ms": 2.0, "delay_rank": 0}, 0, True),
    ],
)
def test_only_the_ranks_named_are_delayed_and_an_arm_changes_nothing(planted, rank, delayed):
    inner = Inner()
    running = with_delay(inner, Planted(**planted), on(rank))
    assert isinstance(running, Delayed) is delayed
    assert delayed or running is inner


def test_the_delay_comes_before_the_step_and_all_else_is_the_workloads_own():
    inner = Inner()
    running = Delayed(inner, lambda: inner.did.append("delay"))
    assert (running.unit, running.work_per_step) == ("image", 4.0)
    assert running.step() == 0.25, "the delay is no waiting for input"
    assert (running.loss(), running.buckets(), running.attest()) == (1.5, ("bucket",), ("attested",))
    running.close()
    assert inner.did == ["delay", "step", "close"]


class LateHost:
    """A host whose sleep lasts half a millisecond longer than asked; looking at the clock takes a microsecond."""

    def __init__(self):
        self.now = 100.0
        self.slept = []

    def clock(self):
        self.now += 1e-6
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds + 0.0005


@pytest.mark.parametrize("seconds", [0.0005, 0.002, 0.005, 0.1])
def test_a_host_that_wakes_up_late_waits_no_longer_than_asked(seconds):
    host = LateHost()
    delay = HostDelay(seconds, host.clock, host.sleep)
    delay()
    assert host.now - 100.0 == pytest.approx(seconds, abs=5e-6)
    assert bool(host.slept) is (seconds > 0.002)


def test_a_delay_on_this_host_is_never_shorter_than_asked():
    delay = HostDelay(0.003)
    start = time.perf_counter()
    for _ in range(5):
        delay()
    assert time.perf_counter() - start >= 0.015


class Device:
    """A device that does what is enqueued when asked to, at a clock that can be changed; a launch takes 4 us."""

    def __init__(self, hertz):
        self.hertz = hertz
        self.waiting = deque()
        self.took = {}
        self.count = 0

    def enqueue(self, cycles):
        self.count += 1
        self.waiting.append((self.count, cycles))
        return self.count

    def do(self, spins=None):
        for _ in range(len(self.waiting) if spins is None else spins):
            name, cycles = self.waiting.popleft()
            self.took[name] = 4e-6 + cycles / self.hertz

    def seconds(self, spun, *, wait):
        if wait:
            self.do()
        return self.took.get(spun)


@pytest.mark.parametrize("seconds", [0.0005, 0.001, 0.005, 0.02])
def test_a_device_spins_for_the_time_asked_even_when_its_clock_changes(seconds):
    device = Device(hertz=1.2e9)
    delay = DeviceDelay(seconds, device)
    first = device.count + 1
    delay()
    device.do()
    assert device.took[first] == pytest.approx(seconds, rel=0.02)
    for hertz in (1.98e9, 2.9e9, 1.1e9):
        device.hertz = hertz
        delay()  # calibrated for the old clock
        device.do()
        for _ in range(3):
            delay()
            device.do()
            assert device.took[device.count] == pytest.approx(seconds, rel=0.02)


def test_enqueuing_far_ahead_of_the_device_does_not_wait_for_it():
    device = Device(hertz=1e9)
    delay = DeviceDelay(0.001, device)
    device.hertz = 2e9
    for _ in range(50):
        delay()
    assert len(device.waiting) == 50
    device.do(10)
    delay()
    device.do()
    assert device.took[device.count] == pytest.approx(0.001, rel=0.02)
