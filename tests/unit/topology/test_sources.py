"""NCCL's graph lines as a third source, and disagreements between sources."""

from pathlib import Path

import pytest

from rtxscale.topology.links import LinkClass, nvml_link, read_link
from rtxscale.topology.nccl_graph import PATH_TYPES, NcclPath, link_of_path, node_name, parse_graph
from rtxscale.topology.smi import parse_topology
from rtxscale.topology.sources import (
    NCCL,
    NVML,
    SMI,
    claims_of_links,
    claims_of_nccl,
    claims_of_topology,
    disagreements,
)

GOLDEN = Path(__file__).parents[2] / "golden"
NVLINK_LOG = (GOLDEN / "nccl" / "h200x2_nvlink_tree_ctas2_nccl2.28.9.log").read_text()
HOST_LOG = (GOLDEN / "nccl" / "h200x2_shm_ring_ctas8_nccl2.28.9.log").read_text()
BUS_IDS = {"GPU0": "00000000:00:06.0", "GPU1": "00000000:00:07.0"}
TOPOLOGY = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \t{0}\t0-31\nGPU1\t{0}\t X \t0-31\n"


def smi(label):
    return claims_of_topology(parse_topology(TOPOLOGY.format(label)))


def nccl(log):
    return claims_of_nccl(parse_graph(log), BUS_IDS)


def test_paths_of_two_gpus_with_nvlink():
    graph = parse_graph(NVLINK_LOG)
    assert graph.between("GPU/0-60", "GPU/0-70") == (
        NcclPath(source="GPU/0-60", target="GPU/0-70", kind="NVL", hops=2, bandwidth_gb_s=370.8),
        NcclPath(source="GPU/0-70", target="GPU/0-60", kind="NVL", hops=2, bandwidth_gb_s=370.8),
    )
    assert graph.ranks == {"GPU/0-60": (0,), "GPU/0-70": (1,)}


def test_paths_go_through_the_host_where_peer_access_is_off():
    assert {(path.kind, path.bandwidth_gb_s) for path in parse_graph(HOST_LOG).paths} == {("PHB", 48.0)}


def test_lines_that_look_alike_are_no_paths():
    assert parse_graph("[0] NCCL INFO  0 : GPU/0-60 GPU/0-70\nGPU/0-60 :\nNET/0-0 :GPU/0-60 (3/1.2/PHB)\n").paths == ()


def test_a_line_cut_in_the_middle_of_a_path_keeps_the_whole_ones():
    graph = parse_graph("GPU/0-60 :GPU/0-60 (0/5000.0/LOC) GPU/0-70 (2/370.8/NVL) GPU/0-80 (2/370.8/N")
    assert [path.target for path in graph.paths] == ["GPU/0-70"]


@pytest.mark.parametrize(
    ("bus_id", "name"),
    [
        ("00000000:C1:00.0", "GPU/0-c1000"),
        ("0000:00:06.0", "GPU/0-60"),
        ("0001:0a:1f.1", "GPU/0-10a1f0"),
        ("GPU-0a", None),
        ("", None),
    ],
)
def test_names_from_bus_ids(bus_id, name):
    assert node_name(bus_id) == name


def test_every_path_type_has_a_meaning_and_a_link():
    for kind, (classes, meaning) in PATH_TYPES.items():
        link = link_of_path(NcclPath(source="a", target="b", kind=kind, hops=1, bandwidth_gb_s=1.0))
        assert meaning
        assert link.kind in (classes or {LinkClass.OTHER})
    assert link_of_path(NcclPath(source="a", target="b", kind="ZZZ", hops=1, bandwidth_gb_s=1.0)).label == "ZZZ"


def test_three_sources_that_agree():
    nvml = claims_of_links(NVML, {("GPU1", "GPU0"): nvml_link(50, 18)})
    assert disagreements([nvml, smi("NV18"), nccl(NVLINK_LOG)]) == ()


def test_nccl_around_nvlink_is_reported_with_its_likely_reason():
    nvml = claims_of_links(NVML, {("GPU0", "GPU1"): nvml_link(50, 18)})
    (found,) = disagreements([nvml, smi("NV18"), nccl(HOST_LOG)])
    assert str(found) == "GPU0-GPU1: NVML says NV18, nvidia-smi topo -m says NV18, NCCL says PHB"
    assert "peer access is off or was not granted" in found.likely_reason
    assert [claim.source for claim in found.claims] == [NVML, SMI, NCCL]


def test_one_log_with_two_settings_disagrees_with_itself():
    (found,) = disagreements([nccl(NVLINK_LOG + HOST_LOG)])
    assert [claim.label for claim in found.claims] == ["NVL", "PHB"]
    assert "different settings" in found.likely_reason


@pytest.mark.parametrize(
    ("label", "agrees"), [("PHB", True), ("NODE", True), ("SYS", False), ("PIX", False), ("NV4", False)]
)
def test_what_nccls_host_bridge_can_mean(label, agrees):
    assert (disagreements([smi(label), nccl(HOST_LOG)]) == ()) is agrees


def test_a_far_pair_has_no_reason_made_up():
    (found,) = disagreements([smi("SYS"), nccl(HOST_LOG)])
    assert found.likely_reason is None


def test_numbers_of_nvlinks_must_be_the_same():
    nvml = claims_of_links(NVML, {("GPU0", "GPU1"): nvml_link(50, 17)})
    (found,) = disagreements([nvml, smi("NV18")])
    assert [claim.nvlinks for claim in found.claims] == [17, 18]


def test_unknown_words_agree_only_with_themselves():
    one, other = ({("GPU0", "GPU1"): read_link(label)} for label in ("CXL", "ABC"))
    assert disagreements([smi("CXL"), claims_of_links(NVML, one)]) == ()
    assert len(disagreements([smi("CXL"), claims_of_links(NVML, other)])) == 1


def test_two_directions_of_one_matrix():
    links = {("GPU0", "GPU1"): read_link("PIX"), ("GPU1", "GPU0"): read_link("SYS")}
    assert [claim.label for claim in disagreements([claims_of_links(SMI, links)])[0].claims] == ["PIX", "SYS"]


def test_a_silent_source_disagrees_with_nobody():
    unavailable = claims_of_topology(parse_topology("Failed to run topology matrix"))
    assert unavailable == {}
    assert disagreements([unavailable, nccl(NVLINK_LOG)]) == ()
    assert claims_of_nccl(parse_graph(NVLINK_LOG), {"GPU0": "0000:00:06.0", "GPU9": "?"}) == {}


def test_an_old_log_names_no_host():
    log = "[0] NCCL INFO GPU/60 :GPU/60 (0/5000.000000/LOC) GPU/70 (1/12.000000/PIX) \n"
    assert [claim.label for claim in nccl(log)["GPU0", "GPU1"]] == ["PIX"]


def test_network_devices_are_left_out():
    text = "\tGPU0\tNIC0\tCPU Affinity\nGPU0\t X \tPHB\t0-31\nNIC0\tPHB\t X \n"
    assert claims_of_topology(parse_topology(text)) == {}
