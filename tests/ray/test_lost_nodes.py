"""A head node that dies under a sweep and is started anew, and a node that is away when a sweep goes on. Opt-in."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import (
    REPOSITORY,
    START_S,
    alive_nodes,
    another_node,
    command_of,
    end_processes_of,
    free_ports,
    processes_of,
    running_head,
    start_node,
    wait_for,
)
from tiny import rows_of, sweep_file, trials_of

from rtxscale.run.processes import descendants

VARIABLE = "RTXSCALE_FAULTS"
pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(VARIABLE not in os.environ, reason=f"each takes some minutes: set {VARIABLE}=1"),
]
DRIVER_ENDS_S = 57
"""Half a minute until the head counts as lost, and Ray's own limit is a minute."""
OF_THE_HEAD = ("ray start --head", "gcs_server", "raylet", "dashboard", "monitor")


class Driver:
    """The sweep's command on a cluster; `said` is all its output so far."""

    def __init__(self, head, sweep, results, log):
        words = [sys.executable, "-m", "rtxscale", "sweep", str(sweep), "--results", str(results), "--no-report"]
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [*words, "--address", head.address],
                env=head.environment,
                cwd=REPOSITORY,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self._log = log

    @property
    def said(self):
        return self._log.read_text(errors="replace")

    def until(self, words):
        wait_for(lambda: words in self.said or self.process.poll() is not None, START_S, lambda: self.said)
        assert words in self.said

    def ends(self, timeout_s=600):
        return self.process.wait(timeout_s)


def two_places(tmp_path, name):
    """A sweep whose cells run on the head alone, then on both nodes."""
    sweep = sweep_file(tmp_path, name, gpus="[2]", buckets="[1, 25, 50]", window_s=2)
    sweep.write_text(sweep.read_text().replace("  gpus: [2]\n", "  gpus: [2]\n  placement: [packed, spread]\n"))
    return sweep


def all_once(run_dir, before):
    """Nothing that was there is lost or changed, nothing is doubled, and every cell has a result."""
    rows = trials_of(run_dir)
    assert [(row["trial_id"], row["attempt"]) for row in rows][: len(before)] == [
        (row["trial_id"], row["attempt"]) for row in before
    ]
    done = [row["trial_id"] for row in rows if row["outcome"] == "ok"]
    assert len(done) == len(set(done)) == 8  # six cells, and the default one in either place
    assert len({row["environment_id"] for row in rows}) == 1
    assert {row["trial_id"] for row in rows_of(run_dir, "steps")} >= set(done)


@pytest.fixture
def place():
    """A short home directory for a head node of the test's own."""
    directory = Path(tempfile.mkdtemp(prefix="rx-", dir="/tmp"))
    (directory / "t").mkdir()
    yield directory
    end_processes_of(directory)
    shutil.rmtree(directory, ignore_errors=True)


def kill_head(head, node, driver):
    """SIGKILL to all of the head node's own processes, as when its machine goes; the driver's machine is another."""
    spared = {node.pid, *descendants(node.pid), driver.process.pid}
    for pid in [pid for pid in processes_of(head.home) if pid not in spared]:
        if any(word in command_of(pid) for word in OF_THE_HEAD):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_after_the_head_node_has_died_and_come_back_the_same_command_goes_on(place, tmp_path):
    sweep, results, ports = two_places(tmp_path, "headless"), tmp_path / "results", free_ports(4)
    with running_head(place, ports) as head:
        node = start_node(head)
        wait_for(lambda: alive_nodes(head) == 2, START_S, "the second node")
        driver = Driver(head, sweep, results, tmp_path / "first.log")
        driver.until("[2/")
        kill_head(head, node, driver)
        assert driver.ends(DRIVER_ENDS_S) == 1, driver.said
        end_processes_of(place)
        node.wait(30)
    assert f"found that the head node at {head.address} does not answer any more" in driver.said
    assert "run the same command to continue" in driver.said.splitlines()[-1]
    (run_dir,) = results.iterdir()
    before = trials_of(run_dir)
    assert {row["outcome"] for row in before} == {"ok"}
    assert len(before) >= 2
    with running_head(place, ports) as head:
        driver = Driver(head, sweep, results, tmp_path / "second.log")
        driver.until("waiting up to 60 s: this run began on 2 nodes, 1 of them in the cluster")
        with another_node(head):
            assert driver.ends() == 0, driver.said
            assert "dropped" not in driver.said
    all_once(run_dir, before)


def test_a_sweep_goes_on_without_a_node_that_is_away_and_finishes_when_it_is_back(head, tmp_path):
    sweep, results = two_places(tmp_path, "away"), tmp_path / "results"
    with another_node(head):
        driver = Driver(head, sweep, results, tmp_path / "first.log")
        driver.until("[1/")
        driver.process.kill()
        driver.ends()
    (run_dir,) = results.iterdir()
    assert {row["nodes"] for row in trials_of(run_dir)} == {1}
    driver = Driver(head, sweep, results, tmp_path / "second.log")
    assert driver.ends() == 1, driver.said
    assert "node1 of this run is not in the cluster: the rest goes on" in driver.said
    assert "4 trials need node1: set aside" in driver.said
    assert "4 of 8 trials finished" in driver.said
    before = trials_of(run_dir)
    assert [row["outcome"] for row in before] == ["ok"] * 4
    with another_node(head):
        driver = Driver(head, sweep, results, tmp_path / "third.log")
        assert driver.ends() == 0, driver.said
    all_once(run_dir, before)
