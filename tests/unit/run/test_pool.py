"""GPUs between trials: waited for, watched and compared with what they were."""

from types import SimpleNamespace

import pytest

from rtxscale.errors import RunError
from rtxscale.run import pool as pool_module
from rtxscale.run.occupancy import Holder, Occupancy, Owner
from rtxscale.run.pool import Pool

GAME = Holder(node="node0", uuid="GPU-a", pid=42, owner=Owner.FOREIGN, name="game", used_mib=3000.0)
TOLD = "GPU-a on node0 is held by game (pid 42, 3,000 MiB)"


class Watched:
    """A pool whose occupancy is what the test says, look after look; the last one stays. Time is not waited for."""

    def __init__(self, monkeypatch, *looks):
        self.looks = list(looks)
        self.count = 0
        self.notes = []
        self.slept_s = 0.0
        self.interruption = SimpleNamespace(name=None)
        self.pool = Pool(["GPU-a"], self.look, self.notes.append, self.interruption)
        clock = SimpleNamespace(monotonic=lambda: self.slept_s, sleep=self.sleep)
        monkeypatch.setattr(pool_module, "time", clock)

    def look(self):
        self.count += 1
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def sleep(self, seconds):
        self.slept_s += seconds


@pytest.fixture
def watched(monkeypatch):
    return lambda *looks: Watched(monkeypatch, *looks)


def used(mib, *now, seen=()):
    return Occupancy(now=now, seen=seen, used_mib={"GPU-a": mib})


def test_free_gpus_are_looked_at_once_and_not_waited_for(watched):
    one = watched(used(0.0))
    assert one.pool.held_by() == ""
    assert (one.count, one.slept_s, one.notes) == (1, 0.0, [])


def test_others_may_leave_and_the_user_learns_who_is_waited_for(watched):
    one = watched(used(0.0, GAME), used(0.0, GAME), used(0.0))
    assert one.pool.held_by() == ""
    assert one.notes == [f"waiting up to 30 s for GPUs that others use: {TOLD}"]


def test_who_stays_is_named_after_a_bounded_wait(watched):
    one = watched(used(0.0, GAME))
    assert one.pool.held_by() == TOLD
    assert 30.0 <= one.slept_s < 31.0


def test_an_interrupt_ends_the_wait(watched):
    one = watched(used(0.0, GAME))
    one.interruption.name = "SIGINT"
    assert one.pool.held_by() == TOLD
    assert one.slept_s == 0.0


def test_without_waiting_it_only_says_who_is_there(watched):
    one = watched(used(0.0, GAME))
    assert one.pool.held_by(wait=False) == TOLD
    assert (one.slept_s, one.notes) == (0.0, [])


def test_visitors_are_those_seen_since_the_last_look(watched):
    assert watched(used(0.0, seen=(GAME,))).pool.visitors() == TOLD
    assert watched(used(0.0)).pool.visitors() == ""


def test_memory_may_take_a_moment_to_come_back(watched):
    one = watched(used(500.0), used(9000.0), used(500.0))
    one.pool.session_starts()
    one.pool.session_ended()
    assert one.notes == []
    one.pool.session_starts()


def test_memory_that_stays_is_said_and_ends_the_next_session(watched):
    one = watched(used(500.0), used(9000.0))
    one.pool.session_starts()
    one.pool.session_ended()
    assert one.notes == [
        "8,500 MiB of GPU-a more in use than before the session, by whom is not known, 10 s after it ended"
    ]
    with pytest.raises(
        RunError, match=r"found 8,500 MiB of GPU-a more in use .* expected it to be free: see nvidia-smi"
    ):
        one.pool.session_starts()


def test_memory_that_comes_back_late_only_costs_time(watched):
    one = watched(used(500.0), *[used(9000.0)] * 45, used(500.0))
    one.pool.session_starts()
    one.pool.session_ended()
    one.pool.session_starts()
    assert len(one.notes) == 1
    assert 10.0 < one.slept_s < 40.0


def test_a_little_more_memory_is_a_remark_only(watched):
    one = watched(used(500.0), used(700.0))
    one.pool.session_starts()
    one.pool.session_ended()
    one.pool.session_starts()
    assert len(one.notes) == 1


def test_whom_nobody_can_place_is_said_once_and_is_not_foreign(watched):
    unknown = Holder(node="node0", uuid="GPU-a", pid=7, owner=Owner.UNKNOWN, used_mib=10.0)
    one = watched(used(10.0, unknown))
    one.pool.session_starts()
    one.pool.session_starts()
    assert one.notes == [
        "cannot tell whose it is, as in a container: GPU-a on node0 is held by an unknown process (pid 7, 10 MiB)"
    ]
    assert one.pool.held_by() == ""


def test_on_cpus_nobody_looks():
    def look():
        raise AssertionError("looked")

    pool = Pool([], look, print, SimpleNamespace(name=None))
    pool.session_starts()
    assert (pool.held_by(), pool.visitors()) == ("", "")
    pool.session_ended()
