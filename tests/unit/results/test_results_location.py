"""Where runs live and how they are named."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rtxscale.cli.main import app
from rtxscale.errors import BadInput
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


SECRET = "se/cr@et"  # noqa: S105 - made up


@pytest.mark.parametrize("scheme", ["S3", "gs", "s3a", "https", "file", "az+x"])
@pytest.mark.parametrize("slashes", ["/", "//"])
def test_what_is_named_like_an_address_is_never_a_directory(scheme, slashes, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for user in ("", f"AKIA:{SECRET}@"):
        with pytest.raises(BadInput) as refused:
            results_root(Path(f"{scheme}:{slashes}{user}bucket/runs?key={SECRET}"))
        assert "AKIA" not in str(refused.value)
        assert SECRET not in str(refused.value)
        assert f"{scheme}://{'***@' if user else ''}" in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_a_password_in_an_address_is_refused_and_not_shown(tmp_path):
    done = CliRunner().invoke(app, ["runs", "--results", f"s3://AKIA:{SECRET}@bucket/runs"])
    said = f"{done.output}{done.exception}"
    assert done.exit_code != 0
    assert "s3://***@bucket/runs" in said
    assert "AKIA" not in said
    assert SECRET not in said


@pytest.mark.parametrize("command", [("runs",), ("status",), ("show",), ("sweep", "x.yaml")])
def test_nothing_is_no_directory(command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [*command, "--results", ""])
    assert done.exit_code == 2
    assert "--results: found nothing after it" in f"{done.output}{done.exception}"


def test_the_home_of_nobody_is_no_directory_here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="found no such user's home directory"):
        results_root(Path("~nobody-here/runs"))


def test_latest_is_the_run_written_to_last(tmp_path):
    resumed, newer = make_run(tmp_path, 1, 2_000), make_run(tmp_path, 2, 1_000)
    (tmp_path / "quick-start-0123456789ab-03").mkdir()
    (tmp_path / "notes").mkdir()
    assert find_run("latest", tmp_path) == resumed
    assert list_runs(tmp_path) == [resumed, newer]
    assert find_run(newer.name, tmp_path) == newer
    assert find_run(str(newer), tmp_path / "elsewhere") == newer


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(BadInput, match="found no run"):
        find_run("latest", tmp_path / "missing")
    (tmp_path / "file").write_text("")
    for text in ("nothing", str(tmp_path / "file"), "~nobody-here/run", "x" * 5000, "a\0b"):
        with pytest.raises(BadInput, match="neither a directory nor a run"):
            find_run(text, tmp_path)


def test_a_sweeps_name_gets_the_names_of_its_runs_newest_first(tmp_path):
    for number in (1, 2):
        make_run(tmp_path, number, number * 1_000_000_000)
    with pytest.raises(BadInput, match=r"of that sweep are quick-start-0123456789ab-02, quick-start-0123456789ab-01$"):
        find_run("quick-start", tmp_path)


def test_a_directory_that_is_no_run_is_said(tmp_path):
    with pytest.raises(BadInput, match=r"no run\.json"):
        find_run(str(tmp_path), tmp_path)


def test_a_root_that_is_a_file_is_said(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="not a directory"):
        results_root(tmp_path / "file")
    monkeypatch.setenv("RTXSCALE_RESULTS", str(tmp_path / "file"))
    with pytest.raises(BadInput, match="not a directory"):
        results_root()
    assert results_root(tmp_path) == tmp_path
    assert results_root(tmp_path / "new") == tmp_path / "new"
