"""The order of link classes, and the class of a set of GPUs."""

from pathlib import Path

import pytest

from rtxscale.topology.drawing import draw
from rtxscale.topology.links import MEANINGS, NVML_LEVELS, LinkClass, difference, links_of_set, nvml_link, read_link
from rtxscale.topology.smi import parse_topology

GOLDEN = Path(__file__).parents[2] / "golden" / "topology"


def test_near_sorts_before_far():
    labels = ["SYS", "NV4", "PHB", "X", "NODE", "PIX", "CXL", "NV18", "PXB"]
    assert sorted(labels, key=lambda label: read_link(label).order) == [
        *("X", "NV18", "NV4", "PIX", "PXB", "PHB", "NODE", "SYS", "CXL")
    ]


def test_every_class_has_a_meaning():
    assert set(MEANINGS) == set(LinkClass)
    assert read_link("PHB").meaning == MEANINGS[LinkClass.PHB]
    assert read_link("NV1").meaning == "1 NVLink"


@pytest.mark.parametrize("label", ["NV", "NV0", "NV#", "NV100", "nv4", "", "PHB SYS", "BOARDS", "OTHER"])
def test_what_is_no_label_is_other(label):
    assert read_link(label).kind is LinkClass.OTHER


def test_nvml_speaks_the_same_language():
    assert [nvml_link(level, 0).kind for level in sorted(NVML_LEVELS)] == list(NVML_LEVELS.values())
    assert nvml_link(50, 4) == read_link("NV4")
    assert nvml_link(30, None) == read_link("PHB")
    assert nvml_link(None, None) is None
    assert (nvml_link(60, 0).kind, nvml_link(60, 0).label) == (LinkClass.OTHER, "level 60")


def test_a_set_is_as_far_apart_as_its_worst_pair():
    topology = parse_topology((GOLDEN / "topo_6gpu_pix_node_sys_ansi.txt").read_text())
    sets = {
        ("GPU0", "GPU1"): ("PIX", {"PIX": 1}),
        ("GPU0", "GPU1", "GPU2"): ("NODE", {"PIX": 1, "NODE": 2}),
        ("GPU5", "GPU3", "GPU4"): ("SYS", {"PIX": 1, "SYS": 2}),
        topology.gpus: ("SYS", {"PIX": 3, "NODE": 4, "SYS": 8}),
    }
    for gpus, (label, counts) in sets.items():
        found = links_of_set(gpus, topology.links)
        assert (found.label, found.counts, found.gpus) == (label, counts, gpus)
        assert topology.link(*found.worst_pair).label == label


def test_a_set_with_an_unknown_pair_has_no_class():
    found = links_of_set(["GPU0", "GPU1", "GPU2"], {("GPU1", "GPU0"): read_link("PIX")})
    assert (found.label, found.worst.label) == (None, "PIX")
    assert found.unknown == (("GPU0", "GPU2"), ("GPU1", "GPU2"))


def test_one_gpu_has_no_link():
    assert links_of_set(["GPU0", "GPU0"], {}).label is None


def test_sets_that_differ_in_more_than_their_size_are_told_apart():
    links = {("GPU0", "GPU1"): read_link("NV4"), ("GPU0", "GPU2"): read_link("NODE")}
    links |= {("GPU1", "GPU2"): read_link("NODE"), ("GPU2", "GPU3"): read_link("NV4")}
    sets = {name: links_of_set([f"GPU{index}" for index in name], links) for name in ("0", "01", "23", "012", "0123")}
    assert difference(sets["0"], sets["012"]) is None
    assert difference(sets["01"], sets["23"]) is None
    assert difference(sets["01"], sets["012"]).endswith("the links differ, not only the number of GPUs")
    assert difference(sets["01"], sets["0123"]).endswith("4 GPUs linked by unknown links: the links may differ")


def test_of_two_directions_the_worse_counts():
    links = {("GPU0", "GPU1"): read_link("PIX"), ("GPU1", "GPU0"): read_link("SYS")}
    assert links_of_set(["GPU0", "GPU1"], links).label == "SYS"


def test_a_drawing_has_every_pair_once():
    topology = parse_topology((GOLDEN / "topo_ada6000x4_nic_legend.txt").read_text())
    drawing = draw(topology)
    assert [(one.name, one.alias, one.numa) for one in drawing.devices[2:6]] == [
        ("GPU2", None, "1"),
        ("GPU3", None, "1"),
        ("NIC0", "mlx5_0", None),
        ("NIC1", "mlx5_1", None),
    ]
    assert len(drawing.links) == 28
    assert {(one.a, one.b): (one.label, one.distance) for one in draw(topology, nics=False).links} == {
        ("GPU0", "GPU1"): ("NODE", 6),
        ("GPU0", "GPU2"): ("SYS", 7),
        ("GPU0", "GPU3"): ("SYS", 7),
        ("GPU1", "GPU2"): ("SYS", 7),
        ("GPU1", "GPU3"): ("SYS", 7),
        ("GPU2", "GPU3"): ("NODE", 6),
    }


def test_a_drawing_of_a_cut_matrix_leaves_the_unknown_open():
    drawing = draw(parse_topology((GOLDEN / "topo_b200_header_nic11cpu_cut.txt").read_text()), nics=False)
    unknown = [(link.a, link.b) for link in drawing.links if link.label is None]
    assert len(unknown) == 6
    assert unknown[0] == ("GPU4", "GPU5")
