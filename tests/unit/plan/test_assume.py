"""A machine in words: exact names only, with the nearest when there is none."""

import pytest

from rtxscale.errors import BadInput
from rtxscale.plan.assume import assumed_inventory


@pytest.mark.parametrize(
    ("text", "count", "name", "memory_mib"),
    [
        ("4x RTX 5090", 4, "NVIDIA GeForce RTX 5090", 32768),
        ("4 x rtx 5090", 4, "NVIDIA GeForce RTX 5090", 32768),
        ("2 NVIDIA GeForce RTX 4090", 2, "NVIDIA GeForce RTX 4090", 24576),
        ("8×RTX 5080", 8, "NVIDIA GeForce RTX 5080", 16384),  # noqa: RUF001 - the sign is what is tested
        ("RTX 5090", 1, "NVIDIA GeForce RTX 5090", 32768),
        ("2 x RTX PRO 5000 72 GB", 2, "NVIDIA RTX PRO 5000 72GB Blackwell", 73728),
    ],
)
def test_a_count_and_a_name_make_a_node(text, count, name, memory_mib):
    inventory = assumed_inventory(text)
    assert inventory.assumed
    assert inventory.device == "cuda"
    assert len(inventory.gpus) == len({gpu.uuid for gpu in inventory.gpus}) == count
    assert {(gpu.name, gpu.memory_mib) for gpu in inventory.gpus} == {(name, memory_mib)}


def test_nodes_of_one_kind():
    inventory = assumed_inventory("8 nodes of 4x RTX 5090")
    assert [len(node.gpus) for node in inventory.nodes] == [4] * 8
    assert len({gpu.uuid for gpu in inventory.gpus}) == 32
    assert inventory.describe() == "32x NVIDIA GeForce RTX 5090 on 8 nodes"
    assert [node.cpus for node in assumed_inventory("2 nodes with 3 cpus").nodes] == [3, 3]


def test_a_mixed_cluster_is_kinds_of_nodes_and_a_mixed_node_joins_cards():
    inventory = assumed_inventory("2 nodes of 4x RTX 5090, 1 node of 8x RTX 4090 + 1x RTX 5080, 16 cpus")
    assert [node.node_id for node in inventory.nodes] == ["assumed0", "assumed1", "assumed2", "assumed3"]
    assert [node.describe() for node in inventory.nodes[1:]] == [
        "4x NVIDIA GeForce RTX 5090",
        "8x NVIDIA GeForce RTX 4090 + 1x NVIDIA GeForce RTX 5080",
        "16 CPU cores",
    ]
    assert [gpu.index for gpu in inventory.nodes[2].gpus] == list(range(9))
    assert [node.cpus for node in inventory.nodes] == [32, 32, 72, 16]
    assert inventory.notes == (
        "assumed: 2 nodes, 4x RTX 5090, 8 CPU cores per GPU; one node, 8x RTX 4090 + 1x RTX 5080, 8 CPU cores per "
        "GPU; one node, 16 CPU cores, no GPU",
    )


@pytest.mark.parametrize(("text", "cores"), [("cpu", 8), ("CPU", 8), ("2 cpus", 2), ("16x cpu", 16)])
def test_a_machine_without_gpus(text, cores):
    inventory = assumed_inventory(text)
    assert (inventory.device, inventory.cpus) == ("cpu", cores)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("4x RTX 5091", "RTX 5090"),
        ("RTX PRO 5000", "RTX PRO 5000 48 GB, RTX PRO 5000 72 GB"),
        ("2x RTX 5090 Laptop GPU", "not known by that name"),
        ("0x RTX 5090", "a count of 0"),
        ("9999x RTX 5090", "a count of 9999"),
        ("", "a count and a GPU"),
        ("4x", "not known"),
        ("4x RTX 5090,", "a count and a GPU"),
        ("4x RTX 5090 + ", "a count and a GPU"),
        ("4x RTX 5090 + 2 cpus", "not known by that name"),
        ("1000x RTX 5090 + 25x RTX 5080", "a count of 1025"),
        ("1000 nodes of 1x RTX 5090, 25 nodes of 1x RTX 5080", "found 1025 nodes"),
    ],
)
def test_an_unknown_machine_is_refused_with_what_is_known(text, words):
    with pytest.raises(BadInput, match=words):
        assumed_inventory(text)
