"""A chart tells no more than its tables: an interval that says nothing has no bar, and the caption says so."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
import vl_convert

from rtxscale.analysis.tables import BUDGET, COST
from rtxscale.report.charts.budget import budget_figures
from rtxscale.report.charts.confirmed import confirmed_figure
from rtxscale.report.charts.energy import energy_figure
from rtxscale.report.charts.export import picture_spec
from rtxscale.report.charts.figures import figures
from rtxscale.report.charts.scaling import Expectation, scaling_figures
from rtxscale.report.key_numbers import key_numbers
from rtxscale.report.scripts import vega_lite_version
from rtxscale.report.trial_counts import trial_counts

from .test_report_confirmed import ROWS as CONFIRMED_ROWS

SILENT = "No bar: interval wider than x10."


def bars(figure):
    """Ends of every interval that a figure may draw."""
    for rows in figure.datasets.values():
        for row in rows:
            for low in [name for name in row if name == "low" or name.endswith("_low")]:
                if row[low] is not None:
                    yield row[low], row[low.removesuffix("low") + "high"]


def test_no_chart_of_a_real_run_draws_an_interval_that_tables_leave_out(golden):
    drawn = {figure.key: figure for figure in figures(*golden)}
    ratios = [(1 + low / 100, 1 + high / 100) for low, high in bars(drawn["effects"])]
    assert len(ratios) == 9, "one of ten effects has an interval that says nothing"
    assert SILENT in drawn["effects"].caption
    shown = [pair for key in ("weak-throughput", "energy") for pair in bars(drawn[key])]
    assert len(shown) == 5
    assert all(high <= 10 * low for low, high in [*ratios, *shown])


def test_an_efficiency_over_two_wild_visits_has_a_point_without_a_bar(golden):
    _, conclusions = golden
    wild = conclusions.efficiency.with_columns(
        *(pl.lit(0.0).alias(f"{name}_low") for name in ("efficiency", "throughput")),
        *(pl.lit(1e9).alias(f"{name}_high") for name in ("efficiency", "throughput")),
    )
    for figure in scaling_figures(wild, "image", "GPUs", Expectation(silence="none")):
        assert list(bars(figure)) == []
        assert SILENT in figure.caption
        assert "Bars:" not in figure.caption
    counts = trial_counts(golden[0])
    efficiency, *_ = key_numbers(replace(conclusions, efficiency=wild), "GPUs", counts)
    assert efficiency.detail == "interval wider than x10"


def test_a_confirmed_gain_without_an_interval_says_so():
    from rtxscale.analysis.tables import CONFIRMED

    wild = {**CONFIRMED_ROWS[0], "gain_low": -0.99, "gain_high": 1e9}
    figure = confirmed_figure(pl.DataFrame([wild], schema=CONFIRMED), "GPUs")
    assert list(bars(figure)) == []
    assert SILENT in figure.caption
    known = confirmed_figure(pl.DataFrame(CONFIRMED_ROWS[:1], schema=CONFIRMED), "GPUs")
    assert list(bars(known)) == [(pytest.approx(3.2), pytest.approx(5.0))]
    assert SILENT not in known.caption


def test_a_wide_interval_of_the_loss_budget_leaves_its_parts_to_be_read():
    parts = {"ideal step": 0.050, "compute": 0.010, "measured step": 0.060}
    rows = [
        {"curve": "weak", "gpus": 2, "cell_id": "c", "label": "gpus 2, defaults", "is_default": True, "part": part}
        | {"seconds_per_step": value, "low": value - 3.0, "high": value + 3.0, "share": value / 0.06, "note": ""}
        for part, value in parts.items()
    ]
    (figure,) = budget_figures(pl.DataFrame(rows, schema=BUDGET), "GPUs")
    assert figure.caption.endswith("over sessions; those that leave the chart are cut.")
    low, high = figure.spec()["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert (low, high) == (pytest.approx(-30.0), pytest.approx(90.0)), "half of the longest bar beyond it"


# Energy


def test_energy_of_the_defaults_and_of_the_thriftiest_cells(golden):
    _, conclusions = golden
    figure = energy_figure(conclusions.cost, "GPUs")
    told = [(row["series"], row["gpus"], round(row["energy"], 4)) for row in figure.datasets["told"]]
    assert told[:2] == [("defaults", 1, 0.1354), ("defaults", 2, 0.1553)]
    least = conclusions.cost.filter(pl.col("gpus") == 2)["energy_per_work_j"].min()
    assert told[2] == ("least energy", 2, round(least, 4))
    assert figure.labels == ("defaults", "least energy")
    assert (figure.title, figure.section) == ("Energy per image", "energy")
    assert "Grey: 89 more cells." in figure.caption
    assert energy_figure(conclusions.cost.clear(), "GPUs") is None
    silent = conclusions.cost.with_columns(energy_per_work_j=pl.lit(None, pl.Float64))
    assert energy_figure(silent, "GPUs") is None


def cost(**fields):
    row = {"cell_id": "c", "label": "gpus 2, defaults", "gpus": 2, "is_default": True, "unit": "token"}
    return pl.DataFrame([{**row, "energy_per_work_j": 0.5, "power_w": 300.0, **fields}], schema=COST)


def test_a_meter_at_the_wall_has_a_series_of_its_own():
    bounds = {"wall_energy_per_work_low": 0.7, "wall_energy_per_work_high": 0.9}
    metered = cost(wall_energy_per_work_j=0.8, wall_power_w=480.0, **bounds)
    figure = energy_figure(metered, "GPUs")
    assert [row["power_text"] for row in figure.datasets["told"]] == ["300 W", "480 W"]
    assert [(row["series"], row["energy"]) for row in figure.datasets["told"]] == [
        ("defaults", 0.5),
        ("defaults, at the wall", 0.8),
    ]
    assert list(bars(figure)) == [(0.7, 0.9)]
    assert "At the wall: all that hangs behind the meter." in figure.caption
    wild = energy_figure(cost(energy_per_work_low=0.0, energy_per_work_high=1e9), "GPUs")
    assert list(bars(wild)) == []
    assert SILENT in wild.caption


def test_the_energy_chart_is_drawn(golden):
    figure = replace(energy_figure(golden[1].cost, "GPUs"))
    svg = vl_convert.vegalite_to_svg(picture_spec(figure), vl_version=vega_lite_version())
    assert "energy (J/image)" in svg
    assert svg.count("<path") > 89


def test_energy_of_several_default_cells_is_told_apart_by_what_was_varied():
    rows = [
        cost(
            cell_id=f"{gpus}{name}", gpus=gpus, label=f"gpus {gpus}, {name}", energy_per_work_j=energy, is_default=True
        )
        for gpus in (1, 2)
        for name, energy in (("bf16", 0.1), ("fp32", 0.5))
    ]
    figure = energy_figure(pl.concat(rows), "GPUs")
    assert figure.labels == ("bf16", "fp32")
    assert [(row["series"], row["gpus"]) for row in figure.datasets["told"]] == [
        ("bf16", 1),
        ("fp32", 1),
        ("bf16", 2),
        ("fp32", 2),
    ]
    assert "grey" not in figure.datasets
