"""Whose a process on a GPU is, and what a session leaves behind: with a /proc of our own making."""

import os
import subprocess
import sys

import pytest

from rtxscale.run import processes
from rtxscale.run.cluster import OWNER_VARIABLE
from rtxscale.run.occupancy import Guard, Holder, Occupancy, Owner, describe, identify, joined, leftovers, strangers
from rtxscale.telemetry.fields import GpuProcess
from rtxscale.telemetry.holders import GpuUse

INIT, RAYLET, RANK, HELPER, GAME, SHELL = 1, 100, 200, 201, 300, 400


class Proc:
    """A made-up /proc."""

    def __init__(self, root):
        self.root = root
        (root / "self" / "ns").mkdir(parents=True)
        self.container(False)

    def container(self, inside):
        link = self.root / "self" / "ns" / "pid"
        link.unlink(missing_ok=True)
        link.symlink_to("pid:[4026532999]" if inside else "pid:[4026531836]")

    def add(self, pid, parent, name="python3", environment="", opened=()):
        directory = self.root / str(pid)
        (directory / "fd").mkdir(parents=True)
        (directory / "stat").write_text(f"{pid} ({name}) S {parent} 0 0")
        (directory / "comm").write_text(f"{name}\n")
        (directory / "environ").write_text(environment)
        for number, path in enumerate(opened):
            (directory / "fd" / str(number)).symlink_to(path)


@pytest.fixture
def proc(tmp_path, monkeypatch):
    made = Proc(tmp_path)
    monkeypatch.setattr(processes, "PROC", tmp_path)
    monkeypatch.delenv(OWNER_VARIABLE, raising=False)
    made.add(INIT, 0, "systemd")
    made.add(RAYLET, INIT, "raylet")
    made.add(RANK, RAYLET, "ray::TrainWorker")
    made.add(HELPER, RANK)
    made.add(GAME, INIT, "game")
    return made


def on_gpu(pid, uuid="GPU-a", used_mib=300.0):
    return GpuProcess(uuid=uuid, pid=pid, used_mib=used_mib)


def owner(pid, ours=(RANK,)):
    return identify(on_gpu(pid), "node0", ours).owner


def test_ranks_and_what_they_started_are_ours(proc):
    assert owner(RANK) is Owner.OURS
    assert owner(HELPER) is Owner.OURS


def test_anybody_else_is_foreign_with_its_short_name(proc):
    holder = identify(on_gpu(GAME), "node0", [RANK])
    assert (holder.owner, holder.name, holder.used_mib) == (Owner.FOREIGN, "game", 300.0)


def test_what_started_us_is_not_ours(proc):
    """A notebook with a model in memory that starts a sweep holds the GPU all the same."""
    assert owner(RAYLET) is Owner.FOREIGN


def test_an_id_that_does_not_exist_here_is_unknown(proc):
    assert owner(4242) is Owner.UNKNOWN


def test_in_a_container_an_id_may_be_another_process(proc):
    proc.container(True)
    proc.add(SHELL, INIT, "bash", opened=("/dev/pts/0",))
    assert owner(SHELL) is Owner.UNKNOWN
    proc.add(401, INIT, "python3", opened=("/dev/pts/0", "/dev/nvidia0"))
    assert owner(401) is Owner.FOREIGN
    assert owner(RANK) is Owner.OURS


def test_everything_in_a_cluster_of_our_own_is_ours(proc, monkeypatch):
    proc.add(500, INIT, environment=f"A=b\0{OWNER_VARIABLE}=/x/rtxscale-local-1\0")
    proc.add(501, INIT, environment=f"{OWNER_VARIABLE}=/x/rtxscale-local-2\0")
    assert owner(500) is Owner.FOREIGN
    monkeypatch.setenv(OWNER_VARIABLE, "/x/rtxscale-local-1")
    assert owner(500) is Owner.OURS
    assert owner(501) is Owner.FOREIGN


def test_real_processes_of_this_host():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert owner(child.pid, [os.getpid()]) is Owner.OURS
        assert processes.name_of(child.pid).startswith("python")
        assert owner(child.pid, [child.pid]) is Owner.OURS
        assert owner(child.pid, [1 << 22]) is (Owner.FOREIGN if processes.knows_machine() else Owner.UNKNOWN)
    assert owner(child.pid, [os.getpid()]) is Owner.UNKNOWN


class Gpus:
    """A `GpuHolders` that sees what it is told."""

    def __init__(self, *now):
        self.now = now

    def processes(self):
        return self.now

    def look(self):
        return GpuUse(processes=self.now, used_mib={"GPU-a": 5000.0})


def test_a_short_visitor_is_remembered_until_asked(proc):
    gpus = Gpus(on_gpu(RANK), on_gpu(GAME))
    guard = Guard(gpus, "node0")
    guard.expect([RANK])
    guard.look()
    gpus.now = (on_gpu(RANK),)
    occupancy = guard.occupancy()
    assert [one.pid for one in occupancy.now] == [RANK]
    assert {one.pid: one.owner for one in occupancy.seen} == {RANK: Owner.OURS, GAME: Owner.FOREIGN}
    assert occupancy.used_mib == {"GPU-a": 5000.0}
    assert [one.pid for one in guard.occupancy().seen] == [RANK]


def test_a_visitor_that_has_just_ended_is_still_known(proc):
    gpus = Gpus(on_gpu(GAME))
    guard = Guard(gpus, "node0")
    guard.look()
    (proc.root / str(GAME)).rename(proc.root / "gone")
    (seen,) = guard.occupancy().seen
    assert (seen.owner, seen.name) == (Owner.FOREIGN, "game")


def test_ranks_that_were_not_known_yet_do_not_count_as_visitors(proc):
    guard = Guard(Gpus(on_gpu(RANK)), "node0")
    guard.look()
    guard.expect([RANK])
    assert {one.owner for one in guard.occupancy().seen} == {Owner.OURS}


def holder(pid=42, uuid="GPU-a", owned=Owner.FOREIGN, used_mib=3000.0, name="python3", node="node0"):
    return Holder(node=node, uuid=uuid, pid=pid, owner=owned, name=name, used_mib=used_mib)


def test_only_strangers_on_our_gpus_count_each_once():
    found = [holder(), holder(), holder(uuid="GPU-other"), holder(7, owned=Owner.OURS), holder(8, owned=Owner.UNKNOWN)]
    assert strangers(found, {"GPU-a"}) == (holder(),)
    assert strangers(found, {"GPU-a"}, Owner.UNKNOWN) == (holder(8, owned=Owner.UNKNOWN),)


def test_a_description_cannot_drive_a_terminal_and_says_what_is_not_known():
    text = describe([holder(name="\x1b[31mred", used_mib=None), holder(name="", uuid="GPU-b")])
    assert "\x1b" not in text
    assert text == (
        "GPU-a on node0 is held by \\x1b[31mred (pid 42, memory unknown); "
        "GPU-b on node0 is held by an unknown process (pid 42, 3,000 MiB)"
    )
    assert describe([holder(pid) for pid in range(9)]).endswith(" and 5 more")
    assert describe([]) == ""


def occupancy(used_mib, *now):
    return Occupancy(now=now, used_mib={"GPU-a": used_mib})


def test_memory_that_came_back_is_no_leftover():
    assert leftovers(occupancy(500.0), occupancy(520.0), ["GPU-a"]) == ()


def test_memory_that_did_not_is_told_with_whoever_is_on_the_gpu():
    (left,) = leftovers(occupancy(500.0), occupancy(2500.0, holder(9, owned=Owner.OURS, used_mib=2000.0)), ["GPU-a"])
    assert left.mib == 2000.0
    assert str(left) == (
        "2,000 MiB of GPU-a more in use than before the session; GPU-a on node0 is held by python3 (pid 9, 2,000 MiB)"
    )
    (left,) = leftovers(occupancy(500.0), occupancy(2500.0), ["GPU-a"])
    assert str(left).endswith("by whom is not known")


def test_what_others_took_meanwhile_is_not_ours():
    before = occupancy(500.0, holder(1, used_mib=400.0))
    after = occupancy(3600.0, holder(1, used_mib=1000.0), holder(2, used_mib=2500.0))
    assert leftovers(before, after, ["GPU-a"]) == ()
    (left,) = leftovers(before, occupancy(4100.0, *after.now), ["GPU-a"])
    assert left.mib == pytest.approx(4100.0 - 500.0 - 600.0 - 2500.0)
    assert leftovers(before, occupancy(9000.0, holder(3, used_mib=None)), ["GPU-a"]) == ()


def test_gpus_outside_the_pool_or_without_a_reading_say_nothing():
    assert leftovers(occupancy(0.0), occupancy(9000.0), ["GPU-b"]) == ()
    assert leftovers(Occupancy(), occupancy(9000.0), ["GPU-a"]) == ()


def test_nodes_are_joined():
    both = joined([occupancy(1.0, holder()), Occupancy(seen=(holder(7),), used_mib={"GPU-b": 2.0})])
    assert (both.now, both.seen, both.used_mib) == ((holder(),), (holder(7),), {"GPU-a": 1.0, "GPU-b": 2.0})
