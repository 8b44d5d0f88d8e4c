"""Rules about links between GPUs: peer access, topology, PCIe slots, and what all-reduce should reach (P20, P22).

Pure. NVML and nvidia-smi are two sources: where they disagree it is said, not decided. Caller: `doctor.examine`.
"""

from __future__ import annotations

from collections.abc import Iterator

from rtxscale.doctor import guide, rates
from rtxscale.doctor.facts import Facts, GpuState, PairState
from rtxscale.doctor.finding import Hit, Rule, Severity, gpus_text
from rtxscale.doctor.gpu_rules import grouped, said
from rtxscale.topology.links import Link, LinkClass, links_of_set
from rtxscale.topology.smi import PEER_MEANINGS, Status
from rtxscale.topology.sources import NVML, Pair, claims_of_links, claims_of_topology, disagreements

FROM_LINK = ("PCIe ", " x")
SMALL_BAR1_MIB = 256


def name(index: int) -> str:
    """A GPU as nvidia-smi's matrices call it."""
    return f"GPU{index}"


def nvml_links(facts: Facts) -> dict[Pair, Link]:
    """Links of the used pairs, as NVML sees them."""
    return {(name(pair.a), name(pair.b)): pair.link for pair in facts.used_pairs if pair.link is not None}


def best_links(facts: Facts) -> dict[Pair, Link]:
    """NVML's links, and those of `topo -m` for pairs of which NVML says nothing."""
    links = nvml_links(facts)
    known = {frozenset(pair) for pair in links}
    texts = {} if facts.smi.topology is None else facts.smi.topology.links
    return links | {pair: link for pair, link in texts.items() if frozenset(pair) not in known}


def peer_access(facts: Facts) -> dict[Pair, bool]:
    """What the driver claims about peer access of the used pairs, where it claims anything.

    nvidia-smi's matrices count where NVML says nothing.
    """
    claims: dict[Pair, bool] = {}
    indices = [gpu.index for gpu in facts.used]
    for place, a in enumerate(indices):
        for b in indices[place + 1 :]:
            label = next((pair.peer_label for pair in facts.pairs if (pair.a, pair.b) == (a, b)), None)
            texts = [matrix.claimed(name(a), name(b)) for matrix in facts.smi.peer]
            known = [claim for claim in texts if claim is not None]
            if label not in (None, "U"):
                claims[name(a), name(b)] = label == "OK"
            elif known:
                claims[name(a), name(b)] = all(known)
    return claims


def all_reach_peers(facts: Facts) -> bool | None:
    """Whether every used pair claims peer access; None where a pair is not known."""
    claims, gpus = peer_access(facts), len(facts.used)
    if False in claims.values():
        return False
    return True if gpus > 1 and len(claims) == gpus * (gpus - 1) // 2 else None


def peers(facts: Facts) -> Iterator[Hit]:
    """Peer access refused, or claimed by a card whose stock driver refuses it."""
    claims = peer_access(facts)
    refused = [pair for pair, claim in claims.items() if not claim]
    stock_refuses = any(gpu.documented is not None and gpu.documented.p2p_stock is False for gpu in facts.used)
    if refused and stock_refuses:
        geforce = guide.answer(guide.NVLINK) if any("5090" in gpu.device.name for gpu in facts.used) else ""
        yield Hit(
            severity=Severity.INFO,
            found=f"no P2P on {len(refused)} of {len(claims)} pairs ({_labels(facts.used_pairs)})",
            why=f"The stock driver refuses it on this card: NCCL goes through host memory. {geforce}".strip(),
            fix="nothing: it is the card's normal state; `nccl.p2p` auto and disabled are the same path here",
        )
    elif refused:
        yield Hit(
            severity=Severity.WARNING,
            found=f"no P2P on {len(refused)} of {len(claims)} pairs ({_labels(facts.used_pairs)})",
        )
    elif stock_refuses and all_reach_peers(facts):
        yield Hit(
            severity=Severity.WARNING,
            found="P2P is claimed on a card whose stock driver refuses it: a patched driver",
            needed="data that arrives right",
            why="Patched drivers have claimed P2P and delivered wrong data (noonghunna/club-3090 issue 922) or hung.",
            fix="run the doctor without --quick, which checks copied data; compare with `nccl.p2p: disabled`",
        )


def _labels(pairs: tuple[PairState, ...]) -> str:
    labels = dict.fromkeys(pair.peer_label for pair in pairs if pair.peer_label not in (None, "OK"))
    return "; ".join(f"{label}: {PEER_MEANINGS.get(label or '', 'unknown')}" for label in labels) or "nvidia-smi"


def peer_sources(facts: Facts) -> Iterator[Hit]:
    """NVML and `topo -p2p` on peer access."""
    for pair in facts.used_pairs:
        texts = {matrix.claimed(name(pair.a), name(pair.b)) for matrix in facts.smi.peer} - {None}
        if pair.peer_label not in (None, "U") and texts and texts != {pair.peer_label == "OK"}:
            shown = " and ".join("OK" if claim else "not OK" for claim in sorted(texts, key=bool))
            yield Hit(
                severity=Severity.WARNING,
                found=f"{name(pair.a)}-{name(pair.b)}: NVML says {pair.peer_label}, nvidia-smi topo -p2p says {shown}",
            )


def link_sources(facts: Facts) -> Iterator[Hit]:
    """NVML and `topo -m` on the links, and a `topo -m` that gave nothing."""
    topology = facts.smi.topology
    if len(facts.used) < 2 or topology is None:
        return
    if topology.status is Status.UNAVAILABLE:
        words = " ".join(topology.said.split())[:160] or "nothing"
        yield Hit(
            severity=Severity.INFO,
            found=f"nvidia-smi topo -m gives no matrix; it says: {words}",
            why="Links are known from NVML alone; NUMA nodes of GPUs from the kernel.",
            fix="nothing, or remove software RDMA devices (rdma link) and look again",
        )
        return
    used = {name(gpu.index) for gpu in facts.used}
    claims = {pair: claim for pair, claim in claims_of_topology(topology).items() if used.issuperset(pair)}
    for one in disagreements([claims_of_links(NVML, nvml_links(facts)), claims]):
        yield Hit(severity=Severity.WARNING, found=str(one), why=one.likely_reason or "")


def topology(facts: Facts) -> Iterator[Hit]:
    """The class of every pair, and whether smaller sets of GPUs are nearer to each other than all of them."""
    links = best_links(facts)
    gpus = links_of_set((name(gpu.index) for gpu in facts.used), links)
    if len(facts.used) < 2 or gpus.worst is None:
        return
    counts = ", ".join(f"{count} {label}" for label, count in gpus.counts.items())
    mixed = len(gpus.counts) > 1
    worst = f"worst {'known ' * bool(gpus.unknown)}{gpus.worst.label} ({gpus.worst.meaning})"
    unknown = f", {len(gpus.unknown)} not known" if gpus.unknown else ""
    yield Hit(
        severity=Severity.INFO,
        found=f"links between {len(facts.used)} GPUs: {counts}{unknown}; {worst}",
        why="A run on fewer GPUs may use nearer links than one on all: then links differ, not only counts."
        if mixed
        else "",
    )


def slots(facts: Facts) -> Iterator[Hit]:
    """A PCIe slot that can do less than the card; NVML's maximum holds at rest too."""
    for gpu in facts.used:
        wanted = _documented_link(gpu)
        generation, width = gpu.device.pcie_max_generation, gpu.device.pcie_max_width
        if wanted is None or generation is None or width is None:
            continue
        if generation < wanted[0] or width < wanted[1]:
            full, have = rates.link_gb_s(*wanted) or 0.0, rates.link_gb_s(generation, width) or 0.0
            yield Hit(
                severity=Severity.WARNING,
                found=f"{gpus_text([gpu.index])}: at most PCIe {generation} x{width} ({have:.0f} GB/s) in its slot",
                needed=f"PCIe {wanted[0]} x{wanted[1]} ({full:.0f} GB/s), which the card can do",
            )


def _documented_link(gpu: GpuState) -> tuple[int, int] | None:
    card = gpu.documented
    if card is None:
        return None
    generation, lanes = card.link.removeprefix(FROM_LINK[0]).split(FROM_LINK[1])
    return int(generation), int(lanes)


def bar1(facts: Facts) -> Iterator[Hit]:
    """A BAR1 of the classic size."""
    small = [gpu.index for gpu in facts.used if gpu.bar1_mib is not None and gpu.bar1_mib <= SMALL_BAR1_MIB]
    if small:
        yield Hit(severity=Severity.INFO, found=f"BAR1 of at most {SMALL_BAR1_MIB} MiB on {gpus_text(small)}")


def all_reduce(facts: Facts) -> Iterator[Hit]:
    """What all-reduce of large messages should reach on this path."""
    gpus = len(facts.used)
    if gpus < 2:
        return
    links = best_links(facts)
    among = links_of_set((name(gpu.index) for gpu in facts.used), links)
    worst = among.worst
    if among.unknown and _may_have_nvlink(facts, links):
        return
    if worst is not None and worst.kind is LinkClass.NVLINK:
        seen = "; ".join(map(str, rates.NVLINK_SEEN))
        yield Hit(severity=Severity.INFO, found=f"all-reduce goes over NVLink; seen: {seen}")
        return
    rate, reach = facts.link_rate, all_reach_peers(facts)
    if rate is None:
        return
    share, path, seen_rows = (
        (rates.PEER_SHARE, "with P2P over PCIe", rates.PEER_SEEN)
        if reach
        else (rates.HOST_PATH_SHARE, "through host memory", rates.HOST_PATH_SEEN)
    )
    bus = rates.band(*rate, share)
    if bus is None:
        return
    algorithm = rates.algorithm_band(bus, gpus)
    scaled = "" if rate == (5, 16) else ", scaled to this link: nobody measured it here"
    unless = "" if reach is not None else " (if peer access is off, which is not known here)"
    yield Hit(
        severity=Severity.INFO,
        found=f"all-reduce of 64 MiB or more on these {gpus} GPUs, {path} at PCIe {rate[0]} x{rate[1]}{unless}: bus "
        f"bandwidth of {bus} is normal, which is {algorithm} of algorithm bandwidth",
        why=f"Seen on PCIe 5 x16{scaled}: {'; '.join(map(str, seen_rows))}. Below it look at PCIe links under load, "
        "memory channels and NUMA.",
    )


def _may_have_nvlink(facts: Facts, links: dict[Pair, Link]) -> bool:
    cards = [gpu.documented for gpu in facts.used]
    return any(link.kind is LinkClass.NVLINK for link in links.values()) or any(card and card.nvlink for card in cards)


def numa(facts: Facts) -> Iterator[Hit]:
    """GPUs on several NUMA nodes."""
    if (facts.host.numa_nodes or 1) < 2:
        return
    groups = grouped(facts.used, lambda gpu: gpu.numa_node)
    if len(groups) > 1:
        nodes: dict[object, list[int]] = {f"NUMA node {node}": indices for node, indices in groups.items()}
        yield Hit(severity=Severity.INFO, found=said(nodes))


RULES = (
    Rule(
        id="peer_access",
        needed="peer access between all GPUs",
        why="Without it NCCL goes through host memory. On cards that can do it, the chipset, ACS, the IOMMU or a "
        "virtual machine is in the way.",
        fix="switch ACS and the IOMMU off in the firmware, or put the GPUs below one switch or CPU",
        source="nvidia-smi topo -p2p; NVML P2P status; playbook P20, P22",
        check=peers,
    ),
    Rule(
        id="peer_access_sources",
        needed="two sources that agree on peer access",
        why="A claim is no test.",
        fix="run the doctor without --quick: only a verified copy is proof",
        source="NVML P2P status and nvidia-smi topo -p2p",
        check=peer_sources,
    ),
    Rule(
        id="topology",
        needed="nothing",
        why="The farthest pair sets the pace of a ring.",
        fix="nothing",
        source="NVML common ancestor, else nvidia-smi topo -m; playbook P22",
        check=topology,
    ),
    Rule(
        id="topology_sources",
        needed="two sources that agree on every link",
        why="One of them is wrong, and neither is taken to be right.",
        fix="compare with `lspci -tv`, and report it with the report's raw texts",
        source="NVML common ancestor and nvidia-smi topo -m",
        check=link_sources,
    ),
    Rule(
        id="pcie_slot",
        needed="the generation and lanes that the card can do",
        why="Without NVLink every gradient crosses this link. (The generation at rest says nothing: links slow down on "
        "purpose.)",
        fix="another slot, a shorter or better riser, and the slot's generation in the firmware",
        source="NVML maximum link of card and system; device table",
        check=slots,
    ),
    Rule(
        id="bar1",
        needed="a BAR1 as large as the memory (resizable BAR) for P2P over PCIe",
        why="Peers and the CPU reach GPU memory through BAR1 only.",
        fix="switch on above-4G decoding and resizable BAR in the firmware",
        source="NVML BAR1 memory, else nvidia-smi -q",
        check=bar1,
    ),
    Rule(
        id="all_reduce",
        needed="nothing",
        why="What others reached on the same kind of path.",
        fix="nothing; `rtxscale sweep` with workload kind collectives measures it",
        source="see why; NVIDIA/nccl-tests, doc/PERFORMANCE.md",
        check=all_reduce,
    ),
    Rule(
        id="gpu_numa",
        needed="nothing",
        why="Ranks and loaders should run on the node of their GPU, and rings between nodes cross the socket link.",
        fix="nothing, or choose GPUs of one node by CUDA_VISIBLE_DEVICES",
        source="sysfs, numa_node of the PCI device, else nvidia-smi topo -m; playbook P8, P22",
        check=numa,
    ),
)
