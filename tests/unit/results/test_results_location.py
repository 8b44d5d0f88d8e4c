"""Where runs live and how they are named."""

import os
from pathlib import Path

import pytest

from rtxscale.errors import ResultsError
from rtxscale.results.location import find_run, list_runs, results_root


def make_run(root, number, written_ns):
    run = root / f"quick-start-0123456789ab-{number:02d}"
    (run / "commits").mkdir(parents=True)
    (run / "run.json").write_text('{"rtxscale": "run"}')
    os.utime(run / "commits", ns=(written_ns, written_ns))
    return run


def test_the_root_comes_from_the_environment_or_the_home(monkeypatch, tmp_path):
    monkeypatch.setenv("RTXSCALE_RESULTS", str(tmp_path))
    assert results_root() == tmp_path
    monkeypatch.setenv("RTXSCALE_RESULTS", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert results_root() == tmp_path / "rtxscale-results"
    monkeypatch.setenv("RTXSCALE_RESULTS", "relative")
    assert results_root() == Path.cwd() / "relative"


def test_latest_is_the_run_written_to_last(tmp_path):
    resumed, newer = make_run(tmp_path, 1, 2_000), make_run(tmp_path, 2, 1_000)
    (tmp_path / "quick-start-0123456789ab-03").mkdir()
    (tmp_path / "notes").mkdir()
    assert find_run("latest", tmp_path) == resumed
    assert list_runs(tmp_path) == [resumed, newer]
    assert find_run(newer.name, tmp_path) == newer
    assert find_run(str(newer), tmp_path / "elsewhere") == newer


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(ResultsError, match="found no run"):
        find_run("latest", tmp_path / "missing")
    with pytest.raises(ResultsError, match="neither a directory nor a run"):
        find_run("nothing", tmp_path)
