"""A mixed cluster is split into pools of matching nodes, and a sweep runs on one of them."""

from dataclasses import replace

import pytest
from made_plans import node, plan

from rtxscale.devices.inventory import Inventory
from rtxscale.errors import PlanError

ADA = "NVIDIA GeForce RTX 4090"


def mixed_node():
    cards = (*node(1).gpus, *small(1, "x").gpus)
    return replace(node(1), gpus=tuple(replace(card, index=place) for place, card in enumerate(cards)))


def small(cards, name):
    """A node of RTX 4090s."""
    made = node(cards, name=ADA, node_id=name)
    return replace(made, gpus=tuple(replace(gpu, memory_mib=24564) for gpu in made.gpus))


CLUSTER = Inventory(nodes=(small(2, "a"), node(0, node_id="head"), node(2, node_id="b"), node(2, node_id="c")))


def test_the_largest_pool_is_used_and_the_rest_is_told():
    made = plan({"gpus": [2, 4]}, CLUSTER)
    assert [one.node_id for one in made.pool.nodes] == ["b", "c"]
    used = {uuid for session in made.sessions for uuid in session.placement.gpu_uuids}
    assert used == {gpu.uuid for gpu in made.pool.gpus}
    (note,) = [note for note in made.notes if "mixed cluster" in note]
    assert "4 NVIDIA GeForce RTX 5090; left out: 2 GPUs on a (NVIDIA GeForce RTX 4090)" in note


@pytest.mark.parametrize("name", [ADA, "rtx 4090", "nvidia geforce rtx 4090"])
def test_a_sweep_can_name_its_pool(name):
    made = plan({"gpus": [1, 2]}, CLUSTER, hardware={"gpu": name})
    assert [one.node_id for one in made.pool.nodes] == ["a"]
    assert {session.placement.nodes[0] for session in made.sessions} == {"a"}


def test_pools_are_never_joined():
    made = plan({"gpus": [2, 6]}, CLUSTER)
    assert [drop.reason for drop in made.dropped] == ["6 GPUs asked for, 4 there"]


def test_a_pool_that_is_not_there_is_refused_with_what_is():
    with pytest.raises(PlanError, match="found no node with it; expected one of NVIDIA GeForce RTX 4090, NVIDIA"):
        plan({"gpus": [1]}, CLUSTER, hardware={"gpu": "RTX 5080"})
    with pytest.raises(PlanError, match="min_gpus asks for 5 GPUs"):
        plan({"gpus": [1]}, CLUSTER, hardware={"min_gpus": 5})


def test_generations_in_one_node_are_refused_unless_the_sweep_allows_it():
    with pytest.raises(PlanError, match=r"found Ada and Blackwell GPUs in a .*hardware.mixed_generations: allow"):
        plan({"gpus": [2]}, Inventory(nodes=(mixed_node(),)))
    made = plan({"gpus": [2]}, Inventory(nodes=(mixed_node(),)), hardware={"mixed_generations": "allow"})
    assert any("different GPUs in a" in note for note in made.notes)


def test_a_mixed_node_that_is_not_used_stops_nobody():
    cluster = Inventory(nodes=(mixed_node(), node(4, node_id="b")))
    assert [one.node_id for one in plan({"gpus": [4]}, cluster).pool.nodes] == ["b"]


def test_on_cpu_every_node_is_used():
    made = plan({"gpus": [2]}, CLUSTER, hardware={"device": "cpu"})
    assert len(made.pool.nodes) == 4
