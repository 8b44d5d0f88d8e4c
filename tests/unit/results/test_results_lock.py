"""One writer per run: living owners are respected, dead ones are not."""

import errno
import fcntl
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace

import pytest

from rtxscale.errors import ResultsError
from rtxscale.results import lock
from rtxscale.results.lock import LEASE_S, RunLock, is_dead, own_lease


@pytest.fixture
def here():
    return own_lease()


def test_a_second_writer_is_told_who_holds_the_run(tmp_path):
    first = RunLock.take(tmp_path / "lock")
    with pytest.raises(ResultsError, match=f"held by process {os.getpid()} on "):
        RunLock.take(tmp_path / "lock")
    first.release()
    first.release()
    RunLock.take(tmp_path / "lock").release()


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from rtxscale.results.lock import RunLock;"
        "RunLock.take(Path(sys.argv[1])); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "lock")], check=True)
    assert json.loads((tmp_path / "lock").read_text())["pid"] != os.getpid()
    taken = RunLock.take(tmp_path / "lock")
    taken.check()
    taken.release()


@pytest.mark.parametrize(
    ("change", "facts", "dead"),
    [
        ({}, {"flocked": True}, True),
        ({}, {"flocked": False, "process_start": "same"}, False),
        ({}, {"flocked": False, "process_start": "later"}, True),
        ({}, {"flocked": False, "process_start": ""}, True),
        ({"host": "other"}, {"flocked": True, "age_s": LEASE_S / 2}, False),
        ({"host": "other"}, {"flocked": True, "age_s": LEASE_S * 2}, True),
        ({"boot_id": "before"}, {"flocked": True, "age_s": 0.0}, False),
        ({"pid_namespace": "pid:[2]"}, {"flocked": False, "process_start": "", "age_s": LEASE_S / 2}, False),
        ({"pid_namespace": "pid:[2]"}, {"flocked": False, "process_start": "same", "age_s": LEASE_S * 2}, True),
        ({"pid_namespace": ""}, {"flocked": False, "process_start": "", "age_s": LEASE_S / 2}, False),
        ({"pid_namespace": "pid:[2]"}, {"flocked": True, "age_s": 0.0}, True),
    ],
)
def test_who_counts_as_dead(here, change, facts, dead):
    lease = replace(here, process_start="same", **change)
    assert is_dead(lease, here, **{"age_s": 0.0, "process_start": "same", **facts}) is dead


def test_a_lease_of_another_host_holds_until_its_heartbeat_stops(tmp_path, here):
    path = tmp_path / "lock"
    path.write_text(json.dumps(asdict(replace(here, host="elsewhere", pid=1))))
    with pytest.raises(ResultsError, match="on elsewhere since"):
        RunLock.take(path)
    assert [item.name for item in tmp_path.iterdir()] == ["lock"]
    old = path.stat().st_mtime - 2 * LEASE_S
    os.utime(path, (old, old))
    RunLock.take(path).release()


def test_a_driver_in_another_container_of_this_host_is_alive_while_it_beats(tmp_path, here):
    path = tmp_path / "lock"
    path.write_text(json.dumps(asdict(replace(here, pid=2**22 + 1, pid_namespace="pid:[1]"))))
    assert lock.living_owner(path) is not None
    old = path.stat().st_mtime - 2 * LEASE_S
    os.utime(path, (old, old))
    assert lock.living_owner(path) is None


def test_a_lease_from_before_the_last_boot_expires(tmp_path, here):
    path = tmp_path / "lock"
    path.write_text(json.dumps(asdict(replace(here, boot_id="before"))))
    with pytest.raises(ResultsError, match="held by process"):
        RunLock.take(path)
    old = path.stat().st_mtime - 2 * LEASE_S
    os.utime(path, (old, old))
    RunLock.take(path).release()


def test_a_lease_of_an_older_version_is_read(tmp_path, here):
    content = asdict(here)
    del content["pid_namespace"]
    assert lock.parse_lease(json.dumps({**content, "colour": "red"}).encode()) == replace(here, pid_namespace="")


def test_at_the_end_nobody_is_the_owner_and_nobody_else_can_be(tmp_path):
    path = tmp_path / "lock"
    seen = []

    def look():
        seen.append(lock.living_owner(path))
        with pytest.raises(ResultsError, match="held by a process that has not said its name"):
            RunLock.take(path)

    RunLock.take(path).release(look)
    assert seen == [None]


def test_without_flock_the_lease_alone_protects(tmp_path, monkeypatch):
    def missing(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", missing)
    first = RunLock.take(tmp_path / "lock")
    with pytest.raises(ResultsError, match="held by process"):
        RunLock.take(tmp_path / "lock")
    first.release()
    RunLock.take(tmp_path / "lock").release()


def test_an_owner_who_lost_the_lock_notices(tmp_path):
    path = tmp_path / "lock"
    first = RunLock.take(path)
    path.write_text(json.dumps(asdict(replace(own_lease(), host="thief"))))
    with pytest.raises(ResultsError, match="on thief since"):
        first.check()
    path.unlink()
    with pytest.raises(ResultsError, match="lock file is gone"):
        first.check()
    first.release()


def test_a_lease_cut_off_while_being_written_is_nobody(tmp_path):
    (tmp_path / "lock").write_text('{"pid": 1')
    RunLock.take(tmp_path / "lock").release()


def test_the_heartbeat_moves_the_modification_time(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "HEARTBEAT_S", 0.01)
    taken = RunLock.take(tmp_path / "lock")
    os.utime(tmp_path / "lock", (1, 1))
    taken._stop.wait(0.2)
    assert (tmp_path / "lock").stat().st_mtime > 1
    taken.release()


def test_a_command_with_spaces_and_parentheses_does_not_hide_the_start_time(tmp_path, monkeypatch):
    assert lock._process_start(os.getpid()).isdigit()
    assert lock._process_start(2**30) == ""
