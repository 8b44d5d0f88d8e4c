"""The command at a sweep's end: told in variables, by no shell, for a limited time, and never from a stranger."""

import json
import sys
from pathlib import Path

import pytest

from rtxscale.cli import notify as notify_module
from rtxscale.cli import sweep as command
from rtxscale.cli.allowed import check_allowed
from rtxscale.cli.notify import notified, notify, variables
from rtxscale.cli.sweep import exit_code
from rtxscale.errors import BadInput, PlanError, RunError
from rtxscale.run import authentication
from rtxscale.run import sweep as run_sweep
from rtxscale.run.sweep import SweepResult
from rtxscale.spec.load import parse_sweep

TEXT = """\
name: told
question: Who is told?
study: weak
workload: {kind: vision, batch_per_gpu: 2}
axes: {gpus: [1, 2]}
"""
TELL = "import json, os, sys; json.dump({**os.environ, 'words': sys.argv[2:]}, open(sys.argv[1], 'w'))"


def sweep_with(*command):
    return parse_sweep(f"{TEXT}notify: {{command: {json.dumps(command)}}}\n", "told.yaml")


def result(**fields):
    return SweepResult(run_dir=Path("/runs/a b;rm"), **{"total": 4, "finished": 4, "outcomes": {"ok": 4}, **fields})


@pytest.fixture
def told(tmp_path):
    """The environment and words that the command was run with."""
    path = tmp_path / "told.json"
    sweep = sweep_with(sys.executable, "-c", TELL, str(path), "$RTXSCALE_RUN", "; touch evil", "`id`")
    return sweep, lambda: json.loads(path.read_text())


@pytest.mark.parametrize(
    ("fields", "outcome", "code"),
    [
        ({}, "complete", "0"),
        ({"finished": 3}, "incomplete", "1"),
        ({"endings": {"ok": 1, "crashed": 3}}, "some_failed", "1"),
        ({"endings": {"crashed": 4}, "outcomes": {}}, "all_failed", "1"),
        ({"finished": 3, "interrupted": "max_hours"}, "max_hours", "3"),
        ({"finished": 3, "interrupted": "SIGTERM"}, "SIGTERM", "143"),
    ],
)
def test_the_end_is_told_in_variables_and_no_word_is_interpreted(told, fields, outcome, code):
    sweep, read = told
    ended = result(**fields)
    assert notified(sweep, lambda: ended, exit_code) is ended
    seen = read()
    assert seen["words"] == ["$RTXSCALE_RUN", "; touch evil", "`id`"]
    assert (seen["RTXSCALE_RUN"], seen["RTXSCALE_OUTCOME"]) == ("/runs/a b;rm", outcome)
    assert (seen["RTXSCALE_EXIT_CODE"], seen["RTXSCALE_TOTAL"], seen["RTXSCALE_SWEEP"]) == (code, "4", "told")


def test_how_many_failed_is_told():
    told = variables(result(endings={"ok": 1, "oom": 1, "crashed": 2}), 1)
    assert (told["RTXSCALE_FAILED"], told["RTXSCALE_OUTCOMES"]) == ("2", "crashed=2 ok=1 oom=1")


def test_a_sweep_that_fails_is_told_too_and_still_fails(told):
    sweep, read = told

    def fail():
        raise RunError("lost the cluster")

    with pytest.raises(RunError, match="lost the cluster"):
        notified(sweep, fail, exit_code)
    assert (read()["RTXSCALE_OUTCOME"], read()["RTXSCALE_MESSAGE"]) == ("failed", "lost the cluster")
    assert read()["RTXSCALE_EXIT_CODE"] == "1"


def refusing(error):
    def refuse(*_given):
        raise error

    return refuse


@pytest.mark.parametrize(
    ("stage", "error", "told_code"),
    [
        ("look_first", RunError("the driver is too old"), ("failed", "1")),
        ("settle", RunError("no token here"), ("failed", "1")),
        ("execute", PlanError("found no GPU"), ("failed", "2")),
        ("look_first", KeyboardInterrupt(), ("SIGINT", "130")),
    ],
)
def test_a_sweep_that_is_refused_before_it_begins_is_told_too(told, monkeypatch, tmp_path, stage, error, told_code):
    sweep, read = told
    path = tmp_path / "sweep.yaml"
    path.write_text(f"{TEXT}notify: {{command: {json.dumps(list(sweep.notify.command))}}}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(command, "look_first", lambda *_given: ())
    monkeypatch.setattr(authentication, "settle", lambda *_given: None)
    module = {"look_first": command, "settle": authentication, "execute": run_sweep}[stage]
    monkeypatch.setattr(module, stage, refusing(error))
    with pytest.raises(type(error)):
        command.sweep(path, results=tmp_path / "results")
    assert (read()["RTXSCALE_OUTCOME"], read()["RTXSCALE_EXIT_CODE"]) == told_code
    assert read().get("RTXSCALE_MESSAGE", "") == str(error)


@pytest.mark.parametrize(
    ("command", "limit_s", "said"),
    [
        ([sys.executable, "-c", "import sys; sys.exit('no\x1b[31m network')"], 30.0, "found exit code 1 (no"),
        (["/nonexistent/program"], 30.0, "found that it cannot be started"),
        (["sleep", "60"], 0.3, "found it running after 0 s, and ended it"),
    ],
)
def test_a_command_that_fails_is_a_warning(capsys, monkeypatch, command, limit_s, said):
    monkeypatch.setattr(notify_module, "LIMIT_S", limit_s)
    notify(sweep_with(*command), variables(result(), 0))
    warned = capsys.readouterr().err
    assert warned.startswith("rtxscale: warning: notify ")
    assert "\x1b" not in warned
    assert said in warned


def test_without_a_command_nothing_runs(monkeypatch):
    monkeypatch.setattr(notify_module.subprocess, "run", lambda *_, **__: pytest.fail("it ran"))
    notify(parse_sweep(TEXT, "told.yaml"), {})


def test_who_is_told_does_not_change_what_is_measured():
    assert sweep_with("a").sweep_id == parse_sweep(TEXT, "told.yaml").sweep_id


@pytest.mark.parametrize(
    "words", ["notify: {command: []}", "notify: {command: shutdown now}", "notify: {command: ['']}"]
)
def test_a_command_is_a_list_of_words(words):
    with pytest.raises(BadInput, match=r"notify\.command"):
        parse_sweep(f"{TEXT}{words}\n", "told.yaml")


def test_a_command_in_somebodys_dossier_needs_to_be_allowed(tmp_path):
    sweep = sweep_with("shutdown", "now")
    check_allowed(sweep, tmp_path, allowed=False)
    (tmp_path / "SHA256SUMS").write_text("")
    with pytest.raises(BadInput, match="found the notify command shutdown in a dossier"):
        check_allowed(sweep, tmp_path, allowed=False)
    check_allowed(sweep, tmp_path, allowed=True)
    check_allowed(parse_sweep(TEXT, "told.yaml"), tmp_path, allowed=False)
