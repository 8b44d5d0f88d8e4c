"""A sweep whose storage is away waits, says why, and goes on."""

import io
from types import SimpleNamespace

import pytest

from rtxscale.errors import ResultsError, StorageOutage
from rtxscale.run import patience as patience_module
from rtxscale.run.patience import Patience
from rtxscale.run.progress import Board


class Waiting:
    """A patience whose time is not waited for."""

    def __init__(self, monkeypatch):
        self.stream = io.StringIO()
        self.board = Board(self.stream, total=3, finished=0, expected_trial_s=1.0)
        self.interruption = SimpleNamespace(name=None)
        self.slept_s = 0.0
        self.patience = Patience(self.board, self.interruption)
        clock = SimpleNamespace(monotonic=lambda: self.slept_s, sleep=self.sleep, strftime=lambda _form: "12:00")
        monkeypatch.setattr(patience_module, "time", clock)

    def sleep(self, seconds):
        self.slept_s = round(self.slept_s + seconds, 6)

    def failing(self, times):
        left = [StorageOutage("/data: found No space left on device")] * times

        def write():
            if left:
                self.seen = self.board.state().current
                raise left.pop()

        return write


@pytest.fixture
def waiting(monkeypatch):
    return Waiting(monkeypatch)


def test_it_waits_with_a_visible_reason_and_goes_on(waiting):
    waiting.patience.until_done(waiting.failing(3))
    said = waiting.stream.getvalue()
    assert said.count("paused: /data: found No space left on device; nothing is measured meanwhile") == 1
    assert "the storage is back after 30 s: going on, nothing was lost" in said
    assert waiting.seen == "paused since 12:00: /data: found No space left on device"
    assert waiting.patience.taken_pause_s() == pytest.approx(30, abs=1)
    assert waiting.patience.taken_pause_s() == 0.0


def test_storage_that_is_there_is_not_waited_for(waiting):
    waiting.patience.until_done(waiting.failing(0))
    assert (waiting.stream.getvalue(), waiting.slept_s) == ("", 0.0)


def test_other_errors_are_not_waited_out(waiting):
    def lost():
        raise ResultsError("lost the lock")

    with pytest.raises(ResultsError, match="lost the lock"):
        waiting.patience.until_done(lost)
    assert waiting.slept_s == 0.0


def test_the_user_can_end_the_sweep_meanwhile(waiting):
    waiting.sleep = lambda seconds: setattr(waiting.interruption, "name", "SIGINT")
    waiting.patience._wait = lambda: waiting.sleep(1)
    with pytest.raises(StorageOutage):
        waiting.patience.until_done(waiting.failing(9))
