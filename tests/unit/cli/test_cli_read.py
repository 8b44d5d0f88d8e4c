"""`show`, `report`, `explain` and `runs` on a run that exists, and on what does not."""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
import shutil
import sys
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from rtxscale.cli.explain import choose, planned_trial
from rtxscale.cli.main import app
from rtxscale.errors import BadInput, ResultsError
from rtxscale.results.read import Run
from rtxscale.results.schema import table
from rtxscale.results.write import RunWriter
from rtxscale.spec.cell import Trial
from rtxscale.spec.load import parse_sweep

SWEEP = "{name: one, question: Why, study: weak, workload: {kind: vision, batch_per_gpu: 8}, axes: {gpus: [1, 2]}}"


def invoke(root, *words):
    return CliRunner().invoke(app, list(words), env={"RTXSCALE_RESULTS": str(root), "XDG_CACHE_HOME": None})


def strict(text):
    def refuse(word):
        raise ValueError(word)

    return json.loads(text, parse_constant=refuse)


def test_show_prints_the_answer(root):
    result = invoke(root, "show")
    assert result.exit_code == 0
    assert "2 CPU workers run vision/resnet18" in result.output
    assert max(len(line) for line in result.output.splitlines()[2:]) <= 80


def test_show_json_is_strict_and_complete(root):
    data = strict(invoke(root, "show", "--json").output)
    assert data["headline"].startswith("2 CPU workers")
    assert {"cells", "efficiency", "best", "effects", "bandwidth", "outcomes"} <= set(data)
    assert {row["curve"] for row in data["efficiency"]} == {"weak", "strong"}


@pytest.mark.parametrize("name", ["cells", "efficiency", "trials", "environment", "telemetry", "bandwidth"])
def test_show_csv_prints_one_table(root, name):
    result = invoke(root, "show", "--csv", name)
    rows = list(csv.DictReader(io.StringIO(result.output)))
    assert result.exit_code == 0
    if name == "trials":
        assert {row["flags"] for row in rows} == {"host_bound"}
        assert len(rows) == 11


def test_show_csv_of_an_unknown_table_names_the_known_ones(root):
    result = invoke(root, "show", "--csv", "trails")
    assert result.exit_code == 2
    assert "'trails'" in result.stderr
    assert "trials" in result.stderr


def test_no_run_and_unknown_run(tmp_path, root):
    for words in (("show",), ("report",), ("explain", "ab")):
        result = invoke(tmp_path, *words)
        assert (result.exit_code, result.stderr.startswith("rtxscale: error: ")) == (2, True)
        assert "found no run" in result.stderr
    for text in ("nightly", "/dev/null", str(tmp_path)):
        result = invoke(root, "show", text)
        assert (result.exit_code, text in result.stderr) == (2, True)


def test_results_that_are_no_directory(tmp_path):
    (tmp_path / "file").write_text("")
    for words in (("show",), ("report",), ("explain", "ab"), ("runs",)):
        result = invoke(tmp_path, *words, "--results", str(tmp_path / "file"))
        assert (result.exit_code, "not a directory" in result.stderr) == (2, True)


def test_numbers_are_not_shown_of_a_run_with_a_changed_bit(root, tmp_path):
    (run,) = root.iterdir()
    damaged = Path(shutil.copytree(run, tmp_path / run.name))
    part = next((damaged / "parts").glob("*trials*"))
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    for words in (("show",), ("show", "--csv", "trials"), ("report",), ("explain", "ffff")):
        result = invoke(tmp_path, *words)
        assert (result.exit_code, result.stdout) == (1, "")
        assert f"found damaged results: parts/{part.name} has another content" in result.stderr
    assert not (damaged / "report.html").exists()


def test_json_and_csv_together_are_refused(root):
    result = invoke(root, "show", "--json", "--csv", "trials")
    assert (result.exit_code, "found both" in result.stderr) == (2, True)


def test_a_run_without_trials_is_shown(empty_root):
    assert "Nothing has been measured yet" in invoke(empty_root, "show").output
    result = invoke(empty_root, "explain", "ab")
    assert result.exit_code == 2
    assert "no trials yet" in result.stderr


def test_runs_lists_them(root, empty_root, tmp_path):
    assert "10 ok, 1 oom" in invoke(root, "runs").output
    assert "none yet" in invoke(empty_root, "runs").output
    (found,) = strict(invoke(root, "runs", "--json").output)
    assert found["trials"] == {"ok": 10, "oom": 1}
    result = invoke(tmp_path, "runs")
    assert (result.exit_code, "no runs" in result.stderr) == (0, True)


def test_runs_shows_a_damaged_run_as_such(tmp_path):
    run = tmp_path / "a-0123456789ab-01"
    run.mkdir()
    (run / "run.json").write_text('{"rtxscale": "run", "schema_version": 999}')
    assert "cannot be read" in invoke(tmp_path, "runs").output


def test_report_writes_a_file_and_prints_its_path(root, tmp_path, monkeypatch):
    from rtxscale.report import page

    monkeypatch.setattr(page, "vega_bundle", lambda: "")
    result = invoke(root, "report", "-o", str(tmp_path / "r.html"))
    assert result.exit_code == 0
    assert result.output.splitlines()[-1] == str(tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text().startswith("<!DOCTYPE html>")


def test_report_into_nowhere_says_so(root, tmp_path, monkeypatch):
    from rtxscale.report import page

    monkeypatch.setattr(page, "vega_bundle", lambda: "")
    (tmp_path / "file").write_text("mine")
    os.mkfifo(tmp_path / "pipe")
    for place in ("file/r.html", "missing/r.html", "pipe", "."):
        result = invoke(root, "report", "-o", str(tmp_path / place))
        assert (result.exit_code, "nothing was written" in result.stderr) == (2, True)
    for place in ("file", "missing/charts", "pipe"):
        result = invoke(root, "report", "-o", str(tmp_path / "r.html"), "--charts", str(tmp_path / place))
        assert (result.exit_code, "nothing was written" in result.stderr) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "pipe"]
    assert (tmp_path / "file").read_text() == "mine"


def test_a_report_that_cannot_be_written_says_so(root, tmp_path, monkeypatch):
    from rtxscale.report import page

    def full(*_args, **_more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(page, "vega_bundle", lambda: "")
    monkeypatch.setattr(page.tempfile, "mkstemp", full)
    result = invoke(root, "report", "-o", str(tmp_path / "r.html"))
    assert (result.exit_code, "No space left on device" in result.stderr) == (2, True)


def test_explain_prints_a_command_that_repeats_the_trial(root):
    trials = list(csv.DictReader(io.StringIO(invoke(root, "show", "--csv", "trials").output)))
    row = next(row for row in trials if row["gpus"] == "2" and row["outcome"] == "ok")
    result = invoke(root, "explain", row["trial_id"][:10])
    assert result.exit_code == 0
    assert f"trial {row['trial_id']}, attempt 1: ok" in result.output
    words = shlex.split(result.output.splitlines()[-1])
    again = Trial.model_validate_json(words[words.index("--trial") + 1])
    assert again.trial_id == row["trial_id"]
    assert words[words.index("--nproc-per-node") + 1] == "2"
    assert words[words.index("--device") + 1] == "cpu"
    assert sys.executable in words


def test_explain_shows_why_a_trial_failed(root):
    assert "CUDA out of memory" in invoke(root, "explain", "ffff").output


def test_explain_names_the_nearest_and_refuses_the_ambiguous(root):
    result = invoke(root, "explain", "fffffffffff0")
    assert result.exit_code == 2
    assert "ffffffffffff" in result.stderr
    with pytest.raises(BadInput, match=r"found 2 trials that begin so \(ab1, ab2\)"):
        choose("AB", ["ab1", "ab2", "b"], "run")
    assert choose("b", ["ab1", "ab2", "b"], "run") == "b"
    for nothing in ("", " "):
        with pytest.raises(BadInput, match=r"^found an empty trial id; expected an id"):
            choose(nothing, ["ab1", "ab2"], "run")


def test_explain_says_what_is_remarkable_about_a_trial(root, tmp_path):
    trials = list(csv.DictReader(io.StringIO(invoke(root, "show", "--csv", "trials").output)))
    trial = next(row["trial_id"] for row in trials if row["outcome"] == "ok")
    assert "  flags     host_bound (the GPUs waited for their host)" in invoke(root, "explain", trial).output
    run = Run.open(next(path for path in root.iterdir() if path.is_dir()))
    rows = run.frame("trials").filter(pl.col("trial_id") == trial).collect().to_dicts()
    measures = {"input_share": 0.4, "energy_source": "counter", "energy_updates": 3.0, "flags": ["odd"]}
    with RunWriter.open(tmp_path, parse_sweep(SWEEP, "s"), SWEEP, fresh=True) as writer:
        writer.commit({"trials": table("trials", [{**row, **measures} for row in rows])})
    said = invoke(tmp_path, "explain", trial).output
    assert "  flags     coarse_energy (the energy counter made few steps), input_bound (" in said
    assert ", odd\n" in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "its column cell_json is not JSON"),
        ('{"gpus": 0, "workload": {"kind": "vision", "batch_per_gpu": 8}, "colour": 1}', "colour: Extra inputs"),
    ],
)
def test_a_cell_that_is_not_known_is_told_field_by_field(text, words):
    with pytest.raises(ResultsError) as caught:
        planned_trial({"trial_id": "abc", "cell_json": text, "visit": 1, "repeat": 1, "slot": 0, "stage": None})
    assert words in str(caught.value)
    assert not any(raw in str(caught.value) for raw in ("pydantic", "validation error", "input_value", "\n"))
