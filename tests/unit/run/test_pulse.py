"""A head node that is gone is found out in time, and one that is only slow to answer once is not."""

import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

from rtxscale.run import cluster, turn
from rtxscale.run import pulse as pulse_module
from rtxscale.run.pulse import HeadLostError, Pulse


class Hours:
    """Time that passes as the pulse waits; `deaf` says when nobody answers."""

    def __init__(self, monkeypatch, deaf, ours=False):
        self.now, self.deaf = 100.0, deaf
        self.pulse = Pulse("10.0.0.1:6379", ours=ours)
        monkeypatch.setattr(pulse_module, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(Pulse, "_answers", lambda _self: not self.deaf(self.now))
        monkeypatch.setattr(self.pulse, "_stopped", self)

    def wait(self, period_s):
        self.now += period_s
        return self.now > self.until

    def listen(self, until):
        self.until = until
        self.pulse._listen()
        return self.pulse


def test_silence_of_half_a_minute_is_a_loss_that_stays(monkeypatch):
    hours = Hours(monkeypatch, lambda now: 150 < now < 190)
    assert (hours.listen(149).failing, hours.pulse.lost) == (False, False)
    assert (hours.listen(170).failing, hours.pulse.lost) == (True, False)
    assert hours.listen(189).lost
    assert (hours.listen(240).failing, hours.pulse.lost) == (False, True)


def test_short_silences_do_not_add_up(monkeypatch):
    assert not Hours(monkeypatch, lambda now: now % 30 < 25).listen(2000).lost


def test_a_driver_that_was_stopped_for_long_has_lost_nothing(monkeypatch):
    hours = Hours(monkeypatch, lambda now: now in (140.0, 5142.0))
    hours.listen(140)
    hours.now += 5000
    assert not hours.listen(5200).lost


def test_a_failed_call_is_the_heads_fault_only_if_it_is_gone(monkeypatch):
    hours = Hours(monkeypatch, lambda now: now > 110)
    assert not hours.pulse.lost_with()
    hours.now = 120
    assert hours.pulse.lost_with()
    assert hours.pulse.lost


@pytest.mark.parametrize(("ours", "words"), [(False, "head node at 10.0.0.1:6379"), (True, "Ray's own processes")])
def test_what_is_to_be_done_is_said(monkeypatch, ours, words):
    said = str(Hours(monkeypatch, lambda _now: True, ours=ours).pulse.error())
    assert words in said
    assert "what is finished is kept" in said
    assert "run the same command" in said


def test_a_real_listener_is_heard_until_it_is_gone():
    with socket.create_server(("127.0.0.1", 0)) as server:
        pulse = Pulse(f"127.0.0.1:{server.getsockname()[1]}", ours=False)
        assert not pulse.lost_with()
    assert pulse.lost_with()


def test_who_waits_for_its_turn_learns_that_the_head_is_gone(monkeypatch):
    hours = Hours(monkeypatch, lambda _now: True)
    hours.pulse.lost = True
    with pytest.raises(HeadLostError):
        turn.wait_for_turn("run", lambda _text: None, hours.pulse)


@pytest.mark.parametrize(("lost", "done"), [(False, ["shutdown"]), (True, ["_leave_at_once"])])
def test_of_a_lost_head_nobody_disconnects(monkeypatch, lost, done):
    seen = []
    monkeypatch.setattr(cluster, "ray", SimpleNamespace(shutdown=lambda: seen.append("shutdown")))
    monkeypatch.setattr(cluster.atexit, "register", lambda work: seen.append(work.__name__))
    with cluster._beating("127.0.0.1:1", ours=False) as pulse:
        pulse.lost = lost
    assert seen == done


def test_leaving_at_once_says_what_was_to_be_said():
    code = "from rtxscale.run.cluster import _leave_at_once; print('told', end=''); _leave_at_once()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (1, "told")
