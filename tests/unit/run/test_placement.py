import pytest

from rtxscale.devices.inventory import Gpu, Node
from rtxscale.errors import RunError
from rtxscale.run.placement import place


def node(name, *indices, cpus=8):
    gpus = tuple(Gpu(name="RTX", uuid=f"GPU-{name}-{index}", index=index) for index in indices)
    return Node(node_id=name, cpus=cpus, gpus=gpus)


def test_a_session_takes_the_first_gpus_of_the_pool():
    chosen = place((node("a", 0, 1, 2, 3),), "cuda", 2)
    assert (chosen.visible, chosen.gpu_uuids, chosen.world) == ("0,1", ("GPU-a-0", "GPU-a-1"), 2)


def test_a_pool_that_the_user_narrowed_keeps_its_physical_indices():
    assert place((node("a", 2, 3),), "cuda", 2).visible == "2,3"


def test_a_slot_is_one_gpu_anywhere_in_the_pool():
    chosen = place((node("a", 0, 1), node("b", 0, 1)), "cuda", 1, slot=3)
    assert (chosen.nodes, chosen.visible, chosen.gpu_uuids) == (("b",), "1", ("GPU-b-1",))


def test_a_slot_beyond_the_pool_is_refused():
    with pytest.raises(RunError, match="found 1 GPUs; expected at least 3"):
        place((node("a", 0),), "cuda", 1, slot=2)


def test_one_node_is_preferred_over_two():
    assert place((node("a", 0), node("b", 0, 1)), "cuda", 2).distinct_nodes == ("b",)


def test_what_no_node_holds_alone_is_spread_in_order():
    chosen = place((node("a", 0, 1), node("b", 0, 1)), "cuda", 3)
    assert chosen.nodes == ("a", "a", "b")
    assert chosen.gpu_uuids == ("GPU-a-0", "GPU-a-1", "GPU-b-0")
    assert chosen.visible == "0,1"


def test_different_indices_on_two_nodes_cannot_be_expressed():
    with pytest.raises(RunError, match="same indices on every node"):
        place((node("a", 0, 1), node("b", 2, 3)), "cuda", 4)


def test_more_workers_than_room_is_refused():
    with pytest.raises(RunError, match="found room for 2 workers; expected at least 3"):
        place((node("a", 0, 1),), "cuda", 3)


def test_cpu_workers_need_a_cpu_each_and_see_no_gpu_list():
    chosen = place((node("a", cpus=1), node("b", cpus=2)), "cpu", 2)
    assert (chosen.nodes, chosen.visible, chosen.gpu_uuids) == (("b", "b"), None, ())
