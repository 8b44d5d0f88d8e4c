"""A script of somebody's dossier runs when the user says so, and every command finds the code where it was measured."""

import json

import pytest
from typer.testing import CliRunner

from cli.selected_runs import faster_bucket, selected_run
from rtxscale.cli import allowed
from rtxscale.cli.main import app
from rtxscale.errors import ResultsError
from rtxscale.results.manifest import sweep_digest
from rtxscale.results.read import Run
from rtxscale.results.schema import table
from rtxscale.results.write import RunWriter
from rtxscale.run import authentication
from rtxscale.run import sweep as run_sweep

SWEEP = """\
name: own
question: Which bucket?
study: weak
workload: {kind: script, entry: train:build, batch_per_gpu: 2}
axes:
  gpus: [1, 2]
  ddp.bucket_mib: [25, 50]
hardware: {device: cpu}
"""


@pytest.fixture
def sweep(tmp_path):
    (tmp_path / "code").mkdir()
    path = tmp_path / "code" / "own.yaml"
    path.write_text(SWEEP)
    return path


@pytest.fixture
def requests(monkeypatch, tmp_path):
    """What is asked of `run.sweep`, which measures nothing here."""
    asked = []
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def execute(request):
        asked.append(request)
        return run_sweep.SweepResult(run_dir=request.results_root, total=8, finished=5, interrupted="limit")

    monkeypatch.setattr(run_sweep, "execute", execute)
    monkeypatch.setattr(authentication, "settle", lambda *_: None)
    return asked


def invoke(*words):
    return CliRunner().invoke(app, list(map(str, words)))


def measured_from(directory, run_dir):
    """Say in the run that its first trial found its code there; returns the trial's id."""
    trial = Run.open(run_dir).frame("trials").collect().row(0, named=True)
    row = {"trial_id": trial["trial_id"], "attempt": trial["attempt"], "subject": "workload.directory"}
    row |= {"requested": ".", "observed": str(directory), "verdict": "honoured", "evidence": "said"}
    with RunWriter.reopen(run_dir) as writer:
        writer.commit({"attestation": table("attestation", [row])})
    return trial["trial_id"]


def test_a_sweep_of_ones_own_runs_from_where_its_file_lies(sweep, tmp_path, requests):
    result = invoke("sweep", sweep, "--results", tmp_path / "results", "--no-report")
    assert result.exit_code == 3, result.output
    assert requests[0].directory == sweep.parent


def test_the_script_of_a_dossier_needs_the_users_word(sweep, tmp_path, requests):
    (sweep.parent / allowed.SUMS).write_text("")
    words = ("sweep", sweep, "--results", tmp_path / "results", "--no-report")
    refused = invoke(*words)
    assert refused.exit_code == 2
    assert "found the script train:build in a dossier" in refused.stderr
    assert "expected" in refused.stderr
    assert requests == []
    assert invoke(*words, "--allow-commands").exit_code == 3
    assert len(requests) == 1


def test_a_dossiers_sweep_without_a_script_needs_nothing(sweep, tmp_path, requests):
    (sweep.parent / allowed.SUMS).write_text("")
    sweep.write_text(SWEEP.replace("kind: script, entry: train:build", "kind: vision"))
    assert invoke("sweep", sweep, "--results", tmp_path / "results", "--no-report").exit_code == 3


def test_the_checksums_are_those_of_every_dossier():
    from rtxscale.report.dossier.pack import SUMS

    assert allowed.SUMS == SUMS


def test_a_confirmation_finds_the_code_again_and_asks_as_well(sweep, tmp_path, requests):
    run_dir = selected_run(tmp_path / "results", sweep, faster_bucket)
    unknown = invoke("confirm", run_dir, "--no-report")
    assert "found no trial that says where its files lie" in unknown.stderr
    measured_from(sweep.parent, run_dir)
    stranger = invoke("confirm", run_dir, "--no-report")
    assert stranger.exit_code == 2
    assert "not passed to `rtxscale sweep` by you here" in stranger.stderr
    assert invoke("sweep", sweep, "--results", tmp_path / "results", "--no-report").exit_code == 3
    requests.clear()
    assert invoke("confirm", run_dir, "--no-report").exit_code == 3
    assert requests[0].directory == sweep.parent
    (sweep.parent / allowed.SUMS).write_text("")
    assert invoke("confirm", run_dir, "--no-report").exit_code == 2
    assert invoke("confirm", run_dir, "--no-report", "--allow-commands").exit_code == 3


def test_the_line_that_repeats_a_trial_names_the_directory(sweep, tmp_path):
    run_dir = selected_run(tmp_path / "results", sweep, faster_bucket)
    trial = measured_from(sweep.parent, run_dir)
    line = invoke("explain", trial, "--run", run_dir).stdout.splitlines()[-1]
    assert f"RTXSCALE_DIRECTORY={sweep.parent}" in line


TOLD = SWEEP.replace("kind: script, entry: train:build", "kind: vision") + "notify: {command: [own, word]}\n"


def test_a_runs_own_command_is_somebody_elses_until_this_user_has_passed_its_file(sweep, tmp_path, requests):
    sweep.write_text(TOLD)
    run_dir = selected_run(tmp_path / "results", sweep, faster_bucket)
    refused = invoke("confirm", run_dir, "--no-report")
    assert (refused.exit_code, requests) == (2, [])
    assert "found the notify command own in the run's own sweep file" in refused.stderr
    assert invoke("confirm", run_dir, "--no-report", "--allow-commands").exit_code == 3
    assert invoke("sweep", sweep, "--results", tmp_path / "results", "--no-report").exit_code == 3
    assert invoke("confirm", run_dir, "--no-report").exit_code == 3


@pytest.mark.parametrize("options", [(), ("--allow-commands",)])
def test_a_sweep_file_that_was_changed_in_the_run_is_not_run(sweep, tmp_path, requests, options):
    sweep.write_text(TOLD)
    invoke("sweep", sweep, "--results", tmp_path / "results", "--no-report")
    run_dir = selected_run(tmp_path / "results", sweep, faster_bucket)
    requests.clear()
    (run_dir / "sweep.yaml").write_text(TOLD.replace("own, word", "evil"))
    refused = invoke("confirm", run_dir, "--no-report", *options)
    assert "found another text than the run was measured for" in refused.stderr
    assert (refused.exit_code, requests) == (1, [])
    with pytest.raises(ResultsError, match="found another text"):
        RunWriter.reopen(run_dir)


@pytest.mark.parametrize("digest", ["gone", "forged"])
def test_a_digest_that_was_changed_as_well_helps_nobody(sweep, tmp_path, requests, digest):
    sweep.write_text(TOLD)
    invoke("sweep", sweep, "--results", tmp_path / "results", "--no-report")
    run_dir = selected_run(tmp_path / "results", sweep, faster_bucket)
    requests.clear()
    text = TOLD.replace("own, word", "evil")
    (run_dir / "sweep.yaml").write_text(text)
    manifest = json.loads((run_dir / "run.json").read_text())
    manifest["sweep_sha256"] = sweep_digest(text) if digest == "forged" else None
    (run_dir / "run.json").write_text(json.dumps(manifest))
    assert invoke("confirm", run_dir, "--no-report").exit_code == 2
    assert requests == []


@pytest.mark.parametrize("mark", ["SHA256SUMS", "dossier.json"])
@pytest.mark.parametrize(
    "way", ["below", "link to the file", "link to the folder", "directory", "directory over a link"]
)
def test_no_way_around_leads_out_of_a_dossier(tmp_path, requests, mark, way):
    dossier, own = tmp_path / "dossier", tmp_path / "own"
    code = dossier / "deep" / "code"
    code.mkdir(parents=True)
    own.mkdir()
    (dossier / mark).write_text("")
    path = own / "own.yaml"
    text = SWEEP
    if way == "below":
        path = code / "own.yaml"
    elif way == "link to the file":
        (code / "their.yaml").write_text(SWEEP)
        path.symlink_to(code / "their.yaml")
    elif way == "link to the folder":
        (own / "link").symlink_to(code)
        path = own / "link" / "own.yaml"
    elif way == "directory":
        text = SWEEP.replace("entry:", "directory: ../dossier/deep/code, entry:")
    else:
        (own / "link").symlink_to(code)
        text = SWEEP.replace("entry:", "directory: link, entry:")
    path.write_text(text)
    refused = invoke("sweep", path, "--results", tmp_path / "results", "--no-report")
    assert (refused.exit_code, requests) == (2, [])
    assert f"{dossier / mark} is there" in refused.stderr
    assert invoke("sweep", path, "--results", tmp_path / "results", "--no-report", "--allow-commands").exit_code == 3
