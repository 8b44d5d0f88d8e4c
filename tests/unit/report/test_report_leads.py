"""The sentences above a section's tables: what columns mean, how many signals there are, what was not measured."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from rtxscale.report.dossier.unknowns import not_measured, unknown_table
from rtxscale.report.page import with_code
from rtxscale.report.tables.conclusions import Table, scaling_words
from rtxscale.report.tables.meaning import sanity_words
from rtxscale.spec.declare import Declaration


def test_what_could_have_been_measured_is_said_with_the_way_to_it(golden, empty):
    _, conclusions = golden
    assert not_measured(conclusions) == (
        "Not measured in this run: the loss budget (`measure.loss_budget: true`), drift within sessions "
        "(`sentinels: auto`), the selected cells once more (`rtxscale confirm RUN`)."
    )
    assert not_measured(empty.conclusions) == "", "nothing was trained"
    some = pl.DataFrame({"a": [1]})
    assert not_measured(replace(conclusions, budget=some, drift=some, confirmed=some)) == ""


def test_what_only_a_dossier_holds_is_not_unknown_to_a_report(golden):
    texts = [row[0] for row in unknown_table(*golden, Declaration()).rows]
    assert "Cooler of the cards" in texts
    assert not any(text.startswith("Raw tables") for text in texts)


def test_columns_are_explained_in_the_words_of_the_machine():
    assert scaling_words("GPUs").startswith("Efficiency: throughput per GPU over that of the base.")
    assert "what each CPU worker beyond the base adds" in scaling_words("CPU workers")


def test_sanity_signals_are_counted_by_status():
    rows = pl.DataFrame({"status": ["context", "outside", "as expected", "context"]})
    assert sanity_words(rows) == (
        "4 sanity signals: 1 as expected, 2 whose conditions this run does not meet, 1 outside."
    )
    assert sanity_words(rows.head(1)) == "1 sanity signal: 1 whose conditions this run does not meet."
    assert sanity_words(rows.clear()) == ""


def test_an_interval_stays_on_one_line_and_other_dashes_do_not():
    assert with_code("0.93 (0.91-0.94), 2026-12-01, g1-64f3-v1") == (
        '0.93 (<span class="whole">0.91-0.94</span>), 2026-12-01, g1-64f3-v1'
    )


def test_columns_of_short_texts_are_not_broken():
    table = Table(key="t", title="", columns=("a", "b"), rows=[("not applicable", "x" * 17), ("–", "y")])  # noqa: RUF001  the dash of tables
    assert table.whole == {"a"}
    assert replace(table, rows=[]).whole == frozenset()
