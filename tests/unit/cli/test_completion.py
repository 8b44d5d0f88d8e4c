"""Shell completion, as README names it: commands, options and names of runs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from report import made_runs

from rtxscale.cli.show import run_names
from rtxscale.results.write import RunWriter


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Names of two runs in the results root."""
    for name in ("nccl-resnet50", "quickstart"):
        RunWriter.open(tmp_path, made_runs.h200_sweep(name=name), f"name: {name}\n", fresh=True).close()
    monkeypatch.setenv("RTXSCALE_RESULTS", str(tmp_path))
    return sorted(path.name for path in tmp_path.iterdir())


def completed(words):
    """What bash would be offered for the last of these words."""
    environment = {
        **os.environ,
        "_RTXSCALE_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["rtxscale", *words]),
        "COMP_CWORD": str(len(words)),
    }
    code = "import sys; sys.argv[0] = 'rtxscale'; from rtxscale.cli.main import app; app(prog_name='rtxscale')"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    return done.stdout.split()


def test_commands_options_and_runs_are_completed(runs):
    assert completed(["dos"]) == ["dossier"]
    assert set(completed(["report", "--no"])) >= {"--no-redact"}
    assert completed(["show", "nccl"]) == [runs[0]]


def test_runs_are_offered_with_latest_and_without_a_root_there_is_only_that(runs, tmp_path, monkeypatch):
    assert set(run_names("")) == {"latest", *runs}
    assert run_names("q") == [runs[1]]
    monkeypatch.setenv("RTXSCALE_RESULTS", str(tmp_path / "missing"))
    assert run_names("") == ["latest"]
