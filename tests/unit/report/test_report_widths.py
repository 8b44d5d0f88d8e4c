"""A narrow terminal shows every number and every column whole: side by side, or row by row."""

from __future__ import annotations

import io
import re

import pytest

from rtxscale.report.numbers import short
from rtxscale.report.tables.conclusions import Table
from rtxscale.report.tables.meaning import cost_table
from rtxscale.report.terminal import show_conclusions, show_table
from rtxscale.spec.declare import Price

from . import made_dossiers

NUMBER = re.compile(r"\d[\d.,]*")
COST = Table(
    key="cost",
    title="Energy and cost",
    columns=("setting", "GPUs", "power (W)", "J/image", "images/J", "images/EUR"),
    rows=[
        ("gpus 1", "1", "589.1", "0.136 (0.131-0.141)", "7.377", "8,123,456 (8,023,456-8,223,456)"),
        ("gpus 2, defaults", "2", "1,027", "0.155 (0.145-0.166)", "6.449", "6,123,456 (6,023,456-6,223,456)"),
    ],
    right=frozenset({"GPUs", "power (W)", "J/image", "images/J", "images/EUR"}),
    note="90 more cells",
)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(monkeypatch, columns, show, *made, **more):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    show(*made, stream=stream, **more)
    return re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())


@pytest.mark.parametrize("columns", [16, 20, 40, 60, 79, 80, 100, 110])
def test_no_number_and_no_column_is_cut(monkeypatch, columns):
    text = shown(monkeypatch, columns, show_table, COST)
    assert max(map(len, text.splitlines())) <= columns
    words = text.split()
    for row in COST.rows:
        for cell in row:
            assert all(any(part in word for word in words) for part in NUMBER.findall(cell)), cell
    assert all(part in words or f"{part}:" in words for name in COST.columns for part in name.split())


def test_a_table_that_fits_stands_side_by_side_and_another_row_by_row(monkeypatch):
    wide, narrow = (shown(monkeypatch, columns, show_table, COST) for columns in (110, 60))
    assert re.search(r"setting +GPUs +power", wide)
    assert "setting: gpus 2, defaults\nGPUs: 2\npower (W): 1,027\nJ/image: 0.155 (0.145-0.166)\n" in narrow


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_every_number_of_a_run_is_whole_at_every_width(monkeypatch, h200, columns):
    """What 110 columns show, fewer show too: the same numbers, in the same order of tables."""
    at_most = shown(monkeypatch, 110, show_conclusions, h200.conclusions)
    fewer = shown(monkeypatch, columns, show_conclusions, h200.conclusions)
    known = set(NUMBER.findall(at_most))
    assert {word for word in NUMBER.findall(fewer) if word not in known} == set()
    assert {word for word in known if word not in set(NUMBER.findall(fewer))} == set()


def test_the_middle_is_left_out_between_words():
    text = "a run of 1234.5 images and 6789.25 more of them in every session"
    for limit in range(12, len(text)):
        cut = short(text, limit)
        assert len(cut) <= limit
        assert set(NUMBER.findall(cut)) <= {"1234.5", "6789.25"}


def test_work_per_energy_has_one_unit(tmp_path):
    from rtxscale.analysis.conclude import conclude

    conclusions = conclude(made_dossiers.golden_run(tmp_path), price=Price(currency="EUR", per_hour=2.0))
    table = cost_table(conclusions, "GPUs", brief=True)
    assert "images/J" in table.columns
    assert not any("/s/W" in name for name in table.columns)
