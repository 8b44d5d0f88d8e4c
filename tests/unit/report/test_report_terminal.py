"""Terminal output: narrow, plain when piped, the same numbers as the page."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import polars as pl
import pytest

from rtxscale.analysis.tables import FITS, INTERACTIONS, MFU
from rtxscale.report.numbers import NOTHING, gain, interval, number, short
from rtxscale.report.tables.conclusions import Table, bandwidth_tables, cells_table, effects_table
from rtxscale.report.tables.meaning import fits_table, interactions_table, mfu_table
from rtxscale.report.terminal import show_conclusions, show_table


def printed(made):
    stream = io.StringIO()
    show_conclusions(made.conclusions, stream=stream)
    return stream.getvalue()


@pytest.mark.parametrize("name", ["h200", "cpu", "empty", "hostile"])
def test_it_fits_80_columns_without_colour_or_trailing_spaces(name, request):
    lines = printed(request.getfixturevalue(name)).splitlines()
    assert max(len(line) for line in lines) <= 80
    assert not any("\x1b" in line for line in lines)
    assert all(line == line.rstrip() for line in lines)


def test_it_says_what_the_run_says(h200):
    text = " ".join(printed(h200).split())
    assert h200.conclusions.headline in text
    for words in (
        "Weak scaling, defaults",
        "Best cells",
        "4 GPUs, defaults",
        "nccl.p2p disabled",
        "CUDA out of memory",
    ):
        assert words in text
    assert "rtxscale show --csv effects" in text


def test_cpu_workers_are_not_called_gpus(cpu):
    text = printed(cpu)
    assert "CPU workers" in text
    assert "Strong scaling, defaults" in text


def test_markup_in_names_is_shown_not_obeyed(hostile):
    assert "[bold]x[/bold]" in " ".join(printed(hostile).split())


def test_what_a_terminal_would_obey_is_shown_as_text():
    nasty = "a\x1b[31m\x07\0\u202eb"
    table = Table(key="t", title=nasty, columns=(nasty, "b"), rows=[(nasty, "1")], note=nasty)
    stream = io.StringIO()
    show_table(table, stream=stream)
    shown = stream.getvalue()
    assert shown.replace("\n", "").isprintable()
    assert shown.count(r"a\x1b[31m\x07\x00\u202eb") == 4


def test_a_table_with_a_long_word_stays_inside():
    table = Table(key="t", title="", columns=("a", "b"), rows=[("x" * 300, "1")], right=frozenset({"b"}))
    stream = io.StringIO()
    show_table(table, stream=stream)
    assert max(len(line) for line in stream.getvalue().splitlines()) <= 80


def test_effects_come_with_the_largest_change_first(h200):
    table = effects_table(h200.conclusions, "GPUs")
    assert table.rows[0][0] == "nccl.channels 1"
    assert table.rows[0][2] == "4"


def test_bandwidths_say_that_they_were_timed_with_a_log(h200):
    (table, *_) = bandwidth_tables(h200.conclusions, "GPUs")
    assert "NCCL's log on" in table.note
    on_cpu = replace(h200.conclusions, device="cpu")
    assert all("NCCL" not in table.note for table in bandwidth_tables(on_cpu, "CPU workers"))


def test_of_many_cells_the_rest_is_named(h200):
    table = cells_table(h200.conclusions, "GPUs", 10)
    assert len(table.rows) == 10
    assert table.note.startswith(f"{h200.conclusions.cells.height - 10} more cells")


def test_no_number_is_a_dash():
    for value in (None, math.nan, math.inf):
        assert number(value) == interval(value, 1.0, 2.0) == gain(value) == NOTHING


def test_an_interval_keeps_enough_digits_to_be_seen():
    assert interval(9020.4, 9018.1, 9022.9) == "9,020 (9,018-9,023)"
    assert interval(0.98, -0.1, 2.0, 2) == "0.98 (-0.10 to 2.00)"
    assert interval(1.0, 1.0, 1.0, 2) == "1.000 (1.000-1.000)"
    assert interval(0.5, math.nan, 1.0) == "0.500"


def test_short_texts_are_one_line():
    assert short("a\r\nb\tc") == "a b c"
    assert len(short("z" * 10_000, 80)) == 80


def test_utilisation_names_its_peak_once_and_what_matrix_products_reached(h200):
    row = {
        "label": "gpus 1, context 8192",
        "gpus": 1,
        "is_default": True,
        "peak_tflops": 989.4,
        "roof_tflops": 695.3,
        "mfu": 0.416,
        "mfu_low": 0.41,
        "mfu_high": 0.42,
        "roof_utilisation": 0.5925,
        "roof_utilisation_low": 0.59,
        "roof_utilisation_high": 0.6,
        "source": "a data sheet",
    }
    unknown = {"label": "gpus 1, fp8", "gpus": 1, "is_default": True, "note": "no peak known"}

    def table(*rows, brief=False):
        return mfu_table(replace(h200.conclusions, mfu=pl.DataFrame(rows, schema=MFU)), "GPUs", brief=brief)

    found = table(row, row, unknown)
    assert found.columns == ("setting", "GPUs", "MFU", "of products", "peak (TFLOPS)", "products (TFLOPS)")
    assert found.rows[0][2:] == ("0.416 (0.410-0.420)", "0.593 (0.590-0.600)", "989.4", "695.3")
    assert len(found.rows) == 2
    assert found.note.endswith("None for 1 cell: no peak known.")
    assert table(unknown) is None
    assert found.note.count("989.4 TFLOPS: a data sheet") == 1
    assert table(row, brief=True).columns == ("setting", "GPUs", "MFU", "of products")


def pair(p_holm):
    row = {"axis": "a", "value": "1", "other_axis": "b", "other_value": "2", "gpus": 2, "ratio": 1.1}
    return row | {"ratio_low": 1.0, "ratio_high": 1.2, "p_holm": p_holm, "verdict": "as tested"}


@pytest.mark.parametrize(
    ("p_values", "title", "note"),
    [
        ((0.01, 0.02), "Settings whose effects depend on each other", ""),
        ((0.01, 0.2, None), "Whether effects of settings depend on each other", "Shown of 1 of 3 pairs"),
        ((0.9,), "Whether effects of settings depend on each other", "Shown of none of 1 pair"),
    ],
)
def test_settings_are_said_to_depend_on_each_other_only_where_they_do(h200, p_values, title, note):
    found = replace(h200.conclusions, interactions=pl.DataFrame([pair(p) for p in p_values], schema=INTERACTIONS))
    table = interactions_table(found, "GPUs")
    assert (table.title, table.note) == (title, note)
    brief = interactions_table(found, "GPUs", brief=True)
    assert brief is None or brief.title == "Settings whose effects depend on each other"


def test_laws_with_values_come_first_where_no_default_ran(h200):
    """An import of forced settings: laws of curves that there are none of do not hide the others."""
    empty = dict.fromkeys(FITS)
    rows = [empty | {"law": law, "curve": "strong", "parameter": "s", "note": "none"} for law in ("Amdahl", "USL")]
    rows += [
        empty
        | {"law": "Gustafson", "curve": "weak", "series": "ring", "is_default": False, "gpus": gpus}
        | {"parameter": "serial share", "unit": "1", "value": 0.1}
        for gpus in range(2, 10)
    ]
    found = replace(h200.conclusions, fits=pl.DataFrame(rows, schema=FITS))
    table = fits_table(found, "GPUs", brief=True)
    assert [row[0] for row in table.rows] == ["Gustafson"] * 6
    assert table.note == "Amdahl, USL: none. 2 more rows: rtxscale show --csv fits"
