"""The loss budget as a waterfall and as a table: bars that join, intervals where they are, nothing where nothing is."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import polars as pl
import pytest
import vl_convert

from rtxscale.analysis.tables import BUDGET
from rtxscale.report.charts.budget import budget_figures
from rtxscale.report.charts.export import picture_spec
from rtxscale.report.charts.figures import figures
from rtxscale.report.charts.theme import DARK
from rtxscale.report.page import page
from rtxscale.report.scripts import vega_lite_version
from rtxscale.report.tables.budget import budget_table
from rtxscale.report.terminal import show_conclusions

PARTS = {
    "ideal step": (0.0557, 0.0555, 0.0559, ""),
    "compute": (0.0004, 0.0001, 0.0007, ""),
    "stragglers": (-0.0001, None, None, "needs >= 2 visits"),
    "synchronisation": (0.0022, 0.0020, 0.0024, ""),
    "input": (None, None, None, "not applicable: data is resident"),
    "measured step": (0.0582, 0.0580, 0.0584, ""),
}


def budget(*, gpus=(2,), default=True, without=(), label="gpus 2, defaults"):
    rows = [
        {
            "curve": "weak",
            "gpus": count,
            "cell_id": f"c{count}",
            "label": label,
            "is_default": default,
            "part": part,
            "seconds_per_step": None if part in without else seconds,
            "low": low,
            "high": high,
            "share": None if seconds is None else seconds / 0.0582,
            "note": note,
        }
        for count in gpus
        for part, (seconds, low, high, note) in PARTS.items()
    ]
    return pl.DataFrame(rows, schema=BUDGET)


def test_each_part_begins_where_the_one_before_it_ends():
    (figure,) = budget_figures(budget(), "GPUs")
    bars = figure.datasets["parts"]
    assert [bar["part"] for bar in bars] == [part for part in PARTS if part != "input"]
    assert [bar["start"] for bar in bars[1:4]] == pytest.approx([bar["end"] for bar in bars[:3]])
    assert bars[3]["end"] == pytest.approx(bars[4]["end"]), "the parts lead to the measured step"
    assert (bars[0]["start"], bars[4]["start"]) == (0.0, 0.0)
    assert [(bar["label"], bar["side"]) for bar in bars] == [
        ("55.7 ms", "on"),
        ("0.40 ms (0.7 %)", "left"),
        ("-0.10 ms (-0.2 %)", "left"),
        ("2.2 ms (3.8 %)", "left"),
        ("58.2 ms", "on"),
    ]

    assert [bar["kind"] for bar in bars] == ["whole step", "lost", "won back", "lost", "whole step"]
    assert bars[3]["low"] - bars[3]["start"] == pytest.approx(2.0)
    assert bars[2]["low"] is None
    assert "2 GPUs" in figure.title


def test_the_text_of_a_short_bar_stands_where_the_chart_is_empty():
    parts = {"ideal step": 0.010, "compute": 0.005, "synchronisation": 0.035, "measured step": 0.050}
    rows = [
        {"curve": "weak", "gpus": 2, "cell_id": "c", "label": "gpus 2, defaults", "is_default": True, "part": part}
        | {"seconds_per_step": value, "low": None, "high": None, "share": value / 0.05, "note": ""}
        for part, value in parts.items()
    ]
    (figure,) = budget_figures(pl.DataFrame(rows, schema=BUDGET), "GPUs")
    told = {bar["part"]: (bar["side"], bar["at"]) for bar in figure.datasets["parts"]}
    assert told == {
        "ideal step": ("right", 10.0),
        "compute": ("right", 15.0),
        "synchronisation": ("left", 15.0),
        "measured step": ("on", 0.0),
    }


def test_it_is_drawn_and_strict():
    for figure in budget_figures(budget(gpus=(2, 4, 8)), "CPU workers"):
        json.dumps(figure.spec(), allow_nan=False)
        svg = vl_convert.vegalite_to_svg(picture_spec(figure, DARK), vl_version=vega_lite_version())
        assert "synchronisation" in svg
        assert "NaN" not in svg


def test_there_is_no_waterfall_of_other_cells_or_of_unknown_parts():
    assert list(budget_figures(budget(default=False), "GPUs")) == []
    unknown = budget(without=("compute", "stragglers", "synchronisation"))
    assert list(budget_figures(unknown, "GPUs")) == []
    assert list(budget_figures(pl.DataFrame(schema=BUDGET), "GPUs")) == []


def test_page_and_terminal_show_the_parts_with_intervals_and_reasons(h200):
    conclusions = replace(h200.conclusions, budget=budget(label="gpus 2, <b>"))
    text = page(h200.run, conclusions)
    assert 'id="budget"' in text
    assert "budget-weak-2" in [figure.key for figure in figures(h200.run, conclusions)]
    assert "&lt;b&gt;" in text
    shown = io.StringIO()
    show_conclusions(conclusions, stream=shown)
    lines = shown.getvalue().splitlines()
    (line,) = [line for line in lines if "synchronisation" in line and "weak" in line]
    assert line.split()[:6] == ["weak", "2", "synchronisation", "2.20", "(2.00-2.40)", "3.8"]
    assert max(len(line) for line in lines) <= 80
    assert "input: not applicable: data is resident" in " ".join(shown.getvalue().split())


def test_in_brief_other_cells_are_counted_and_without_a_budget_there_is_no_table(h200):
    conclusions = replace(h200.conclusions, budget=pl.concat([budget(), budget(default=False, gpus=(4,))]))
    assert "6 more rows: rtxscale show --csv budget" in budget_table(conclusions, "GPUs", brief=True).note
    assert len(budget_table(conclusions, "GPUs").rows) == 10
    assert budget_table(h200.conclusions, "GPUs") is None
    assert 'id="budget"' not in page(h200.run, h200.conclusions)
