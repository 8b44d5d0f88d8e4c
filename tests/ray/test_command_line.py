"""The command as a user runs it, on a cluster of its own: killed, resumed, ended by a signal."""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from conftest import REPOSITORY, Head, clean_environment, command_of, end_processes_of, processes_of, wait_for
from tiny import rows_of, sweep_file, trials_of

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "cli"))
from selected_runs import faster_bucket, selected_run

from rtxscale.results.read import Run
from rtxscale.run.processes import environment_of

OWNER_VARIABLE = "RTXSCALE_LOCAL_CLUSTER"
pytestmark = pytest.mark.ray


class Command:
    """`rtxscale sweep`, or another command of many minutes, in a process of its own, with its output as it comes.

    `place` is a home, for a cluster of the command's own, or the head node to run on.
    """

    def __init__(self, place, sweep, results, *options, words=()):
        self._path = sweep.with_suffix(".log")
        words = words or ("sweep", str(sweep))
        arguments = [sys.executable, "-m", "rtxscale", *words, "--results", str(results), *options]
        arguments += ["--address", place.address] if isinstance(place, Head) else []
        with self._path.open("ab") as log:
            self.process = subprocess.Popen(
                arguments, env=variables_at(place), cwd=REPOSITORY, stdout=log, stderr=subprocess.STDOUT
            )

    @property
    def output(self):
        return self._path.read_text()

    def until(self, text, timeout_s=180):
        wait_for(lambda: text in self.output or self.process.poll() is not None, timeout_s, repr(text))
        assert text in self.output, self.output

    def end(self, timeout_s=240):
        code = self.process.wait(timeout_s)
        return code, self.output


def variables_at(place):
    """The environment of whoever works there."""
    return place.environment if isinstance(place, Head) else clean_environment(place)


@pytest.fixture
def own_home(tmp_path_factory):
    """A home nobody else's processes have."""
    directory = Path(tempfile.mkdtemp(prefix="rx-", dir="/tmp"))
    (directory / "t").mkdir()
    yield directory
    end_processes_of(directory)
    shutil.rmtree(directory, ignore_errors=True)


def left(home):
    """What still runs, and which cluster it belongs to."""
    return [
        (command.strip()[:60], environment_of(pid).get(OWNER_VARIABLE))
        for pid in processes_of(home)
        if (command := command_of(pid))
    ]


def overwritten(pid):
    """Whether a process lost its first variable, and with it perhaps the one that says whose it is, to a new title."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().startswith(b"\0")
    except OSError:
        return False


def nothing_runs(home):
    return not left(home)


def all_ends(home, timeout_s):
    wait_for(lambda: nothing_runs(home), timeout_s, lambda: f"the end of {left(home)}")


def test_killed_in_the_middle_and_run_again_repeats_nothing(own_home, tmp_path):
    sweep = sweep_file(tmp_path, "resumed", buckets="[1, 25]", sentinels="auto")
    meter = "wall_power: {source: command, command: [echo, 412.5 W], period_s: 0.1}\n"
    sweep.write_text(sweep.read_text() + meter)
    results = tmp_path / "results"
    first = Command(own_home, sweep, results)
    first.until("] gpus=")
    below = [pid for pid in processes_of(own_home) if pid != first.process.pid]
    assert len(below) >= 5
    assert not [command_of(pid) for pid in below if overwritten(pid)]
    first.process.send_signal(signal.SIGKILL)
    first.process.wait(10)
    (run_dir,) = results.iterdir()
    before = trials_of(run_dir)
    assert before
    assert {row["outcome"] for row in before} == {"ok"}

    code, output = Command(own_home, sweep, results).end()
    assert code == 0, output
    after = trials_of(run_dir)
    assert [row["trial_id"] for row in after][: len(before)] == [row["trial_id"] for row in before]
    assert len({row["trial_id"] for row in after}) == len(after) > len(before)
    assert [row["stage"] for row in after].count("sentinel") == 2
    assert {row["outcome"] for row in after} == {"ok"}
    assert {row["gpus"] for row in after} == {1, 2}
    assert len({row["environment_id"] for row in after}) == 1
    facts = [(row["node"], row["subject"], row["name"]) for row in rows_of(run_dir, "environment")]
    assert len(set(facts)) == len(facts) > 10
    watched = {row["trial_id"] for row in rows_of(run_dir, "telemetry")}
    assert watched == {None, *(row["trial_id"] for row in after)}
    assert {row["wall_source"] for row in after} == {"command"}
    assert 412.5 in {row["wall_power_w"] and round(row["wall_power_w"], 3) for row in after}
    assert output.splitlines()[-1] == str(run_dir.absolute())
    assert "report: " in output
    assert "(raylet)" not in output
    all_ends(own_home, 10)
    assert not list((own_home / "t").glob("rtxscale-local-*/"))


def ended_by(number, command, home):
    """Send the signal; exit code and output once nothing is left running."""
    began = time.monotonic()
    command.process.send_signal(number)
    code, output = command.end(20)
    took_s = time.monotonic() - began
    print(f"ended in {took_s:.2f} s")
    all_ends(home, 5)
    assert took_s < 10
    assert "Traceback" not in output
    return code, output


def test_sigterm_under_a_trial_ends_it_cleanly(own_home, tmp_path):
    command = Command(own_home, sweep_file(tmp_path, "ended", gpus="[2]", window_s=120), tmp_path / "results")
    command.until("results: ")
    wait_for(lambda: any("RayTrainWorker" in command_of(pid) for pid in processes_of(own_home)), 120, "the ranks")
    time.sleep(5)
    code, output = ended_by(signal.SIGTERM, command, own_home)
    assert code == 143, output
    assert "continues where it stopped" in output
    (run_dir,) = (tmp_path / "results").iterdir()
    assert output.splitlines()[-1] == str(run_dir.absolute())
    assert {row["outcome"] for row in trials_of(run_dir)} <= {"cancelled"}


def test_ctrl_c_while_a_session_starts_ends_it_cleanly(own_home, tmp_path):
    command = Command(own_home, sweep_file(tmp_path, "ended", gpus="[2]"), tmp_path / "results")
    command.until("results: ")
    time.sleep(1)
    code, output = ended_by(signal.SIGINT, command, own_home)
    assert code == 130, output


def test_another_terminal_sees_the_sweep_and_ends_it_after_its_trial(head, tmp_path):
    results = tmp_path / "results"
    command = Command(head, sweep_file(tmp_path, "asked", gpus="[1, 2]", window_s=2), results, "--no-report")
    command.until("results: ")
    (run_dir,) = results.iterdir()
    wait_for(lambda: (run_dir / "live.json").exists(), 60, "the state")
    shown = json.loads(rtxscale(head, "status", "--results", results, "--json"))
    assert [(one["run"], one["finished"]) for one in shown] == [(run_dir.name, 0)]
    asked = rtxscale(head, "stop", run_dir.name, "--results", results)
    assert "it measures no more" in asked
    code, output = command.end(20)
    assert code == 3, output
    assert "stopped by `rtxscale stop`" in output
    assert not (run_dir / "live.json").exists()
    assert not (run_dir / "stop").exists()
    assert {row["outcome"] for row in trials_of(run_dir)} <= {"ok"}


def test_what_a_run_has_selected_is_confirmed_in_a_fresh_session_of_the_same_run(head, tmp_path):
    sweep = sweep_file(tmp_path, "selected", buckets="[1, 25]")
    run_dir = selected_run(tmp_path / "results", sweep, faster_bucket)
    before = Run.open(run_dir).attempts()
    words = ("confirm", run_dir.name, "--visits", "1")
    code, output = Command(head, sweep, tmp_path / "results", words=words).end()
    assert code == 0, output
    assert output.splitlines()[-1] == str(run_dir)
    assert "4 of 4 trials finished" in output
    assert "Gains over the default" in output
    rows = [row for row in trials_of(run_dir) if row["stage"] == "confirm"]
    orders = {}
    for row in rows:
        orders.setdefault(row["session_id"], []).append(row["ddp_bucket_mib"])
    assert list(orders.values()) == [["25", "auto", "auto", "25"]]
    assert {row["outcome"] for row in rows} == {"ok"}
    assert before.items() <= Run.open(run_dir).attempts().items()
    (found,) = json.loads(rtxscale(head, "show", run_dir, "--json"))["confirmed"]
    assert (found["gpus"], found["visits"], round(found["selected_gain"], 3)) == (2, 1, 0.04)


def rtxscale(place, *arguments):
    """Standard output of another command in another terminal."""
    command = [sys.executable, "-m", "rtxscale", *map(str, arguments)]
    return subprocess.run(
        command, env=variables_at(place), cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=True
    ).stdout


def test_the_limit_stops_at_a_trial_boundary_and_says_how_to_go_on(head, tmp_path):
    sweep = sweep_file(tmp_path, "limited", gpus="[1]")
    code, output = Command(head, sweep, tmp_path / "results", "--limit-minutes", "0", "--no-report").end()
    assert code == 3, output
    assert "stopped by the time limit" in output


def test_a_full_or_unwritable_root_is_found_before_ray_starts(own_home, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    began = time.monotonic()
    code, output = Command(own_home, sweep_file(tmp_path, "blocked"), blocked / "results").end(60)
    assert code == 1
    assert "rtxscale: error: " in output
    assert "Traceback" not in output
    assert time.monotonic() - began < 15
    assert nothing_runs(own_home)


def test_a_wrong_address_is_found_quickly(own_home, tmp_path):
    command = Command(own_home, sweep_file(tmp_path, "lost"), tmp_path / "results", "--address", "127.0.0.1:1")
    code, output = command.end(60)
    assert code == 1
    assert "found no cluster at 127.0.0.1:1" in output
    assert not list((tmp_path / "results").iterdir())


def test_a_model_that_does_not_exist_is_refused_before_anything_runs(head, tmp_path):
    sweep = sweep_file(tmp_path, "misnamed")
    sweep.write_text(sweep.read_text().replace("model: resnet18", "model: resnte18"))
    code, output = Command(head, sweep, tmp_path / "results").end(120)
    assert code == 2, output
    assert "found 'resnte18'" in output
    assert "resnet18" in output.replace("resnte18", "")
    assert not list((tmp_path / "results").iterdir())
