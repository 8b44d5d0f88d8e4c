"""Selected and confirmed gains stand side by side wherever a run is shown."""

from __future__ import annotations

import io
from dataclasses import replace

import polars as pl
import pytest
import vl_convert

from rtxscale.analysis.tables import CONFIRMED
from rtxscale.report.charts.confirmed import confirmed_figure
from rtxscale.report.charts.export import picture_spec
from rtxscale.report.charts.figures import figures
from rtxscale.report.page import page
from rtxscale.report.scripts import vega_lite_version
from rtxscale.report.tables.conclusions import best_table, confirmed_table
from rtxscale.report.tables.evidence import method
from rtxscale.report.terminal import show_conclusions
from rtxscale.report.trial_counts import trial_counts

ROWS = [
    {
        "gpus": 2,
        "curve": "weak",
        "cell_id": "a",
        "default_cell_id": "b",
        "label": "gpus 2, ring, 8 channels",
        "visits": 4,
        "gain": 0.0412,
        "gain_low": 0.032,
        "gain_high": 0.05,
        "p_holm": 0.001,
        "selected_gain": 0.062,
        "verdict": "confirmed faster",
    },
    {
        "gpus": 4,
        "curve": "weak",
        "cell_id": "c",
        "default_cell_id": "d",
        "label": "gpus 4, tree",
        "visits": 0,
        "gain": None,
        "gain_low": None,
        "gain_high": None,
        "p_holm": None,
        "selected_gain": 0.01,
        "verdict": "needs >= 2 visits",
    },
]


@pytest.fixture
def confirmed(h200):
    return replace(h200, conclusions=replace(h200.conclusions, confirmed=pl.DataFrame(ROWS, schema=CONFIRMED)))


def test_the_table_has_both_gains(confirmed):
    table = confirmed_table(confirmed.conclusions, "GPUs")
    assert table.columns == ("GPUs", "setting", "selected", "confirmed", "visits", "verdict")
    assert table.rows == [
        ("2", "ring, 8 channels", "+6.2 %", "+4.1 % (+3.2 to +5.0)", "4", "confirmed faster"),
        ("4", "tree", "+1.0 %", "–", "0", "needs >= 2 visits"),  # noqa: RUF001  the dash of tables
    ]


def test_without_a_confirmation_the_best_cells_say_how_to_get_one(h200, confirmed):
    assert confirmed_table(h200.conclusions, "GPUs") is None
    best = h200.conclusions.best.with_columns(verdict=pl.lit("measured faster than the default (unconfirmed)"))
    assert "rtxscale confirm RUN" in best_table(replace(h200.conclusions, best=best), "GPUs").note
    assert best_table(replace(confirmed.conclusions, best=best), "GPUs").note == ""


def test_the_terminal_shows_both_in_80_columns(confirmed):
    stream = io.StringIO()
    show_conclusions(confirmed.conclusions, stream=stream)
    (line,) = [line for line in stream.getvalue().splitlines() if "+4.1 % (+3.2 to +5.0)" in line]
    assert "+6.2 %" in line
    assert len(line) <= 80


def test_the_page_has_the_table_unfolded_and_the_chart(confirmed, monkeypatch):
    from rtxscale.report import page as module

    monkeypatch.setattr(module, "vega_bundle", lambda: "")
    text = page(confirmed.run, confirmed.conclusions)
    section = text.split('<section id="best">')[1].split("</section>")[0]
    assert "<details" not in section
    assert "Gains over the default" in section
    assert 'id="spec-confirmed"' in section


def test_the_chart_shows_every_known_gain(confirmed):
    figure = next(figure for figure in figures(confirmed.run, confirmed.conclusions) if figure.key == "confirmed")
    assert [(row["series"], round(row["change"], 2)) for row in figure.datasets["gains"]] == [
        ("selected", 6.2),
        ("confirmed", 4.12),
        ("selected", 1.0),
    ]
    assert "cut" not in figure.caption
    svg = vl_convert.vegalite_to_svg(picture_spec(figure), vl_version=vega_lite_version())
    assert "ring, 8 channels (2 GPUs, weak)" in svg
    assert "NaN" not in svg


def test_a_bar_that_leaves_the_chart_is_said_to():
    rows = [ROWS[0] | {"gain_low": -0.6, "gain_high": 2.5}]
    figure = confirmed_figure(pl.DataFrame(rows, schema=CONFIRMED), "GPUs")
    assert "bars that leave the chart are cut" in figure.caption
    assert confirmed_figure(pl.DataFrame(schema=CONFIRMED), "GPUs") is None


def test_the_method_counts_the_confirmation_apart(h200):
    assert "Confirmation" not in dict(method(h200.run, trial_counts(h200.run)))
    assert dict(method(h200.run, trial_counts(h200.run)))["Visits"].startswith("2, in ")
