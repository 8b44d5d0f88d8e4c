import math
import time

import pytest

from rtxscale.rank.vitals import PAUSE_S, UNREADABLE, Vitals, open_vitals
from rtxscale.telemetry.fields import Device
from rtxscale.telemetry.nvml import NvmlUnavailableError


class Probe:
    """A card whose readings are functions of the number of looks; None where it does not answer."""

    def __init__(self, temperature=lambda look: 60.0, clock=lambda look: 2400.0, uuid="GPU-a"):
        self.readings = {"temperature_c": temperature, "sm_clock_mhz": clock}
        self.asked, self.closed, self.uuid = [], 0, uuid

    def devices(self):
        return (Device(kind="gpu", uuid="GPU-other", name="x"), Device(kind="gpu", uuid=self.uuid, name="x"))

    def read_named(self, uuid, fields):
        self.asked.append((uuid, tuple(fields)))
        row = {name: self.readings[name](len(self.asked) - 1) for name in fields}
        return {name: value for name, value in row.items() if value is not None} or None

    def close(self):
        self.closed += 1


class Clock:
    def __init__(self):
        self.s = 1000.0

    def __call__(self):
        return self.s


def working(probe, uuid="GPU-a"):
    clock = Clock()
    return Vitals(uuid=uuid, probe=probe, now=clock), clock


def load(vitals, clock, seconds, chunk_s=0.25):
    for _ in range(round(seconds / chunk_s)):
        clock.s += chunk_s
        vitals.worked(chunk_s)


def test_load_is_the_time_in_steps_without_the_pauses():
    vitals, clock = working(None, uuid=None)
    load(vitals, clock, 10)
    clock.s += 500
    load(vitals, clock, 5)
    assert vitals.load_s == pytest.approx(15.0)
    assert vitals.trends(60.0) is None


def test_the_card_is_asked_once_a_second_by_its_uuid():
    probe = Probe()
    vitals, clock = working(probe)
    load(vitals, clock, 10)
    assert len(probe.asked) == 10
    assert set(probe.asked) == {("GPU-a", ("temperature_c", "sm_clock_mhz"))}


def test_slopes_come_from_the_whole_sessions_load():
    """A minute of warm-up after a soak of five has a whole base of three minutes."""
    vitals, clock = working(Probe(temperature=lambda look: 60 + look / 60, clock=lambda look: 2400 - look / 60 * 24))
    load(vitals, clock, 300)
    clock.s += 2.0
    load(vitals, clock, 60)
    trends = vitals.trends(180.0)
    assert trends.temperature.whole
    assert trends.clock.whole
    assert trends.temperature.per_minute == pytest.approx(1.0, rel=0.03)
    assert trends.clock.per_minute == pytest.approx(-0.01, rel=0.05)


def test_a_long_pause_starts_the_slopes_anew_and_keeps_the_load():
    vitals, clock = working(Probe(temperature=lambda look: 70.0 if look < 300 else 50.0))
    load(vitals, clock, 300)
    clock.s += PAUSE_S + 1
    load(vitals, clock, 60)
    trends = vitals.trends(180.0)
    assert (trends.temperature.whole, trends.temperature.per_minute) == (False, 0.0)
    assert trends.temperature.span_s == pytest.approx(59.0, abs=1.0)
    assert vitals.load_s == pytest.approx(360.0)


def test_a_measured_window_is_load_and_no_pause():
    vitals, clock = working(Probe())
    load(vitals, clock, 120)
    clock.s += 60
    vitals.worked(60.0)
    load(vitals, clock, 60)
    assert vitals.trends(180.0).temperature.whole


def test_a_reading_that_fails_is_no_value_and_one_that_always_fails_is_not_readable():
    vitals, clock = working(Probe(temperature=lambda look: None, clock=lambda look: None if look % 3 else 2400.0))
    load(vitals, clock, 240)
    trends = vitals.trends(180.0)
    assert not trends.temperature.readable
    assert trends.clock.readable
    assert trends.clock.per_minute == 0.0


def test_a_card_that_is_lost_is_not_steady_by_its_old_readings():
    vitals, clock = working(Probe(temperature=lambda look: 60.0 if look < 200 else None))
    load(vitals, clock, 330)
    assert not vitals.trends(180.0).temperature.whole


def test_without_nvml_or_without_the_card_in_it_nothing_is_read():
    def unavailable():
        raise NvmlUnavailableError("no driver")

    assert open_vitals(None, unavailable).trends(60.0) is None
    assert open_vitals("GPU-a", unavailable).trends(60.0) == UNREADABLE
    stranger = Probe(uuid="GPU-b")
    vitals = open_vitals("GPU-a", lambda: stranger)
    assert vitals.trends(60.0) == UNREADABLE
    assert stranger.closed == 1


def test_the_card_is_found_by_uuid_and_let_go():
    probe = Probe()
    vitals = open_vitals("GPU-a", lambda: probe)
    assert vitals.probe is probe
    vitals.close()
    assert probe.closed == 1


def test_an_hour_of_readings_is_judged_in_little_time():
    vitals, clock = working(Probe())
    load(vitals, clock, 3600, chunk_s=1.0)
    start = time.perf_counter()
    for _ in range(20):
        load(vitals, clock, 1, chunk_s=1.0)
        vitals.trends(180.0)
    assert (time.perf_counter() - start) / 20 < 0.02
    assert not math.isnan(vitals.trends(180.0).temperature.per_minute)
