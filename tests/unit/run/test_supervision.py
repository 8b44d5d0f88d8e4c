"""The main thread ends a sweep whose head node is gone, without a call that would wait for it."""

import time
from types import SimpleNamespace

import pytest

from rtxscale.errors import ResultsError, RunError
from rtxscale.results.live import LiveState
from rtxscale.run import supervision
from rtxscale.run.pulse import HeadLostError
from rtxscale.run.signals import Interruption
from rtxscale.run.supervision import Supervision

STATE = LiveState(updated_ns=1, total=4, finished=1, current="gpus=2")


class Pulse:
    """Lost after so many looks; `dead` for a head that a failed call finds gone."""

    def __init__(self, looks=10**9, *, dead=False):
        self.looks, self.dead, self.failing = looks, dead, looks < 10**9

    @property
    def lost(self):
        self.looks -= 1
        return self.looks < 0

    def lost_with(self):
        return self.dead

    def error(self):
        return HeadLostError("the head is gone")


class Place:
    """A sweep whose foreman does `serve`; `shut` counts how often the hub was told to end."""

    def __init__(self, monkeypatch, tmp_path, serve):
        self.shut, self.posted, self.notes, self.stopped = 0, 0, [], []
        self.interruption = Interruption()
        monkeypatch.setattr(supervision, "run_trials", lambda *_: None)
        monkeypatch.setattr(supervision, "LOOK_PERIOD_S", 0.0)
        monkeypatch.setattr(supervision, "TICK_S", 0.01)
        board = SimpleNamespace(note=self.notes.append, state=lambda: STATE, show_readings=lambda _readings: None)
        hub = SimpleNamespace(
            shut=SimpleNamespace(remote=self._shut), post=SimpleNamespace(remote=lambda _state: self._post())
        )
        crew = SimpleNamespace(scratch=tmp_path, hub=hub, watchers=SimpleNamespace(readings=dict, relieve=lambda: None))
        self.site = SimpleNamespace(
            board=board,
            crew=crew,
            interruption=self.interruption,
            writer=SimpleNamespace(run_id="r", run_dir=tmp_path),
            agenda=SimpleNamespace(stop=self.stopped.append, stopped=None),
        )
        self.foreman = SimpleNamespace(serve=lambda _tune_is_done: serve(self))

    def _shut(self):
        self.shut += 1

    def _post(self):
        self.posted += 1

    def run(self, pulse):
        Supervision(self.site, self.foreman, pulse).run()


def waiting(_place):
    time.sleep(30)


def test_a_lost_head_ends_the_sweep_at_once_and_nothing_of_rays_is_called(monkeypatch, tmp_path):
    place, began = Place(monkeypatch, tmp_path, waiting), time.monotonic()
    with pytest.raises(HeadLostError, match="the head is gone"):
        place.run(Pulse(looks=3))
    assert time.monotonic() - began < 5
    assert (place.shut, place.posted) == (0, 0)


def failing(_place):
    raise RunError("ActorUnavailableError")


def test_an_error_that_the_lost_head_has_brought_about_is_told_as_such(monkeypatch, tmp_path):
    with pytest.raises(HeadLostError):
        Place(monkeypatch, tmp_path, failing).run(Pulse(dead=True))
    place = Place(monkeypatch, tmp_path, failing)
    with pytest.raises(RunError, match="ActorUnavailableError"):
        place.run(Pulse())
    assert (place.shut, place.stopped) == (1, ["error"])


def until_shut(place):
    while not place.shut:
        time.sleep(0.01)


def test_a_wish_to_stop_is_heard_and_the_threads_come_to_their_end(monkeypatch, tmp_path):
    place = Place(monkeypatch, tmp_path, until_shut)
    (tmp_path / "stop").write_text("now")
    place.run(Pulse())
    assert (place.shut, place.stopped) == (1, ["stop"])
    assert place.notes == ["stop: ending the sweep; what is finished is kept"]
    assert place.posted


def test_what_ends_by_itself_is_told_that_it_is_done(monkeypatch, tmp_path):
    place = Place(monkeypatch, tmp_path, lambda _place: None)
    place.run(Pulse())
    assert (place.shut, place.stopped, place.notes) == (1, [], [])


def test_a_disk_that_is_gone_is_no_lost_cluster(monkeypatch, tmp_path):
    def full(_place):
        raise ResultsError("the disk is gone")

    with pytest.raises(ResultsError):
        Place(monkeypatch, tmp_path, full).run(Pulse())
