"""What is said of links: the class of a set of GPUs, all-reduce on it, and nvidia-smi where NVML says nothing."""

from pathlib import Path

import pytest

from rtxscale.doctor.examine import examine
from rtxscale.doctor.facts import Facts, PairState, SmiFacts
from rtxscale.topology.links import read_link
from rtxscale.topology.smi import parse_peer_access, parse_topology

from .made_facts import gpu, machine

TOPOLOGY = Path(__file__).parents[2] / "golden" / "topology"
PEERS = SmiFacts(
    topology=parse_topology((TOPOLOGY / "topo_5090x2_phb.txt").read_text()),
    peer=(parse_peer_access((TOPOLOGY / "topo_p2p_rw_5090x2_gns.txt").read_text(), "rw"),),
)


def adas(card="6000ada", count=2):
    return [gpu(index, card) for index in range(count)]


def of(rule, facts):
    return [one for one in examine(facts).findings if one.rule == rule]


def test_the_question_of_the_four_5090s_is_answered_in_words():
    (found,) = of("all_reduce", machine([gpu(index) for index in range(4)]))
    assert "on these 4 GPUs, through host memory at PCIe 5 x16" in found.found
    # 26 GB/s lies inside the band, as bus bandwidth; 35 and 28 are what others saw.
    low, high = found.found.partition("bandwidth of ")[2].split(" GB/s")[0].split("-")
    assert int(low) < 26 < int(high)
    assert "35 GB/s on 4x RTX 5090 (NVIDIA/nccl issue 1639)" in found.why
    assert "27.2 GB/s on 2x H200 with P2P off" in found.why


def test_the_band_of_another_link_is_called_scaled():
    (found,) = of("all_reduce", machine(adas("4090", 2)))
    assert "PCIe 4 x16" in found.found
    assert "11-18 GB/s" in found.found
    assert "scaled to this link: nobody measured it here" in found.why


@pytest.mark.parametrize(("label", "path"), [("OK", "with P2P over PCIe"), ("GNS", "through host memory")])
def test_all_reduce_knows_its_path(label, path):
    (found,) = of("all_reduce", machine(label=label))
    assert path in found.found


def test_unknown_peer_access_is_said():
    (found,) = of("all_reduce", machine(label="U"))
    assert "if peer access is off, which is not known here" in found.found


def test_links_of_a_set_are_judged_by_the_worst_pair():
    gpus = [gpu(0, "h200"), gpu(1, "h200"), gpu(2, "h200")]
    facts = machine(gpus, label="OK")
    nvlink = PairState(a=0, b=1, link=read_link("NV4"), peer_label="OK")
    mixed = Facts(gpus=facts.gpus, pairs=(nvlink, *facts.pairs[1:]), software=facts.software, driver=facts.driver)
    (found,) = of("topology", mixed)
    assert "1 NV4, 2 PHB; worst PHB" in found.found
    assert "links differ, not only counts" in found.why
    assert "with P2P over PCIe" in of("all_reduce", mixed)[0].found


def with_links(count, links, card="h200", **parts):
    """GPUs of which NVML tells the links of these pairs only."""
    facts = machine([gpu(index, card) for index in range(count)], label="OK", **parts)
    told = [PairState(a=a, b=b, link=read_link(label), peer_label="OK") for (a, b), label in links.items()]
    return Facts(gpus=facts.gpus, pairs=tuple(told), software=facts.software, driver=facts.driver, smi=facts.smi)


def test_a_link_that_is_not_known_makes_no_set_of_gpus_nvlinked():
    facts = with_links(3, {(0, 1): "NV18"})
    assert "1 NV18, 2 not known; worst known NV18" in of("topology", facts)[0].found
    assert of("all_reduce", facts) == of("all_reduce", with_links(2, {})) == []


def test_nvidia_smi_fills_in_pairs_of_which_nvml_says_nothing():
    rows = ("GPU0\tX\tSYS\tPHB", "GPU1\tSYS\tX\tNODE", "GPU2\tPHB\tNODE\tX")
    text = "\tGPU0\tGPU1\tGPU2\tCPU Affinity\n" + "".join(f"{row}\t0-3\n" for row in rows)
    facts = with_links(3, {(0, 1): "PIX"}, "5090", smi=SmiFacts(topology=parse_topology(text)))
    assert "1 PIX, 1 PHB, 1 NODE; worst NODE" in of("topology", facts)[0].found
    assert "NVML says PIX, nvidia-smi topo -m says SYS" in of("topology_sources", facts)[0].found


def test_nvidia_smi_stands_in_where_nvml_says_nothing():
    facts = Facts(gpus=machine().gpus, smi=PEERS)
    assert "1 PHB" in of("topology", facts)[0].found
    assert "no P2P on 1 of 1 pairs" in of("peer_access", facts)[0].found
