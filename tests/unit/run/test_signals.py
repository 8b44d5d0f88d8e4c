"""The first signal asks for a clean end, a later one insists; one wish sent twice is one wish."""

import os
import signal

import pytest

from rtxscale.run import signals
from rtxscale.run.signals import Interruption


@pytest.fixture
def interruption():
    # SIGHUP is ignored, and stays so, where the tests themselves run under nohup
    kept = {number: signal.signal(number, signal.SIG_DFL) for number in signals.CAUGHT}
    asked = Interruption()
    asked.arm()
    asked.graceful = True
    yield asked
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", signals.CAUGHT)
def test_the_first_signal_asks(interruption, number):
    os.kill(os.getpid(), number)
    assert interruption.name == number.name


def test_the_same_wish_twice_is_one_wish(interruption):
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    assert interruption.name == "SIGTERM"


def test_a_later_signal_insists(interruption, monkeypatch):
    os.kill(os.getpid(), signal.SIGINT)
    monkeypatch.setattr(signals, "SAME_WISH_S", 0.0)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_before_there_is_anything_to_end_the_first_signal_insists(interruption):
    interruption.graceful = False
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)


def test_nohup_is_respected():
    kept = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        asked = Interruption()
        asked.arm()
        os.kill(os.getpid(), signal.SIGHUP)
        assert asked.name is None
        asked.disarm()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, kept)
