"""Drift on the page and in the terminal: the worst session first, with its numbers, its threshold and its line."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

import polars as pl
import pytest
import vl_convert

from rtxscale.analysis.tables import DRIFT, SENTINELS
from rtxscale.report import page as page_module
from rtxscale.report.charts.drift import drift_figure
from rtxscale.report.charts.export import picture_spec
from rtxscale.report.charts.figures import figures
from rtxscale.report.charts.theme import DARK
from rtxscale.report.page import page
from rtxscale.report.scripts import vega_lite_version
from rtxscale.report.tables.conclusions import drift_table, outcomes_table
from rtxscale.report.terminal import show_conclusions

from .conftest import HOSTILE

QUIET, DRIFTING, UNKNOWN = "g2-aaaaaaaa-v1-19ad0c5e1f2", "g2-bbbbbbbb-v1-19ad0c5f000", "g1s1-cccccccc-v1-19ad0c60000"
DRIFTS = [
    {"session_id": QUIET, "sentinels": 3, "minutes": 31.0, "drift": 0.004, "spread": 0.012, "verdict": "within"},
    {"session_id": DRIFTING, "sentinels": 2, "minutes": 12.5, "drift": -0.061, "spread": 0.065, "verdict": "drifting"},
    {"session_id": UNKNOWN, "sentinels": 1, "verdict": "needs >= 2 sentinels"},
]
VALUES = [(QUIET, 1, 0.0, 1000.0), (QUIET, 2, 15.0, 1012.0), (QUIET, 3, 31.0, 1004.0)]
VALUES += [(DRIFTING, 1, 0.0, 1065.0), (DRIFTING, 3, 12.5, 1000.0), (UNKNOWN, 1, 0.0, 500.0)]


def frames(rename=str, more=0, unit="image"):
    """Both frames, session ids put through `rename`, with `more` further quiet sessions."""
    drifts = [{**row, "session_id": rename(row["session_id"])} for row in DRIFTS]
    values = [(rename(session), *rest) for session, *rest in VALUES]
    for number in range(more):
        drifts.append({**DRIFTS[0], "session_id": f"more-{number}", "spread": 0.001})
        values += [(f"more-{number}", 1, 0.0, 1000.0), (f"more-{number}", 3, 9.0, 1001.0)]
    mean = {
        name: sum(v for s, *_, v in values if s == name) / sum(s == name for s, *_ in values) for name, *_ in values
    }
    sentinels = [
        {
            "session_id": session,
            "gpus": 2,
            "visit": 1,
            "trial_id": "abc",
            "place": place,
            "minutes": minutes,
            "quantity": "throughput",
            "value": value,
            "unit": unit,
            "change": value / mean[session] - 1,
        }
        for session, place, minutes, value in values
    ]
    shared = {"gpus": 2, "visit": 1, "threshold": 0.05}
    return {
        "drift": pl.DataFrame([{**shared, **row} for row in drifts], schema=DRIFT),
        "sentinels": pl.DataFrame(sentinels, schema=SENTINELS),
    }


def printed(conclusions):
    stream = io.StringIO()
    show_conclusions(conclusions, stream=stream)
    return stream.getvalue()


@pytest.fixture
def small_bundle(monkeypatch):
    monkeypatch.setattr(page_module, "vega_bundle", lambda: "window.vegaEmbed=null;")


def test_the_table_has_the_largest_spread_first_with_its_threshold(h200):
    table = drift_table(replace(h200.conclusions, **frames()), "GPUs")
    assert table.columns == (
        "session",
        "GPUs",
        "visit",
        "sentinels",
        "length",
        "drift",
        "spread",
        "threshold",
        "verdict",
    )
    assert table.rows == [
        (DRIFTING, "2", "1", "2", "12 min 30 s", "-6.1 %", "6.5 %", "5.0 %", "drifting"),
        (QUIET, "2", "1", "3", "31 min 0 s", "+0.4 %", "1.2 %", "5.0 %", "within"),
        (UNKNOWN, "2", "1", "1", "–", "–", "–", "5.0 %", "needs >= 2 sentinels"),  # noqa: RUF001  as tables show it
    ]


def test_the_terminal_shows_the_worst_in_eighty_columns_and_says_where_the_rest_is(h200):
    text = printed(replace(h200.conclusions, **frames(more=9)))
    (row,) = [line for line in text.splitlines() if line.startswith(DRIFTING)]
    assert row.split() == [DRIFTING, "12", "min", "30", "s", "-6.1", "%", "6.5", "%", "5.0", "%", "drifting"]
    assert max(map(len, text.splitlines())) <= 80
    assert "6 more sessions: rtxscale show --csv drift" in text
    assert "Drift within sessions" not in printed(h200.conclusions)


def test_sentinels_are_told_from_the_sweeps_trials_among_the_outcomes(h200):
    outcomes = h200.conclusions.outcomes
    sentinels = outcomes.head(1).with_columns(stage=pl.lit("sentinel"), trials=pl.lit(6, pl.Int64))
    table = outcomes_table(replace(h200.conclusions, outcomes=pl.concat([outcomes, sentinels])))
    assert [row[:2] for row in table.rows] == [("ok", "362"), ("oom", "1"), ("ok (sentinel)", "6")]


def test_the_chart_shows_each_session_against_its_mean(h200):
    figure = drift_figure(**frames())
    assert figure.labels == (DRIFTING, QUIET), "a session with one sentinel has no line"
    told = figure.datasets["told"]
    changes = [(row["time"], round(row["change"], 3)) for row in told if row["series"] == DRIFTING]
    assert changes == [(0.0, 3.148), (12.5, -3.148)]
    assert [row["value_text"] for row in told[:2]] == ["1,000 images/s", "1,012 images/s"]
    assert [row["place"] for row in told] == ["start", "middle", "end", "start", "end"]
    assert "1 of 2 sessions with two or more sentinels drifts by more than the threshold" in figure.caption
    text = json.dumps(figure.spec(), allow_nan=False)
    assert "change from the session's mean (%)" in text
    assert "minutes since the session's first sentinel" in text
    assert all(re.fullmatch(r"[a-z_]+", name) for name in re.findall(r'"field": "([^"]+)"', text))
    svg = vl_convert.vegalite_to_svg(picture_spec(figure, DARK), vl_version=vega_lite_version())
    assert figure.title in svg
    assert "NaN" not in svg


def test_short_sessions_are_told_in_seconds():
    short = frames()
    short["sentinels"] = short["sentinels"].with_columns(pl.col("minutes") / 60)
    figure = drift_figure(**short)
    assert [row["time"] for row in figure.datasets["told"] if row["series"] == DRIFTING] == [0.0, pytest.approx(12.5)]
    assert "seconds since the session's first sentinel" in json.dumps(figure.spec())


def test_a_bandwidth_keeps_its_unit():
    assert drift_figure(**frames(unit="GB/s")).datasets["told"][0]["value_text"] == "1,000 GB/s"


def test_of_many_sessions_the_quiet_ones_are_grey():
    figure = drift_figure(**frames(more=9))
    assert figure.labels[:2] == (DRIFTING, QUIET)
    assert len(figure.labels) == 8
    assert len({row["series"] for row in figure.datasets["grey"]}) == 3
    assert "Grey: 3 more sessions" in figure.caption


def test_without_sentinels_there_is_neither_chart_nor_table(h200):
    assert drift_figure(h200.conclusions.drift, h200.conclusions.sentinels) is None
    only = frames()
    assert drift_figure(only["drift"].tail(1), only["sentinels"].tail(1)) is None
    assert drift_table(h200.conclusions, "GPUs") is None


def test_the_page_has_its_section(h200, small_bundle):
    conclusions = replace(h200.conclusions, **frames())
    assert "drift" in [figure.key for figure in figures(h200.run, conclusions)]
    text = page(h200.run, conclusions)
    assert '<section id="drift">' in text
    assert DRIFTING in text
    assert '<section id="drift">' not in page(h200.run, h200.conclusions)


def test_hostile_names_of_sessions_are_text(h200, small_bundle):
    conclusions = replace(h200.conclusions, **frames(rename=lambda name: f"{name[:4]}\x1b[31m{HOSTILE}"))
    text = page(h200.run, conclusions)
    assert "<script>alert" not in text
    specs = re.findall(r'<script type="application/json" id="spec-drift">(.*?)</script>', text, re.DOTALL)
    assert len(json.loads(specs[0])["datasets"]["told"]) == 5
    shown = printed(conclusions)
    assert shown.replace("\n", "").isprintable()
    assert max(map(len, shown.splitlines())) <= 80
