"""What a running sweep tells other terminals."""

import json
import os

import pytest

from rtxscale.errors import ResultsError
from rtxscale.results.live import (
    LiveState,
    ask_to_stop,
    clear_live,
    driver_of,
    read_live,
    stop_wish,
    write_live,
)
from rtxscale.results.lock import RunLock

STATE = LiveState(updated_ns=1, total=4, finished=2, current="gpus=2", left_s=12.5, throughputs=(1.0, None, 2.5))


def test_what_is_written_is_what_is_read_and_only_its_owner_can_read_it(tmp_path):
    write_live(tmp_path, STATE)
    assert read_live(tmp_path) == STATE
    assert (tmp_path / "live.json").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["live.json"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"total": 3}', '{"updated_ns": 1, "throughputs": ["x"]}', "\udcff", "7"]
)
def test_a_damaged_state_is_no_state(tmp_path, text):
    (tmp_path / "live.json").write_bytes(text.encode(errors="surrogateescape"))
    assert read_live(tmp_path) is None


def test_a_state_of_a_later_version_with_more_fields_is_read(tmp_path):
    write_live(tmp_path, STATE)
    path = tmp_path / "live.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "colour": "red"}))
    assert read_live(tmp_path) == STATE


def test_a_directory_that_cannot_be_written_does_not_stop_the_sweep(tmp_path):
    write_live(tmp_path / "gone", STATE)
    clear_live(tmp_path / "gone")
    with pytest.raises(ResultsError, match="expected to leave a wish"):
        ask_to_stop(tmp_path / "gone", "now")


@pytest.mark.parametrize("wish", ["trial", "now"])
def test_a_wish_is_heard_until_it_is_cleared(tmp_path, wish):
    assert stop_wish(tmp_path) is None
    ask_to_stop(tmp_path, wish)
    assert stop_wish(tmp_path) == wish
    clear_live(tmp_path)
    assert stop_wish(tmp_path) is None


def test_the_driver_is_whoever_holds_the_lock(tmp_path):
    assert driver_of(tmp_path) is None
    lock = RunLock.take(tmp_path / "lock")
    try:
        assert driver_of(tmp_path).pid == os.getpid()
    finally:
        lock.release()
    assert driver_of(tmp_path) is None


def lease_of(tmp_path, **changes):
    lock = RunLock.take(tmp_path / "lock")
    text = (tmp_path / "lock").read_text()
    lock.release()
    (tmp_path / "lock").write_text(json.dumps({**json.loads(text), **changes}))
    return tmp_path / "lock"


def test_a_dead_process_drives_nothing(tmp_path):
    lease_of(tmp_path, process_start="1")
    assert driver_of(tmp_path) is None


def test_a_driver_on_another_host_lives_as_long_as_its_heartbeat(tmp_path):
    path = lease_of(tmp_path, host="elsewhere")
    assert driver_of(tmp_path).host == "elsewhere"
    old = path.stat().st_mtime - 120
    os.utime(path, (old, old))
    assert driver_of(tmp_path) is None
