"""The method box: why a measure is not publishable, and which criterion ended the warm-ups."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import polars as pl
import pytest

from rtxscale.report.tables.conclusions import cells_table
from rtxscale.report.tables.evidence import method, outside_words, profile_words, steady_words, study_words
from rtxscale.report.trial_counts import trial_counts
from rtxscale.spec.cell import Cell, Measure

GATED = "halves differ by +0.10%, drift -0.20%; temperature +0.10 degC/min (at most 0.5), SM clock +0.00%/min"
SILENT = "halves differ by +0.10%, drift -0.20%; temperature not readable, SM clock +0.00%/min (at most 0.20%)"


def test_time_outside_measurement_is_that_of_warm_trials():
    rows = [(0, 9.0, 8.0), (1, 0.5, 0.25), (2, 0.75, 0.25), (3, None, 4.0)]
    frame = pl.DataFrame(rows, schema=["position", "outside_s", "build_s"], orient="row")
    said = outside_words(frame)
    assert said.startswith("0.625 s of a warm trial that are neither soak, warm-up, window, collectives")
    assert said.endswith("nor run to a target, of which building 0.250 s (medians)")
    assert outside_words(frame.head(1)) == "unknown"


def trials(*measures, device="cuda", criteria=(GATED,)):
    cells = [Cell.model_validate({"workload": {"kind": "vision", "batch_per_gpu": 2}, "measure": m}) for m in measures]
    return pl.DataFrame(
        {
            "profile": [cell.measure.profile for cell in cells],
            "cell_json": [cell.canonical() for cell in cells],
            "device": device,
            "steady_criterion": [criteria[place % len(criteria)] for place in range(len(cells))],
        },
        schema_overrides={"steady_criterion": pl.String},
    )


@pytest.mark.parametrize(
    ("measures", "words"),
    [
        ([{}], "quick: not publishable"),
        ([{"profile": "published"}], "published"),
        ([{"profile": "published", "soak_s": 900}], "published"),
        (
            [{"profile": "published", "soak_s": 5}] * 2,
            "published: not publishable: soak 5 s, published needs 600 s",
        ),
        ([{"profile": "published"}, {}], "published, quick: not publishable"),
    ],
)
def test_the_profile_says_what_it_lacks(measures, words):
    assert profile_words(trials(*measures)) == words


def test_cells_of_another_version_are_not_read_into():
    frame = trials({"profile": "published"}).with_columns(cell_json=pl.lit('{"measure":{"of_tomorrow":1}}'))
    assert profile_words(frame) == "published"
    assert steady_words(frame) == f"recorded for example: {GATED}"


def test_the_criterion_is_stated_and_one_is_shown_as_recorded():
    assert steady_words(trials({"profile": "published"}, {"profile": "published"})) == (
        "step times within 2 % for 60 s; temperature within 0.5 degC/min, SM clock within 0.2 %/min over 180 s on "
        f"every GPU; recorded for example: {GATED}"
    )


def test_cards_that_do_not_tell_their_temperature_are_counted():
    words = steady_words(trials(*[{"profile": "published"}] * 3, criteria=(GATED, SILENT, SILENT)))
    assert "; temperature not readable in 2 of 3 trials; recorded" in words


def test_on_cpus_only_step_times_are_asked_for():
    words = steady_words(trials({}, device="cpu", criteria=("halves differ by +0.10%",)))
    assert words == "step times within 5 % for 1 s; recorded for example: halves differ by +0.10%"


def test_nothing_recorded_is_unknown():
    assert steady_words(trials({}, criteria=(None,))) == "unknown"
    assert Measure().resolved().clock_slope == "off"


def test_an_import_that_declares_no_study_is_not_said_to_be_of_both():
    rows = pl.DataFrame({"study": ["both"], "source": ["imported: t.csv"]})
    assert study_words(rows) == "not declared: curves of either kind, where the rows hold them"
    assert study_words(rows.with_columns(study=pl.lit("weak"))) == "weak"
    assert study_words(rows.with_columns(source=pl.lit(None, pl.String))) == "both"


def test_one_session_is_no_sessions(cpu):
    frame = cpu.run.frame("trials").collect()
    one = frame.filter(pl.col("session_id") == frame["session_id"][0])
    run = SimpleNamespace(frame=lambda _: one.lazy())
    assert dict(method(run, trial_counts(cpu.run)))["Visits"] == "1, in 1 session"
    assert dict(method(cpu.run, trial_counts(cpu.run)))["Visits"].endswith(" sessions")
    cells = replace(cpu.conclusions, cells=cpu.conclusions.cells.with_columns(sessions=pl.lit(1, pl.Int64)))
    assert all(row[-2].endswith(" in 1 session") for row in cells_table(cells, "CPU workers", 9).rows)
