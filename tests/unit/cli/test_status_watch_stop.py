"""`rtxscale status`, `watch` and `stop` beside a run that this process holds."""

import json
import time
from functools import partial
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from rtxscale.cli.main import app
from rtxscale.cli.watch import sparkline, state_words
from rtxscale.results.live import LiveState, clear_live, read_live, stop_wish, write_live
from rtxscale.results.write import RunWriter
from rtxscale.spec.load import load_sweep

SWEEP = """
name: watched
question: Does it scale?
study: weak
workload: {kind: vision, model: resnet18, batch_per_gpu: 8}
axes: {gpus: [1, 2]}
"""


@pytest.fixture
def sweep(tmp_path):
    path = tmp_path / "watched.yaml"
    path.write_text(SWEEP)
    return load_sweep(path)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "results"


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def state(**changes):
    fields = {"updated_ns": time.time_ns(), "total": 8, "finished": 3, "current": "gpus=2 (visit 1)", "left_s": 90.0}
    return LiveState(**{**fields, "last": "ok, 120 image/s", "temperature_c": 61.0, "power_w": 840.0, **changes})


def test_status_lists_what_is_running_and_nothing_else(root, sweep):
    with RunWriter.open(root, sweep.sweep, sweep.text) as writer:
        write_live(writer.run_dir, state())
        shown = call("status", "--results", root)
        assert shown.exit_code == 0
        assert f"{writer.run_id}: 3/8 trials, " in shown.output
        assert "61 °C, 840 W" in shown.output
        assert "now: gpus=2 (visit 1)" in shown.output
        (found,) = json.loads(call("status", "--results", root, "--json").output)
        assert (found["run"], found["finished"], found["total"]) == (writer.run_id, 3, 8)
    after = call("status", "--results", root)
    assert after.exit_code == 0
    assert "no sweep is running" in after.output
    assert json.loads(call("status", "--results", root, "--json").stdout) == []


def test_status_of_a_sweep_that_has_not_planned_yet(root, sweep):
    with RunWriter.open(root, sweep.sweep, sweep.text) as writer:
        assert f"{writer.run_id}: starting" in call("status", "--results", root).output


def test_a_state_cannot_command_the_terminal(root, sweep):
    with RunWriter.open(root, sweep.sweep, sweep.text) as writer:
        write_live(writer.run_dir, state(current="\x1b[2Jgone", last="\x1b]0;title\x07"))
        assert "\x1b" not in call("status", "--results", root).output


def test_stop_leaves_a_wish_and_waits_for_the_end(root, sweep):
    with RunWriter.open(root, sweep.sweep, sweep.text) as writer:
        asked = call("stop", writer.run_id, "--results", root, "--wait", "0")
        assert asked.exit_code == 0
        assert "to stop after its trial" in asked.output
        assert stop_wish(writer.run_dir) == "trial"
        late = call("stop", "--results", root, "--wait", "0.3", "--now")
        assert late.exit_code == 1
        assert "still running after 0.3 s" in late.output
        assert stop_wish(writer.run_dir) == "now"
        clear_live(writer.run_dir)


def test_stop_without_a_driver_is_an_error(root, sweep):
    with RunWriter.open(root, sweep.sweep, sweep.text) as writer:
        pass
    refused = call("stop", "--results", root)
    assert refused.exit_code == 2
    assert "found no sweep running" in refused.output
    assert stop_wish(writer.run_dir) is None
    assert call("watch", "--results", root).exit_code == 2


def test_watch_follows_until_the_driver_ends(root, sweep, monkeypatch):
    writer = RunWriter.open(root, sweep.sweep, sweep.text)
    write_live(writer.run_dir, state(throughputs=(1.0, 2.0), series="vision/resnet18, image/s"))
    seconds_later = state(throughputs=(1.0, 2.0), series="vision/resnet18, image/s", left_s=87.0)
    written = (seconds_later, state(finished=4), state(finished=4, left_s=60.0))
    steps = [*(partial(write_live, writer.run_dir, one) for one in written), writer.close]
    waited = []

    def between_looks(seconds):
        waited.append(seconds)
        steps.pop(0)()

    monkeypatch.setattr("rtxscale.cli.watch.time", SimpleNamespace(sleep=between_looks))
    shown = call("watch", "--results", root, "--period", "0.1")
    assert waited == [0.1] * 4
    assert shown.exit_code == 0
    lines = shown.output.splitlines()
    assert [line.split(" | ")[0].rpartition(" ")[2] for line in lines[:-1]] == ["3/8", "4/8"]
    assert lines[0].endswith("| gpus=2 (visit 1) | last: ok, 120 image/s | ▄█ vision/resnet18, image/s")
    assert "the driver has ended; no trial" in lines[-1]
    assert "starting" not in shown.output
    assert read_live(writer.run_dir) is None, "taken away with the lock"


def test_a_sparkline_starts_at_zero():
    assert sparkline([99.0, 100.0]) == "██"
    assert sparkline([None, None]) == "··"
    assert sparkline([0.0, 0.0]) == "··"


def test_a_terminal_of_80_columns_shows_what_is_measured():
    line = f"quickstart-25aa365445db-01: {state_words(state(throughputs=(1.0,) * 60, series='vision/resnet18'))}"
    assert "| gpus=2 (visit 1) | last: ok" in line[:80]
    assert line.endswith(f"| {'█' * 20} vision/resnet18")


def test_before_the_plan_a_sweep_is_starting():
    assert state_words(None) == "starting"
