"""What placements cost, and where efficiency is lost: in a node or between nodes."""

import math

import numpy as np
import polars as pl
import pytest
from made_trials import assert_sound, collectives_frame, made_cell, made_row, trials_frame, visits

from rtxscale.analysis.conclude import conclude_tables


def placed(cell, placement="packed", nodes=None):
    each = None if nodes is None else cell.gpus // nodes
    return cell.model_copy(update={"placement": placement, "nodes": nodes, "gpus_per_node": each})


def rows(cell, *throughputs, link, nodes=1, **columns):
    name = f"{cell.placement}-{cell.nodes}-{cell.gpus}"
    return [
        made_row(cell, value, visit=visit, session=f"{name}-{visit}", nodes=nodes, link_class=link, **columns)
        for visit, value in enumerate(throughputs, start=1)
    ]


def conclude(made, **axes):
    return conclude_tables(trials_frame(made), collectives_frame(), axes=axes)


def test_the_penalty_is_the_ratio_to_the_closest_class_paired_within_visits():
    cell = made_cell(2, 64)
    day = (1.0, 1.3, 0.8)  # what both have in common, visit by visit
    made = [
        *rows(placed(cell, "cross_socket"), *(90 * one for one in day), link="cross_socket"),
        *rows(placed(cell, "same_switch"), *(100 * one for one in day), link="same_switch"),
        *rows(placed(cell, "cross_node"), *(50 * one for one in day), link="cross_node", nodes=2),
    ]
    conclusions = conclude(made, gpus=[2], placement=["by_class"])
    assert_sound(conclusions)
    table = conclusions.placements
    assert table.select("placement", "link_class", "nodes", "reference", "reference_class").rows() == [
        ("cross socket", "cross_socket", 1, "same switch", "same_switch"),
        ("cross node", "cross_node", 2, "same switch", "same_switch"),
    ]
    for row, expected in zip(table.iter_rows(named=True), (0.9, 0.5), strict=True):
        assert row["ratio"] == pytest.approx(expected)
        assert row["penalty"] == pytest.approx(1 - expected)
        assert (row["ratio_low"], row["ratio_high"]) == (pytest.approx(expected), pytest.approx(expected))
        assert (row["verdict"], row["sessions"], row["pairs"]) == ("slower", 3, 1)
    assert not conclusions.effects.height


def test_the_closest_is_what_was_used_and_not_what_it_is_called():
    cell = made_cell(2, 64)
    made = [
        *rows(placed(cell), 80, 81, link="cross_socket"),
        *rows(placed(cell, "same_root"), 100, 102, link="same_root"),
    ]
    (row,) = conclude(made, gpus=[2], placement=["packed", "same_root"]).placements.to_dicts()
    assert (row["placement"], row["reference"], row["link_class"]) == ("packed", "same root", "cross_socket")


def test_of_equally_close_placements_the_unnamed_one_is_the_reference():
    cell = made_cell(2, 64)
    made = [
        *rows(placed(cell, "cross_socket"), 100, 101, link="cross_socket"),
        *rows(placed(cell), 100, 102, link="cross_socket"),
    ]
    (row,) = conclude(made, gpus=[2], placement=["cross_socket", "packed"]).placements.to_dicts()
    assert (row["placement"], row["reference"]) == ("cross socket", "packed")


def test_one_visit_gives_a_ratio_without_an_interval():
    cell = made_cell(2, 64)
    made = [*rows(placed(cell), 100, link="same_root"), *rows(placed(cell, "cross_socket"), 90, link="cross_socket")]
    (row,) = conclude(made, gpus=[2], placement=["packed", "cross_socket"]).placements.to_dicts()
    assert (row["ratio"], row["ratio_low"], row["verdict"]) == (pytest.approx(0.9), None, "needs >= 2 visits")


def test_cells_that_differ_in_something_else_are_not_compared():
    made = [
        *rows(placed(made_cell(2, 64)), 100, 101, link="same_root"),
        *rows(placed(made_cell(2, 32), "cross_socket"), 90, 91, link="cross_socket"),
    ]
    assert not conclude(made, gpus=[2]).placements.height


def test_the_interval_covers_the_planted_penalty():
    """200 sweeps of 4 visits with 1 % noise and a penalty of 7 %: 95 % of the intervals hold it."""
    from rtxscale.analysis.cells import cell_table, replicates
    from rtxscale.analysis.counted import counted_trials, settled_trials
    from rtxscale.analysis.placement import placement_table

    chance = np.random.default_rng(8)
    cell, held = made_cell(2, 64), 0
    base = [
        *rows(placed(cell), *[1.0] * 4, link="same_root"),
        *rows(placed(cell, "cross_socket"), *[1.0] * 4, link="cross_socket"),
    ]
    frame = trials_frame(base)
    counted = counted_trials(settled_trials(frame))
    means = pl.when(pl.col("placement_made") == "cross_socket").then(93.0).otherwise(100.0)
    marked = counted.with_columns(
        placement_made=pl.when(pl.col("link_class") == "cross_socket")
        .then(pl.lit("cross_socket"))
        .otherwise(pl.lit("p"))
    )
    for _ in range(200):
        noise = pl.Series(np.exp(chance.normal(0, 0.01, marked.height)))
        drawn = marked.with_columns(throughput_per_s=means * noise).drop("placement_made")
        measured = replicates(drawn)
        (row,) = placement_table(cell_table(drawn, measured, {"placement": []}), measured, drawn).to_dicts()
        held += row["ratio_low"] <= 0.93 <= row["ratio_high"]
    assert 0.91 * 200 <= held <= 0.985 * 200


def test_efficiency_is_split_into_within_a_node_and_across_nodes():
    cells = {gpus: made_cell(gpus, 64) for gpus in (1, 4, 8, 16)}
    made = [
        *visits(cells[1], 100, 100, nodes=1),
        *rows(placed(cells[4], nodes=1), 360, 360, link="same_root"),
        *rows(placed(cells[8], nodes=2), 612, 612, link="cross_node", nodes=2),
        *rows(placed(cells[16], nodes=4), 1152, 1152, link="cross_node", nodes=4),
    ]
    conclusions = conclude(made, nodes=[1, 2, 4], gpus_per_node=[1, 4])
    assert_sound(conclusions)
    table = conclusions.nodes
    assert table.select("gpus", "nodes", "gpus_per_node").rows() == [(8, 2, 4), (16, 4, 4)]
    assert table["within"].to_list() == [pytest.approx(0.9)] * 2
    assert table["across"].to_list() == [pytest.approx(0.85), pytest.approx(0.8)]
    for row in table.iter_rows(named=True):
        assert row["efficiency"] == pytest.approx(row["within"] * row["across"])
    curve = conclusions.efficiency.filter(pl.col("gpus") > 1)
    assert curve["series"].unique().to_list() == ["defaults"]
    assert curve["base_gpus"].unique().to_list() == [1]


def test_nodes_of_another_size_are_another_curve():
    made = [
        *visits(made_cell(1, 64), 100, 101, nodes=1),
        *rows(placed(made_cell(4, 64), nodes=1), 380, 381, link="same_root"),
        *rows(placed(made_cell(4, 64), nodes=2), 340, 341, link="cross_node", nodes=2),
        *rows(placed(made_cell(8, 64), nodes=2), 640, 641, link="cross_node", nodes=2),
    ]
    conclusions = conclude(made, nodes=[1, 2], gpus_per_node=[2, 4])
    curves = conclusions.efficiency.group_by("series").agg(pl.col("gpus").sort()).sort("series").rows()
    assert curves == [("2 per node", [1, 4]), ("4 per node", [1, 4, 8])]
    assert {row["label"] for row in conclusions.cells.iter_rows(named=True)} == {
        "gpus 1",
        "gpus 4, 1 node of 4, defaults",
        "gpus 4, 2 nodes of 2, defaults",
        "gpus 8, 2 nodes of 4, defaults",
    }
    (penalty,) = conclusions.placements.to_dicts()
    assert (penalty["placement"], penalty["reference"]) == ("2 nodes of 2", "1 node of 4")
    expected = math.exp((math.log(340 / 380) + math.log(341 / 381)) / 2)
    assert penalty["ratio"] == pytest.approx(expected)


def test_without_one_gpu_the_smallest_of_a_curve_is_its_base():
    made = [
        *rows(placed(made_cell(4, 64), nodes=1), 400, 400, link="same_root"),
        *rows(placed(made_cell(8, 64), nodes=2), 720, 720, link="cross_node", nodes=2),
    ]
    conclusions = conclude(made, nodes=[1, 2], gpus_per_node=[4])
    assert conclusions.efficiency.select("gpus", "base_gpus", "efficiency").rows() == [
        (4, 4, 1.0),
        (8, 4, pytest.approx(0.9)),
    ]
    assert conclusions.nodes["across"].to_list() == [pytest.approx(0.9)]
