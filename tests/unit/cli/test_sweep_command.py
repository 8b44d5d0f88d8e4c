"""What `rtxscale sweep` says and returns around the sweep itself."""

import errno

import pytest
from report import made_dossiers

from rtxscale.cli import sweep
from rtxscale.run.sweep import SweepResult


def result(**fields):
    return SweepResult(run_dir="/runs/a", **{"total": 10, "finished": 10, "outcomes": {"ok": 10}, **fields})


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, 0),
        ({"finished": 4, "interrupted": "limit"}, 3),
        ({"finished": 4, "interrupted": "SIGINT"}, 130),
        ({"finished": 4, "interrupted": "SIGTERM"}, 143),
        ({"finished": 4, "interrupted": "SIGHUP"}, 129),
        ({"outcomes": {"crashed": 10}}, 1),
        ({"outcomes": {}}, 0),
        ({"endings": {"ok": 1, "crashed": 9}}, 1),
        ({"endings": {"ok": 9, "not_honoured": 1}}, 1),
        ({"endings": {"ok": 9, "unsteady": 1}, "outcomes": {}}, 1),
        ({"endings": {"ok": 7, "oom": 2, "diverged": 1}}, 0),
        ({"finished": 4, "interrupted": "limit", "endings": {"ok": 3, "hang": 1}}, 3),
    ],
)
def test_exit_codes(fields, code):
    assert sweep.exit_code(result(**fields)) == code


def test_a_cut_sweep_says_how_far_it_came_and_how_to_go_on():
    text = "\n".join(sweep.summary(result(finished=4, interrupted="SIGINT", outcomes={"ok": 4, "crashed": 1})))
    assert "4 of 10 trials finished; attempts now: 1 crashed, 4 ok" in text
    assert "the same command again continues where it stopped" in text


def test_time_outside_measurement_says_how_much_of_it_is_building():
    lines = sweep.summary(result(outside_median_s=5.93, build_median_s=5.1))
    assert "outside measurement: 5.93 s per warm trial, of which 5.10 s building (medians)" in lines


def test_a_sweep_that_mostly_failed_says_so():
    text = "\n".join(sweep.summary(result(endings={"ok": 1, "crashed": 8, "oom": 1})))
    assert "8 of the finished trials failed: all ended 8 crashed, 1 ok, 1 oom" in text
    assert "failed" not in "\n".join(sweep.summary(result(endings={"ok": 9, "oom": 1})))


def test_at_its_end_a_sweep_says_how_many_of_the_planned_trials_are_finished(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("rtxscale.report.page.vega_bundle", lambda: "")
    run = made_dossiers.golden_run(tmp_path)
    sweep.report_if_possible(run.run_dir)
    said = " ".join(capsys.readouterr().out.split())
    assert "Incomplete: 169 of 186 planned trials are finished, 169 count (169 attempts)." in said
    assert said.endswith("report.html")


def test_a_full_disk_at_the_report_takes_nothing_away(monkeypatch, capsys, tmp_path):
    def full(_run_dir):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sweep, "_report", full)
    sweep.report_if_possible(tmp_path)
    said = capsys.readouterr().err
    assert "No space left on device" in said
    assert f"rtxscale report {tmp_path}" in said
