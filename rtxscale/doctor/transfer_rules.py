"""Rules about measured transfers: data that arrives wrong, copies that hang, links that are slow under load.

Pure. Caller: `doctor.examine`.
"""

from __future__ import annotations

from collections.abc import Iterator

from rtxscale.doctor import rates
from rtxscale.doctor.facts import Facts, HostTransfer
from rtxscale.doctor.finding import Hit, Rule, Severity, gpus_text

TOGETHER_SHARE = 0.7
"""Below this share of its rate alone, a GPU waits for the others at a shared link or for memory."""


def wrong_data(facts: Facts) -> Iterator[Hit]:
    """Copies between GPUs that deliver wrong data."""
    for pair in facts.transfers.pairs:
        if pair.data_right is False:
            yield Hit(severity=Severity.ERROR, found=f"data copied between GPU {pair.a} and GPU {pair.b} arrives wrong")


def hung(facts: Facts) -> Iterator[Hit]:
    """Copies that did not end, or failed."""
    for pair in facts.transfers.pairs:
        if pair.problem:
            yield Hit(severity=Severity.ERROR, found=f"copy between GPU {pair.a} and GPU {pair.b}: {pair.problem}")
    for host in facts.transfers.hosts:
        if host.problem:
            yield Hit(
                severity=Severity.ERROR,
                found=f"copies between host and GPU {host.gpu}: {host.problem}",
                why="A GPU that the host cannot copy to and from trains nothing.",
                fix="what is said there: another PyTorch, memory that others hold, or `sudo nvidia-smi --gpu-reset`",
            )


def slow_host(facts: Facts) -> Iterator[Hit]:
    """Copies to or from the host below what the link should carry."""
    links = {gpu.index: (gpu.device.pcie_max_generation, gpu.device.pcie_max_width) for gpu in facts.used}
    for host in facts.transfers.hosts:
        generation, width = links.get(host.gpu, (None, None))
        expected = rates.band(generation, width, rates.COPY_SHARE) if generation and width else None
        measured = [rate for rate in (host.to_device_gb_s, host.from_device_gb_s) if rate is not None]
        if expected is not None and measured and min(measured) < expected.low:
            yield Hit(
                severity=Severity.WARNING,
                found=f"GPU {host.gpu}: {min(measured):.1f} GB/s between pinned memory and the card",
                needed=f"{expected} on PCIe {generation} x{width}",
            )


def shared_links(facts: Facts) -> Iterator[Hit]:
    """GPUs that slow each other down when all copy at once."""
    slow = {host.gpu: share for host in facts.transfers.hosts if (share := _share(host)) is not None}
    waiting = {gpu: share for gpu, share in slow.items() if share < TOGETHER_SHARE}
    if waiting:
        yield Hit(
            severity=Severity.INFO,
            found=f"with all GPUs copying at once, {gpus_text(waiting)} reach {min(waiting.values()):.0%} of their "
            "rate alone at worst",
        )


def _share(host: HostTransfer) -> float | None:
    pairs = (
        (host.to_device_together_gb_s, host.to_device_gb_s),
        (host.from_device_together_gb_s, host.from_device_gb_s),
    )
    shares = [together / alone for together, alone in pairs if together is not None and alone]
    return min(shares, default=None)


def slow_links(facts: Facts) -> Iterator[Hit]:
    """PCIe links below their best while copies ran."""
    for verdict in facts.transfers.links:
        if verdict.slow:
            low, best = verdict.lowest, verdict.expected
            yield Hit(
                severity=Severity.WARNING,
                found=f"GPU {verdict.gpu}: PCIe {low.generation} x{low.width} under load in "
                f"{max(verdict.below_generation, verdict.below_width)} of {verdict.loaded} samples",
                needed=f"PCIe {best.generation} x{best.width}",
            )


def slow_peers(facts: Facts) -> Iterator[Hit]:
    """P2P copies over PCIe below what the link should carry."""
    rate = facts.link_rate
    nvlinked = {(pair.a, pair.b) for pair in facts.pairs if pair.link is not None and pair.link.nvlinks}
    expected = rates.band(*rate, rates.COPY_SHARE) if rate else None
    for pair in facts.transfers.pairs:
        measured = [value for value in (pair.there_gb_s, pair.back_gb_s) if value is not None]
        if expected is None or not pair.peer or not measured or (pair.a, pair.b) in nvlinked:
            continue
        if min(measured) < expected.low:
            yield Hit(
                severity=Severity.WARNING,
                found=f"P2P copies between GPU {pair.a} and GPU {pair.b} at {min(measured):.1f} GB/s",
                needed=f"{expected}",
            )


RULES = (
    Rule(
        id="transfer_data",
        needed="every byte as it was sent",
        why="Training on it is worthless. Peer access through a patched driver, an IOMMU or bad hardware does this.",
        fix="NCCL_P2P_DISABLE=1 (`nccl.p2p: disabled`), the stock driver, the IOMMU off; then check again",
        source="noonghunna/club-3090 issue 922; a copy compared byte by byte",
        check=wrong_data,
    ),
    Rule(
        id="transfer_hang",
        needed="copies that end",
        why="NCCL would hang in the same place.",
        fix="`nccl.p2p: disabled`, ACS and the IOMMU off; reboot if a GPU stays busy",
        source="a watchdog; local-inference-lab/rtx6kpro issue 15",
        check=hung,
    ),
    Rule(
        id="host_bandwidth",
        needed="the rate of the link",
        why="Inputs and, without P2P, all gradients cross it.",
        fix="check slot, riser and the slot's generation in the firmware; memory in all channels",
        source="PCI Express base specifications; see doctor/rates.py",
        check=slow_host,
    ),
    Rule(
        id="shared_link",
        needed="nothing",
        why="They share a link to the CPU, or its memory is the limit: scaling over them meets it too.",
        fix="nothing, or slots of other root ports",
        source="pinned copies, alone and all at once",
        check=shared_links,
    ),
    Rule(
        id="pcie_load",
        needed="full generation and lanes under load",
        why="A link that falls back under load is unstable: retries, lost lanes, lost GPUs.",
        fix="reseat the card, replace the riser, or set the slot one generation lower for a steady link",
        source="NVML link samples while copies ran; local-inference-lab/rtx6kpro issue 88",
        check=slow_links,
    ),
    Rule(
        id="peer_bandwidth",
        needed="the rate of the link",
        why="P2P that goes through the CPU, or is switched by ACS, is slower than the link.",
        fix="check ACS and the IOMMU; GPUs below one switch",
        source="PCI Express base specifications; see doctor/rates.py",
        check=slow_peers,
    ),
)
