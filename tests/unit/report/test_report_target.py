"""The charts and the table of a time to target: every run is a point, and one that did not get there says so."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import polars as pl
import pytest
import vl_convert

from rtxscale.analysis.targets import target_table as concluded
from rtxscale.report.charts.export import picture_spec
from rtxscale.report.charts.theme import DARK, LIGHT
from rtxscale.report.charts.time_to_target import target_figures
from rtxscale.report.scripts import vega_lite_version
from rtxscale.report.tables.time_to_target import target_table
from rtxscale.results.schema import table

CELL = '{"target":{"max_time_s":60,"metric":"top1","samples":179,"value":0.9}}'
CELLS = {"a": (1, "gpus 1, batch 64 per GPU"), "b": (2, "gpus 2, batch 64 per GPU"), "c": (2, "gpus 2, bf16")}
RUNS = (
    *(("a", 1, True, 30.0), ("a", 2, True, 40.0), ("a", 3, False, 60.0)),
    *(("b", 1, True, 20.0), ("b", 2, False, 60.0)),
    *(("c", 1, False, 60.5), ("c", 2, False, 60.25)),
)


def trials(runs=RUNS, **changes):
    rows = [
        {
            **{"trial_id": f"{cell}{visit}", "attempt": 1, "cell_id": cell, "cell_json": CELL, "outcome": "ok"},
            **{"gpus": CELLS[cell][0], "visit": visit, "repeat": 1, "work_unit": "image"},
            **{"target_reached": reached, "target_s": seconds, "target_steps": 9, "target_work": 100 * seconds},
            **changes,
        }
        for cell, visit, reached, seconds in runs
    ]
    return pl.from_arrow(table("trials", rows))


def targets(of):
    labels = pl.DataFrame(
        [(cell, label) for cell, (_, label) in CELLS.items()], schema=["cell_id", "label"], orient="row"
    )
    return concluded(of, labels)


@pytest.fixture(scope="module")
def drawn():
    return {figure.key: figure for figure in target_figures(trials(), targets(trials()), "GPUs")}


def points(figure, name):
    return [(row["series"], row["gpus"], row["value"]) for row in figure.datasets.get(name, ())]


def test_every_visit_is_a_point_and_those_that_were_stopped_stand_where_they_were(drawn):
    batch = "batch 64 per GPU"
    assert set(points(drawn["target-time"], "reached")) == {(batch, 1, 30.0), (batch, 1, 40.0), (batch, 2, 20.0)}
    stopped = {(batch, 1, 60.0), (batch, 2, 60.0), ("bf16", 2, 60.5), ("bf16", 2, 60.25)}
    assert set(points(drawn["target-time"], "stopped")) == stopped
    assert points(drawn["target-time"], "medians") == [(batch, 1, 40.0)], "half of the others were stopped"
    assert points(drawn["target-work"], "medians") == [(batch, 1, 4000.0)]
    assert {row["text"] for row in drawn["target-time"].datasets["stopped"]} == {
        *("stopped after 60.00 s", "stopped after 60.50 s", "stopped after 60.25 s"),
    }
    assert {row["trial"] for row in drawn["target-work"].datasets["reached"]} == {"a1", "a2", "b1"}


def test_axes_have_units_and_the_caption_says_what_an_arrow_is(drawn):
    time, work = drawn["target-time"], drawn["target-work"]
    axes = [layer["encoding"]["y"]["axis"]["title"] for figure in (time, work) for layer in figure.spec()["layer"]]
    assert set(axes) == {"time to target (s)", "images to target"}
    assert "from first weights to top1 at least 0.9 of up to 179 held-out samples" in time.caption
    assert "for 60 s at most" in time.caption
    assert "Arrows: 4 runs stopped before the target" in time.caption
    arrows = [layer for layer in time.spec()["layer"] if layer["data"]["name"] == "stopped"]
    assert [layer["mark"]["shape"] for layer in arrows] == ["arrow"]


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_they_can_be_drawn_on_paper_and_in_the_dark(drawn, palette):
    for figure in drawn.values():
        assert "<svg" in vl_convert.vegalite_to_svg(picture_spec(figure, palette), vl_version=vega_lite_version())


def test_without_a_target_there_is_no_chart_and_where_all_arrived_no_word_of_arrows():
    none = trials(target_reached=None)
    assert list(target_figures(none, targets(none), "GPUs")) == []
    (time, _) = target_figures(trials(RUNS[:2]), targets(trials(RUNS[:2])), "GPUs")
    assert "Arrows" not in time.caption
    assert "stopped" not in time.datasets


def test_what_does_not_count_and_what_is_no_number_is_not_drawn():
    failed = trials(RUNS[:1], outcome="crashed")
    assert list(target_figures(failed, targets(trials(RUNS[:1])), "GPUs")) == []
    (time,) = target_figures(trials(target_work=None), targets(trials(target_work=None)), "GPUs")
    assert time.key == "target-time"


def test_of_many_settings_some_are_told_apart_and_the_runs_of_others_are_grey():
    cells = [f"c{number}" for number in range(9)]
    rows = [
        {
            **{"trial_id": cell, "attempt": 1, "cell_id": cell, "outcome": "ok", "gpus": 2, "visit": 1, "repeat": 1},
            **{"target_reached": True, "target_s": 20.0 - place, "target_steps": 1, "target_work": 1.0},
        }
        for place, cell in enumerate(cells)
    ]
    made = pl.from_arrow(table("trials", rows))
    labels = pl.DataFrame({"cell_id": cells, "label": [f"gpus 2, {place} channels" for place in range(9)]})
    figure = next(target_figures(made, concluded(made, labels), "GPUs"))
    assert figure.labels == tuple(f"{place} channels" for place in range(8, 2, -1)), "the soonest first"
    assert points(figure, "grey") == [(f"{place} channels", 2, 20.0 - place) for place in range(3)]
    assert figure.caption.endswith("Grey: 3 more settings, their runs that got there.")
    slow = pl.col("target_s") > 18
    made = made.with_columns(target_reached=~slow)
    figure = next(target_figures(made, concluded(made, labels), "GPUs"))
    assert [row[2] for row in points(figure, "grey")] == [18.0]
    assert figure.caption.endswith(
        "Grey: 1 more setting, their runs that got there. Not drawn: 2 more settings without a run that got there."
    )
    made = made.with_columns(target_reached=pl.lit(value=False))
    figure = next(target_figures(made, concluded(made, labels), "GPUs"))
    assert "grey" not in figure.datasets
    assert figure.caption.endswith("no median. Not drawn: 3 more settings without a run that got there.")


def test_of_very_many_runs_some_of_every_cell_are_drawn_and_the_caption_says_how_many():
    runs = [(cell, visit, visit % 3 > 0, float(visit)) for cell in "ab" for visit in range(1, 1201)]
    for figure in target_figures(trials(runs), targets(trials(runs)), "GPUs"):
        assert {name: len(rows) for name, rows in figure.datasets.items()} == {
            **{"reached": 500, "stopped": 500, "medians": 2},
        }
        assert [row["gpus"] for row in figure.datasets["reached"]].count(1) == 250
        assert {1.0, 1199.0} <= {
            row["value"] / (100 if figure.key == "target-work" else 1) for row in figure.datasets["reached"]
        }
        assert "Arrows: 800 runs stopped" in figure.caption
        assert figure.caption.endswith("Drawn, spread evenly: 500 of 1,600 runs that got there and 500 of 800 arrows.")
        assert len(json.dumps(figure.spec())) < 400_000


def test_work_that_is_no_number_is_left_out():
    for work in (math.nan, math.inf):
        (time,) = target_figures(trials(target_work=work), targets(trials(target_work=work)), "GPUs")
        assert time.key == "target-time"
        assert targets(trials(target_work=work))["median_work"].to_list() == [None] * 3


def test_the_axis_goes_beyond_the_largest_mark(drawn):
    for figure, largest in zip(drawn.values(), (60.5, 6050.0), strict=True):
        scales = [layer["encoding"]["y"]["scale"] for layer in figure.spec()["layer"]]
        assert all(scale["domain"] == [0, pytest.approx(1.08 * largest)] for scale in scales)


def test_of_several_targets_the_caption_says_how_many():
    made = trials(RUNS[:4]).with_columns(
        cell_json=pl.when(pl.col("cell_id") == "b").then(pl.lit(CELL.replace("0.9", "0.8"))).otherwise(pl.lit(CELL))
    )
    time = next(target_figures(made, targets(made), "GPUs"))
    assert "from first weights to its own cell's target (2 different ones); lower is better" in time.caption


def test_the_table_says_how_many_got_there_and_that_others_needed_more(cpu):
    found = targets(trials())
    shown = target_table(replace(cpu.conclusions, targets=found), "GPUs")
    assert shown.columns == ("GPUs", "setting", "reached", "median (s)", "median (updates)", "median (images)")
    assert [(row[0], *row[2:4]) for row in shown.rows] == [
        ("1", "2 of 3", "40.0"),
        ("2", "1 of 2", "–"),  # noqa: RUF001
        ("2", "0 of 2", "> 60.2"),
    ]
    assert target_table(cpu.conclusions, "GPUs") is None
