"""`rtxscale confirm` hands exactly what the run has selected to the sweep's machinery, into exactly that run."""

import json

import pytest
from typer.testing import CliRunner

from cli.selected_runs import CPUS, faster_bucket, selected_run
from rtxscale.cli.main import app
from rtxscale.run import authentication
from rtxscale.run import sweep as run_sweep
from rtxscale.run.agenda import remaining

SWEEP = """\
name: tiny
question: Which bucket?
study: weak
workload: {kind: vision, model: resnet18, image_size: 32, precision: fp32, batch_per_gpu: 2}
axes:
  gpus: [1, 2]
  ddp.bucket_mib: [25, 50]
hardware: {device: cpu}
"""


@pytest.fixture
def sweep(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(SWEEP)
    return path


@pytest.fixture
def requests(monkeypatch):
    """What is asked of `run.sweep`, which measures nothing here."""
    asked = []

    def execute(request):
        asked.append(request)
        return run_sweep.SweepResult(
            run_dir=request.run_dir, total=8, finished=5, interrupted="limit", outcomes={"ok": 5}
        )

    monkeypatch.setattr(run_sweep, "execute", execute)
    monkeypatch.setattr(authentication, "settle", lambda *_: None)
    return asked


def invoke(*words):
    return CliRunner().invoke(app, ["confirm", *map(str, words)])


def test_the_selection_goes_into_the_run_that_is_named(sweep, tmp_path, requests):
    older = selected_run(tmp_path / "results", sweep, faster_bucket)
    selected_run(tmp_path / "results", sweep, lambda _: 1.0)
    result = invoke(older.name, "--results", tmp_path / "results", "--visits", 3, "--limit-minutes", 9, "--no-report")
    assert (result.exit_code, result.output.splitlines()[-1]) == (3, str(older))
    (request,) = requests
    assert (request.run_dir, request.limit_minutes, request.fresh) == (older, 9.0, False)
    plan = request.plan(request.sweep, CPUS)
    assert [session.visit for session in plan.sessions] == [1, 2, 3]
    buckets = [[planned.axes["ddp.bucket_mib"] for planned in session.trials] for session in plan.sessions]
    assert buckets == [[25, "auto", "auto", 25], ["auto", 25, 25, "auto"], [25, "auto", "auto", 25]]
    with run_sweep.writer_of(request) as writer:
        assert writer.run_dir == older
        assert len(remaining(plan, writer.attempts())) == 12
    assert not any("not finished" in note for note in plan.notes)


def test_the_report_follows_unless_it_is_not_wanted(sweep, tmp_path, requests, monkeypatch):
    from rtxscale.cli import confirm

    run_dir = selected_run(tmp_path / "results", sweep, faster_bucket)
    reported = []
    monkeypatch.setattr(confirm, "report_if_possible", reported.append)
    invoke(run_dir, "--no-report")
    assert reported == []
    invoke(run_dir)
    assert reported == [run_dir]
    assert len(requests) == 2


@pytest.mark.parametrize(
    ("throughput", "why"),
    [
        (
            lambda cell: 100.0 if cell.ddp.bucket_mib == "auto" else 90.0,
            "the default is the fastest measured everywhere",
        ),
        (lambda _: None, "no cell has a throughput yet"),
        (
            lambda cell: 100.0 if cell.ddp.bucket_mib == "auto" else None,
            "no two cells with a result differ in the communication (nccl.*, ddp.*) alone",
        ),
    ],
)
def test_nothing_to_confirm_is_said_and_no_failure(sweep, tmp_path, requests, throughput, why):
    run_dir = selected_run(tmp_path / "results", sweep, throughput)
    result = invoke("--results", tmp_path / "results")
    assert (result.exit_code, result.output.splitlines()[-1]) == (0, str(run_dir))
    assert f"nothing to confirm: {why}" in result.output
    assert requests == []


def test_another_sweep_file_in_the_run_is_refused(sweep, tmp_path, requests):
    run_dir = selected_run(tmp_path / "results", sweep, faster_bucket)
    (run_dir / "sweep.yaml").write_text(SWEEP.replace("[25, 50]", "[25, 60]"))
    result = invoke(run_dir)
    assert result.exit_code == 1
    assert "the run was measured for" in result.stderr
    assert requests == []


def test_a_run_that_is_not_there_and_no_visits_are_refused(tmp_path, requests):
    assert invoke("latest", "--results", tmp_path).exit_code == 2
    assert invoke("latest", "--results", tmp_path, "--visits", 0).exit_code == 2
    assert requests == []


def test_show_has_the_confirmed_gains_as_data(sweep, tmp_path):
    run_dir = selected_run(tmp_path / "results", sweep, faster_bucket)
    result = CliRunner().invoke(app, ["show", str(run_dir), "--json"])
    assert json.loads(result.output)["confirmed"] == []
