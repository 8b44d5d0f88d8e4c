"""Where workers go: matched nodes, classes of links, and what has no place."""

from dataclasses import replace
from itertools import combinations

import pytest
from made_plans import cells, machine, node, plan, swept

from rtxscale.devices.inventory import Gpu, GpuLink, Inventory, Node
from rtxscale.errors import PlanError
from rtxscale.plan.assume import assumed_inventory
from rtxscale.plan.model import Placement
from rtxscale.plan.placement import Placer


def linked(name, labels, cards=4):
    """A node whose pairs have the given labels by `01`; others are SYS."""
    gpus = tuple(Gpu(name="NVIDIA GeForce RTX 5090", uuid=f"{name}{i}", index=i) for i in range(cards))
    links = tuple(
        GpuLink(a=f"{name}{i}", b=f"{name}{j}", label=labels.get(f"{i}{j}", "SYS"))
        for i, j in combinations(range(cards), 2)
    )
    return Node(node_id=name, cpus=16, gpus=gpus, links=links)


def two_sockets(name="a"):
    """0 and 1 under one switch, 2 and 3 under one root, two sockets."""
    return linked(name, {"01": "PIX", "23": "PHB"})


def indices(node_id, *numbers):
    return Node(
        node_id=node_id, cpus=8, gpus=tuple(Gpu(name="RTX", uuid=f"GPU-{node_id}-{i}", index=i) for i in numbers)
    )


def test_a_session_takes_the_first_gpus_of_the_first_node_that_is_large_enough():
    chosen = Placer((indices("a", 0), indices("b", 0, 1, 2)), "cuda").place(2)
    assert (chosen.nodes, chosen.visible, chosen.gpu_uuids) == (("b", "b"), "0,1", ("GPU-b-0", "GPU-b-1"))


def test_a_pool_that_the_user_narrowed_keeps_its_physical_indices():
    assert Placer((indices("a", 2, 3),), "cuda").place(2).visible == "2,3"


def test_a_slot_is_one_gpu_anywhere_in_the_pool():
    placer = Placer((indices("a", 0, 1), indices("b", 0, 1)), "cuda")
    assert placer.slots == 4
    chosen = placer.slot(3)
    assert (chosen.nodes, chosen.visible, chosen.gpu_uuids) == (("b",), "1", ("GPU-b-1",))


def test_nodes_of_a_session_hold_as_many_workers_each():
    placer = Placer((indices("a", 0, 1), indices("b", 0, 1), indices("c", 0, 1)), "cuda")
    assert placer.place(4).nodes == ("a", "a", "b", "b")
    assert placer.place(3).nodes == ("a", "b", "c")
    assert "5 GPUs on any number of nodes, as many on each" in placer.place(5)


def test_gpus_have_the_same_indices_on_every_node():
    chosen = Placer((indices("a", 0, 1, 2), indices("b", 1, 2, 3)), "cuda").place(4)
    assert (chosen.visible, chosen.gpu_uuids) == ("1,2", ("GPU-a-1", "GPU-a-2", "GPU-b-1", "GPU-b-2"))
    third = Placer((indices("a", 0, 1), indices("b", 2, 3), indices("c", 0, 1)), "cuda").place(4)
    assert third.distinct_nodes == ("a", "c")
    assert "same indices" in Placer((indices("a", 0, 1), indices("b", 2, 3)), "cuda").place(4)


def test_spread_uses_as_many_nodes_as_divide_evenly():
    placer = Placer(tuple(indices(name, 0, 1, 2, 3) for name in "abc"), "cuda")
    assert placer.place(3, placement="spread").nodes == ("a", "b", "c")
    assert placer.place(4, placement="spread").nodes == ("a", "a", "b", "b")
    assert placer.place(2, placement="cross_node").nodes == ("a", "b")
    assert placer.place(12, placement="cross_node").distinct_nodes == ("a", "b", "c")
    assert placer.place(6, 3, 2, "packed").nodes == ("a", "a", "b", "b", "c", "c")
    assert {placer.place(n, placement="spread").link_class for n in (2, 3, 4)} == {"cross_node"}


def test_what_cannot_cross_nodes_is_told():
    assert "cross_node: 2 GPUs on any number of nodes" in Placer((indices("a", 0, 1),), "cuda").place(
        2, placement="cross_node"
    )


@pytest.mark.parametrize(
    ("gpus", "placement", "uuids"),
    [
        (2, "same_switch", ("a0", "a1")),
        (2, "same_root", ("a2", "a3")),
        (2, "cross_socket", ("a0", "a2")),
        (3, "cross_socket", ("a0", "a1", "a2")),  # two of three pairs cross the socket, however they are chosen
        (4, "cross_socket", ("a0", "a1", "a2", "a3")),
    ],
)
def test_a_class_is_stood_for_by_the_first_set_with_most_such_pairs(gpus, placement, uuids):
    chosen = Placer((two_sockets(),), "cuda").place(gpus, placement=placement)
    assert (chosen.gpu_uuids, chosen.link_class) == (uuids, placement)
    assert chosen.visible == ",".join(uuid[1:] for uuid in uuids)


def test_four_of_eight_over_two_sockets_are_two_and_two():
    near = {f"{i}{j}": "NODE" for half in (range(4), range(4, 8)) for i, j in combinations(half, 2)}
    placer = Placer((linked("a", near, cards=8),), "cuda")
    assert placer.place(4, placement="cross_socket").gpu_uuids == ("a0", "a1", "a4", "a5")
    assert placer.place(4, placement="same_numa").gpu_uuids == ("a0", "a1", "a2", "a3")
    assert placer.place(4).link_class == "same_numa"
    assert placer.classes(8) == ("cross_socket",)


def test_the_second_node_stands_for_a_class_that_the_first_lacks():
    placer = Placer((linked("a", {}), two_sockets("b")), "cuda")
    assert placer.place(2, placement="same_switch").gpu_uuids == ("b0", "b1")
    assert placer.classes(2) == ("same_switch", "same_root", "cross_socket", "cross_node")


def test_links_that_are_not_known_are_no_class():
    placer = Placer((linked("a", {"01": "XYZ", "02": "PIX"}),), "cuda")
    assert placer.place(2).link_class is None
    assert "no node has such a set" in placer.place(3, placement="same_switch")
    assert "not known here" in Placer((indices("a", 0, 1),), "cuda").place(2, placement="same_root")


def test_cpu_workers_fill_nodes_or_are_shared_out_evenly():
    placer = Placer((Node(node_id="a", cpus=1), Node(node_id="b", cpus=2), Node(node_id="c", cpus=2)), "cpu")
    assert placer.place(2).nodes == ("b", "b")
    assert placer.place(3).nodes == ("a", "b", "b")
    assert placer.place(4, 2, 2).nodes == ("b", "b", "c", "c")
    assert placer.place(3, placement="spread").nodes == ("a", "b", "c")
    assert "CPU workers have packed, spread and cross_node" in placer.place(2, placement="same_root")
    assert "6 CPU cores asked for, 5 there" in placer.place(6)


def test_nodes_times_gpus_per_node_is_the_number_of_gpus():
    cluster = Inventory(nodes=tuple(node(4, node_id=name) for name in "abcd"))
    made = plan({"nodes": [1, 2, 4], "gpus_per_node": [1, 4]}, cluster)
    assert {(c.gpus, c.nodes, c.gpus_per_node) for c in cells(made)} == {
        (1, None, None),
        (2, 2, 1),
        (4, 1, 4),
        (4, 4, 1),
        (8, 2, 4),
        (16, 4, 4),
    }
    placed = {session.key.layout: session.placement.distinct_nodes for session in made.sessions if session.key.gpus > 1}
    assert placed == {
        "2x1": ("a", "b"),
        "1x4": ("a",),
        "4x1": ("a", "b", "c", "d"),
        "2x4": ("a", "b"),
        "4x4": ("a", "b", "c", "d"),
    }
    assert len([session for session in made.sessions if session.key.gpus == 1]) == 16 * 2


def test_the_third_of_the_three_counts_is_filled_in_and_makes_no_other_cell():
    cluster = Inventory(nodes=(node(4), node(4, node_id="b")))
    both = [plan({"gpus": [8]}, cluster, nodes=2), plan({"nodes": [2]}, cluster, gpus_per_node=4)]
    assert len({cell.cell_id for made in both for cell in cells(made)}) == 1


def test_points_that_contradict_themselves_are_dropped_with_the_reason():
    made = plan({"gpus": [4, 8], "nodes": [2], "gpus_per_node": [4]}, Inventory(nodes=(node(4), node(4, node_id="b"))))
    assert [cell.gpus for cell in cells(made)] == [8]
    assert [(drop.rule, drop.reason) for drop in made.dropped] == [
        ("nodes_times_gpus_per_node", "2 nodes of 4 are not gpus 4")
    ]
    with pytest.raises(PlanError, match="3 nodes of 1 are not gpus 4"):
        plan({"gpus": [4]}, machine(4), nodes=3)


def test_the_baseline_is_there_whatever_the_number_of_nodes():
    cluster = Inventory(nodes=(node(4), node(4, node_id="b")))
    made = plan({"gpus": [1, 4, 8]}, cluster, nodes=2)
    assert [(cell.gpus, cell.nodes) for cell in cells(made)] == [(1, None), (4, 2), (8, 2)]
    assert not made.dropped


def test_each_class_that_there_is_becomes_a_cell_of_its_own():
    made = plan({"gpus": [1, 2], "placement": ["by_class"]}, Inventory(nodes=(two_sockets(), two_sockets("b"))))
    assert {cell.placement for cell in cells(made)} == {
        "packed",
        "same_switch",
        "same_root",
        "cross_socket",
        "cross_node",
    }
    where = {trial.trial.cell.placement: session for session in made.sessions for trial in swept(session)}
    assert where["same_root"].placement.gpu_uuids == ("a2", "a3")
    assert where["cross_node"].placement.nodes == ("a", "b")
    assert len({session.key for session in where.values()}) == 5
    assert {trial.axes["placement"] for trial in swept(made)} == {cell.placement for cell in cells(made)}


def test_without_known_links_no_class_is_planned():
    made = plan({"gpus": [1, 2], "placement": ["by_class"]}, machine(2))
    assert [cell.gpus for cell in cells(made)] == [1]
    assert "have no known class here" in made.dropped[0].reason


def test_classes_that_cannot_be_known_are_told():
    by_class = {"gpus": [1, 2], "placement": ["by_class"]}
    told = [note for note in plan(by_class, assumed_inventory("2 nodes of 4x RTX 5090")).notes if "by_class" in note]
    assert len(told) == 1
    assert "is not known of an assumed machine, so no class within a node is planned here" in told[0]
    half_known = plan(by_class, Inventory(nodes=(two_sockets(), replace(two_sockets("b"), links=()))))
    assert any("is not known of b, so" in note for note in half_known.notes)
    for made in (
        plan(by_class, Inventory(nodes=(two_sockets(), two_sockets("b")))),
        plan({"gpus": [1, 2]}, assumed_inventory("2 nodes of 4x RTX 5090")),
        plan({"gpus": [1, 2], "placement": ["packed", "by_class"]}, machine(0)),
    ):
        assert not any("by_class" in note for note in made.notes)


def test_placements_that_are_the_same_gpus_are_told():
    made = plan({"gpus": [2], "placement": ["packed", "same_switch", "same_root"]}, Inventory(nodes=(two_sockets(),)))
    assert [note for note in made.notes if "same GPUs" in note] == [
        "placements packed and same_switch of 2 GPUs are the same GPUs here: they differ in name only"
    ]


def test_what_every_plan_places_is_there_and_matched():
    cluster = Inventory(nodes=(node(4), node(2, node_id="b"), node(4, node_id="c")))
    made = plan({"gpus": [1, 2, 4, 6, 8, 12], "placement": ["packed", "spread"]}, cluster)
    for session in made.sessions:
        place = session.placement
        assert isinstance(place, Placement)
        assert place.world == session.key.gpus == len(set(place.gpu_uuids))
        assert len({place.nodes.count(name) for name in place.nodes}) == 1
    assert {drop.axes["gpus"] for drop in made.dropped if drop.axes["placement"] == "packed"} == {12}


def test_torchrun_stays_on_one_node():
    cluster = Inventory(nodes=(node(2), node(2, node_id="b")))
    made = plan({"gpus": [2, 4]}, cluster, launcher="torchrun")
    assert [drop.reason for drop in made.dropped] == ["launcher torchrun stays on one node: 4 GPUs are on 2 nodes"]
