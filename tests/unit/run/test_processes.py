import os
import subprocess
import time

import pytest

from rtxscale.run.cluster import LOCAL_PREFIX, OWNER_VARIABLE, remove_remains
from rtxscale.run.processes import descendants, environment_of, is_alive, kill, started_with


@pytest.fixture
def family():
    """Starts a shell with a child and these variables; both are gone afterwards."""
    shells = []

    def start(**variables):
        environment = {"PATH": os.environ["PATH"], **variables}
        shell = subprocess.Popen(["sh", "-c", "sleep 60 & wait"], env=environment)
        shells.append(shell)
        deadline = time.monotonic() + 5
        while not descendants(shell.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        return shell.pid, descendants(shell.pid)[0]

    yield start
    for shell in shells:
        kill([*descendants(shell.pid), shell.pid])
        shell.wait()


def wait_until_dead(*pids):
    deadline = time.monotonic() + 5
    while any(is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not any(is_alive(pid) for pid in pids)


def test_a_family_is_found_with_what_it_was_started_with(family):
    shell, child = family(MARK="x=y")
    assert environment_of(child)["MARK"] == "x=y"
    assert {pid: value for pid, value in started_with("MARK").items() if pid in (shell, child)} == {
        shell: "x=y",
        child: "x=y",
    }
    assert is_alive(child)


def test_the_dead_are_dead_and_can_be_killed_again(family):
    shell, child = family()
    kill([child, shell])
    assert wait_until_dead(shell, child)
    kill([child])
    assert environment_of(child) == {}


def test_remains_of_a_killed_sweep_go_and_another_places_stay(family, tmp_path):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    scratch = {place: place / f"{LOCAL_PREFIX}abc" for place in (here, elsewhere)}
    pids = {}
    for place, directory in scratch.items():
        (directory / "session").mkdir(parents=True)
        pids[place] = family(**{OWNER_VARIABLE: str(directory)})
    remove_remains(here)
    assert wait_until_dead(*pids[here])
    assert not scratch[here].exists()
    assert all(is_alive(pid) for pid in pids[elsewhere])
    assert scratch[elsewhere].exists()
