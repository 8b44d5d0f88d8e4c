"""The tables of placements and of nodes: what they say, and that they fit a terminal."""

import io
from dataclasses import replace

import polars as pl

from rtxscale.analysis.tables import NODES, PLACEMENTS
from rtxscale.report.tables.placement import node_table, placement_table, placement_tables
from rtxscale.report.terminal import show_conclusions

PLACEMENT = {
    "gpus": 2,
    "placement": "cross socket",
    "link_class": "cross_socket",
    "nodes": 1,
    "reference": "packed",
    "reference_class": None,
    "sessions": 3,
    "ratio": 0.9,
    "ratio_low": 0.88,
    "ratio_high": 0.92,
    "penalty": 0.1,
    "p_holm": 0.01,
    "verdict": "slower",
}
NODE = {
    "curve": "weak",
    "series": "defaults",
    "is_default": True,
    "gpus": 8,
    "nodes": 2,
    "gpus_per_node": 4,
    "efficiency": 0.72,
    "within": 0.9,
    "across": 0.8,
    "across_low": 0.78,
    "across_high": 0.82,
}


def with_rows(conclusions, places=(), nodes=()):
    return replace(
        conclusions,
        placements=pl.DataFrame(list(places), schema=PLACEMENTS),
        nodes=pl.DataFrame(list(nodes), schema=NODES),
    )


def test_a_penalty_is_told_with_its_interval_and_what_it_is_against(cpu):
    table = placement_table(with_rows(cpu.conclusions, places=[PLACEMENT]), "GPUs")
    assert table.rows == [
        ("2", "cross socket", "cross socket", "packed (links not known)", "0.900 (0.880-0.920)", "10.0 %", "slower")
    ]


def test_efficiency_in_a_node_and_across_nodes_stand_side_by_side(cpu):
    table = node_table(with_rows(cpu.conclusions, nodes=[NODE]), "GPUs")
    assert table.rows == [("weak, defaults", "8", "2 of 4", "0.900", "0.80 (0.78-0.82)", "0.720")]


def test_what_is_left_out_in_a_terminal_is_named_and_it_fits(cpu):
    conclusions = with_rows(cpu.conclusions, [PLACEMENT] * 14, [NODE, {**NODE, "is_default": False}])
    stream = io.StringIO()
    show_conclusions(conclusions, stream=stream)
    text = stream.getvalue()
    assert "2 more: rtxscale show --csv placements" in text
    assert "1 more: rtxscale show --csv nodes" in text
    assert max(map(len, text.splitlines())) <= 80


def test_without_several_placements_there_is_no_table(cpu):
    assert placement_tables(with_rows(cpu.conclusions), "GPUs") == []
