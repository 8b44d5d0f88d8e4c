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
    ],
)
def test_an_unknown_machine_is_refused_with_what_is_known(text, words):
    with pytest.raises(BadInput, match=words):
        assumed_inventory(text)
