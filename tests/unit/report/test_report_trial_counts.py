"""Planned, finished, counted, attempts, sentinels: one count of each, and an unfinished run looks unfinished."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import polars as pl
import pytest

from rtxscale.analysis.conclude import conclude
from rtxscale.devices.inventory import Inventory, Node
from rtxscale.errors import BadInput
from rtxscale.plan.expand import make_plan
from rtxscale.report import page as page_module
from rtxscale.report.bounds import told_bounds
from rtxscale.report.key_numbers import key_numbers
from rtxscale.report.notebook import OpenedRun
from rtxscale.report.page import page
from rtxscale.report.planned_machine import planned_machine
from rtxscale.report.tables.conclusions import effects_table
from rtxscale.report.terminal import show_conclusions
from rtxscale.report.trial_counts import TrialCounts, counts_words, trial_counts
from rtxscale.results.read import Run
from rtxscale.results.schema import table
from rtxscale.results.write import RunWriter
from rtxscale.spec.load import parse_sweep

from . import made_dossiers, made_runs

SWEEP = """\
name: two
question: How well?
study: weak
sentinels: "off"
visits: 2
workload: {kind: vision, model: resnet18, batch_per_gpu: 8, precision: fp32}
hardware: {device: cpu}
axes: {gpus: [1, 2]}
"""
UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
NASTY = "a\x1b[31mred\x07\x00\u202eevil\u2066x\x85y"


def printed(conclusions, counts):
    stream = io.StringIO()
    show_conclusions(conclusions, stream=stream, counts=counts)
    return " ".join(stream.getvalue().split())


def test_a_run_that_lacks_trials_looks_incomplete_everywhere(golden, monkeypatch):
    """The sweep asks for 93 points in 2 visits on two cards; 169 trials were measured before it was stopped."""
    run, conclusions = golden
    counts = trial_counts(run)
    assert counts == TrialCounts(planned=186, finished=169, counted=169, attempts=169, sentinels=0)
    words = "Incomplete: 169 of 186 planned trials are finished, 169 count (169 attempts)."
    assert counts_words(counts) == words
    assert words in printed(conclusions, counts)
    monkeypatch.setattr(page_module, "vega_bundle", lambda: "")
    html = page(run, conclusions)
    assert "incomplete run" in html.split("</header>")[0]
    assert "of 186 planned: incomplete" in html.split("</header>")[0]
    assert words in html


def planned_rows():
    """What the sweep plans on two cores, from the plan itself: a row a trial."""
    plan = make_plan(parse_sweep(SWEEP, "s"), Inventory(nodes=(Node(node_id="n", cpus=2),)))
    return [
        {
            "trial_id": one.trial_id,
            "attempt": 1,
            "cell_id": one.trial.cell.cell_id,
            "session_id": f"s{one.trial.cell.gpus}-{one.trial.visit}",
            "visit": one.trial.visit,
            "repeat": 1,
            "slot": 0,
            "stage": one.trial.stage,
            "cell_json": one.trial.cell.canonical(),
            "gpus": one.trial.cell.gpus,
            "device": "cpu",
            "threads": 1,
            "outcome": "ok",
            "throughput_per_s": 10.0 * one.trial.cell.gpus,
        }
        for one in plan.trials
    ]


def made(root, rows, cpus="2"):
    facts = [{"environment_id": "e", "node": "n", "subject": "host", "name": "cpus usable", "value": cpus}]
    with RunWriter.open(root, parse_sweep(SWEEP, "s"), SWEEP, fresh=True) as writer:
        writer.commit({"trials": table("trials", rows), "environment": table("environment", facts)})
        return Run.open(writer.run_dir)


def test_attempts_sentinels_and_failures_are_no_trials(tmp_path):
    rows = planned_rows()
    assert len(rows) == 4
    again = {**rows[0], "attempt": 2}
    first = {**rows[0], "outcome": "unsteady", "throughput_per_s": None}
    oom = {**rows[1], "outcome": "oom", "throughput_per_s": None}
    once = {**rows[2], "outcome": "crashed", "throughput_per_s": None}
    sentinel = {**rows[3], "trial_id": "f" * 12, "stage": "sentinel"}
    retried = {**sentinel, "attempt": 2}
    counts = trial_counts(made(tmp_path, [first, again, oom, once, {**sentinel, "outcome": "unsteady"}, retried]))
    assert counts == TrialCounts(planned=4, finished=2, counted=1, attempts=4, sentinels=1), "a crash is tried again"
    assert counts_words(counts) == (
        "Incomplete: 2 of 4 planned trials are finished, 1 counts (4 attempts; 1 sentinel beside them)."
    )


def test_a_complete_run_is_not_called_incomplete_and_an_unknown_plan_is_said(tmp_path):
    rows = planned_rows()
    assert counts_words(trial_counts(made(tmp_path / "a", rows))).startswith("4 of 4 planned trials")
    stranger = trial_counts(made(tmp_path / "b", [{**rows[0], "trial_id": "f" * 12}]))
    assert (stranger.planned, stranger.complete) == (None, None), "the plan lacks what was measured"
    assert "how many were planned is not known" in counts_words(stranger)


def test_rows_that_are_there_twice_are_no_attempts_and_are_said(tmp_path):
    rows = planned_rows()
    run = made(tmp_path, rows)
    twice = pl.concat([run.frame("trials"), run.frame("trials")])
    counts = trial_counts(replace_frame(run, trials=twice))
    assert (counts.attempts, counts.finished, counts.rows_again) == (4, 4, 4)
    assert counts_words(counts).endswith("4 count (4 attempts; 4 further rows repeat them and are left out).")


def test_an_imported_trial_is_not_tried_again(tmp_path):
    rows = [{**row, "source": "imported: a.csv"} for row in planned_rows()]
    ended = [rows[0], {**rows[1], "outcome": "crashed"}, {**rows[2], "outcome": "cancelled"}]
    run = replace(made(tmp_path, ended), sweep_text="# Not a sweep")
    assert counts_words(trial_counts(run)) == "2 imported trials are finished, 1 counts (3 attempts)."


def test_without_an_environment_the_plan_is_that_of_the_machine_that_trials_name(golden, tmp_path):
    """There may have been more cards than trials ran on, so nothing is called complete."""
    run = made_dossiers.golden_run(tmp_path / "golden", environment=[])
    counts = trial_counts(run)
    assert counts == replace(trial_counts(golden[0]), at_least=True)
    assert counts.complete is False
    assert counts_words(counts).startswith("Incomplete: 169 of at least 186 planned trials are finished")
    (trials,) = [one for one in key_numbers(golden[1], "GPUs", counts) if one.label == "trials finished"]
    assert trials.detail == "of at least 186 planned: incomplete, 169 count"
    rows = planned_rows()
    all_there = trial_counts(made(tmp_path / "cpu", rows, cpus="many"))
    assert (all_there.planned, all_there.finished, all_there.complete) == (4, 4, None)
    assert "Incomplete" not in counts_words(all_there)


def test_a_machine_that_nothing_names_is_not_known(golden):
    run, _ = golden
    trials = run.frame("trials").collect()
    nothing = replace_frame(run, environment=run.frame("environment").clear())
    assert planned_machine(nothing, trials).inventory.describe() == "2x NVIDIA H200"
    assert planned_machine(nothing, trials.with_columns(gpu_uuids=pl.lit(None, pl.List(pl.String)))) is None
    two_models = pl.lit(["NVIDIA H200", "NVIDIA H100"])
    assert planned_machine(nothing, trials.with_columns(device_names=two_models)) is None
    nodes = pl.when(pl.col("gpus") == 2).then(pl.lit(["a", "b"])).otherwise(pl.lit(["a"]))
    apart = planned_machine(nothing, trials.filter(slot=0).with_columns(node_names=nodes)).inventory
    assert [(node.node_id, len(node.gpus)) for node in apart.nodes] == [("a", 1), ("b", 1)]


def replace_frame(run, **frames):
    """The run with some of its tables given."""

    class Changed(Run):
        def frame(self, name):
            return frames[name] if name in frames else super().frame(name)

    return Changed(**vars(run))


def test_a_sweep_that_cannot_be_read_is_said(tmp_path):
    run = replace(made(tmp_path, planned_rows()), sweep_text="name: [")
    remark = conclude(run).remarks[0]
    assert remark.startswith("The run's sweep.yaml is no sweep that this rtxscale can read")
    assert trial_counts(run).planned is None


def test_bounds_that_say_nothing_leave_as_null_with_words(golden):
    _, conclusions = golden
    (row,) = told_bounds(conclusions.best).filter(pl.col("gpus") == 2).to_dicts()
    assert row["gain"] == pytest.approx(0.1818, abs=1e-4)
    assert (row["gain_low"], row["gain_high"]) == (None, None)
    assert row["interval_note"] == "gain: interval wider than x10: more visits"
    effects = told_bounds(conclusions.effects)
    kept = effects.filter(pl.col("interval_note").is_null())
    assert (kept["ratio_high"] <= 10 * kept["ratio_low"]).all()
    assert kept.height > 5
    assert told_bounds(conclusions.outcomes).equals(conclusions.outcomes)


def test_an_effect_whose_interval_excludes_one_and_is_not_separable_is_explained(golden, h200):
    _, conclusions = golden
    odd = conclusions.effects.filter(
        ((pl.col("ratio_low") > 1) | (pl.col("ratio_high") < 1)) & (pl.col("verdict") == "not separable")
    )
    assert odd.height == 3
    assert effects_table(conclusions, "GPUs").note.startswith("3 intervals exclude 1 where the verdict")
    assert "corrected by Holm for all comparisons" in printed(conclusions, None)
    told = replace(h200.conclusions, effects=h200.conclusions.effects.filter(pl.col("verdict") == "slower"))
    assert effects_table(told, "GPUs").note == ""


@pytest.fixture(scope="module")
def nasty(tmp_path_factory):
    return made_runs.h200_run(tmp_path_factory.mktemp("nasty"), visits=1, hostile=NASTY)


def test_nothing_in_a_page_is_obeyed_instead_of_shown(nasty, monkeypatch):
    monkeypatch.setattr(page_module, "vega_bundle", lambda: "")
    html = page(nasty.run, nasty.conclusions)
    assert UNSEEN.findall(html) == []
    assert (
        r"a\x1b[31mred\x07\x00\u202eevil\u2066x\x85y" in dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", html))["On"]
    )


def test_a_chart_that_is_not_there_is_answered_with_those_that_are(nasty):
    charts = OpenedRun(run=nasty.run).charts
    with pytest.raises(BadInput, match=r"found no chart 'nosuch'; expected one of weak-throughput, weak-efficiency"):
        charts["nosuch"]
    assert "nosuch" not in charts
