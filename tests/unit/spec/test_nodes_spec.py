"""Counts of nodes and workers, and placements, as a sweep file says them."""

import pytest

from rtxscale.errors import SpecError
from rtxscale.spec.cell import Cell
from rtxscale.spec.load import parse_sweep

GOOD = """\
name: nodes
question: Does it scale over machines?
study: weak
workload: {kind: vision, batch_per_gpu: 8}
"""


def problem(text):
    with pytest.raises(SpecError) as caught:
        parse_sweep(GOOD + text, "x")
    (found,) = caught.value.problems
    return found


def test_nodes_and_placements_are_axes():
    sweep = parse_sweep(GOOD + "axes: {nodes: [1, 2], gpus_per_node: [2, 4], placement: [packed, spread]}\n", "x")
    assert sweep.axes["nodes"] == (1, 2)
    assert "gpus" not in sweep.model_fields_set


@pytest.mark.parametrize("text", ["axes: {nodes: [1, 2]}\n", "nodes: 2\naxes: {ddp.bucket_mib: [1]}\n"])
def test_nodes_alone_say_nothing_of_the_number_of_gpus(text):
    assert problem(text).expected.startswith("gpus or gpus_per_node beside it")


def test_fixed_counts_agree():
    assert parse_sweep(GOOD + "gpus: 8\nnodes: 2\ngpus_per_node: 4\naxes: {ddp.bucket_mib: [1]}\n", "x").gpus == 8
    found = problem("gpus: 6\nnodes: 2\ngpus_per_node: 4\naxes: {ddp.bucket_mib: [1]}\n")
    assert (found.path, found.line, found.found) == ("gpus", 5, "gpus: 6 with 2 nodes of 4")
    assert found.expected.startswith("gpus: 8")


def test_an_unknown_placement_is_told_with_those_there_are():
    assert "same_switch" in problem("axes: {gpus: [2], placement: [same_swich]}\n").expected


def test_a_cell_that_says_nothing_of_nodes_keeps_its_id():
    cell = Cell.model_validate({"gpus": 2, "workload": {"kind": "collectives"}})
    assert cell.canonical() == '{"gpus":2,"workload":{"kind":"collectives"}}'
