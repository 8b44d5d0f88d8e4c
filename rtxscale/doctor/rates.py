"""What a link should carry, as data with sources: PCIe by generation and lanes, and all-reduce over each kind of path.

Bands, not promises: what lies inside one needs no explanation, what lies below has a cause. GB/s: 1e9 bytes a second.
Callers: `doctor.link_rules`, `doctor.transfer_rules`.
"""

from __future__ import annotations

from dataclasses import dataclass

# Source: PCI Express base specifications: transfer rate in GT/s a lane; 8b/10b coding up to 2.0, 128b/130b up to 5.0.
TRANSFERS_GT_S = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
CODING = {1: 0.8, 2: 0.8, 3: 128 / 130, 4: 128 / 130, 5: 128 / 130, 6: 1.0}
COPY_SHARE = (0.78, 0.93)
"""Share of a link's rate that a large copy reaches: packet headers cost some 9 % at 256 bytes of payload, and 55.6 to
56.6 of 63 GB/s were seen between RTX 5090s on PCIe 5 x16 (aikitoria/open-gpu-kernel-modules, README)."""
HOST_PATH_SHARE = (0.35, 0.57)
"""Share that all-reduce (bus bandwidth) reaches through host memory; see `HOST_PATH_SEEN`."""
PEER_SHARE = (0.60, 0.85)
"""Share that all-reduce reaches with P2P over PCIe; see `PEER_SEEN`."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One all-reduce bus bandwidth that somebody measured at large messages."""

    machine: str
    bus_gb_s: float
    source: str

    def __str__(self) -> str:
        """`28 GB/s on 8x RTX 5090 (NVIDIA/nccl issue 1639)`."""
        return f"{self.bus_gb_s:g} GB/s on {self.machine} ({self.source})"


HOST_PATH_SEEN = (
    Seen(machine="2x H200 with P2P off", bus_gb_s=27.2, source="README of rtxscale, What was measured"),
    Seen(machine="4x RTX 5090", bus_gb_s=35, source="NVIDIA/nccl issue 1639"),
    Seen(machine="8x RTX 5090", bus_gb_s=28, source="NVIDIA/nccl issue 1639"),
)
PEER_SEEN = (
    Seen(
        machine="8x RTX 5090 with a patched driver",
        bus_gb_s=45.0,
        source="aikitoria/open-gpu-kernel-modules, README",
    ),
)
NVLINK_SEEN = (Seen(machine="2x H200, 18 NVLinks", bus_gb_s=312.7, source="README of rtxscale, What was measured"),)


@dataclass(frozen=True, kw_only=True)
class Band:
    """From and to, GB/s."""

    low: float
    high: float

    def __str__(self) -> str:
        """`22-36 GB/s`."""
        return f"{self.low:.0f}-{self.high:.0f} GB/s"


def link_gb_s(generation: int, lanes: int) -> float | None:
    """Rate of a PCIe link in one direction after line coding, GB/s; None for a generation that is not known.

    >>> round(link_gb_s(5, 16), 1), round(link_gb_s(4, 8), 2)
    (63.0, 15.75)
    """
    if generation not in TRANSFERS_GT_S:
        return None
    return TRANSFERS_GT_S[generation] * CODING[generation] / 8 * lanes


def band(generation: int, lanes: int, share: tuple[float, float]) -> Band | None:
    """That share of the link's rate.

    >>> str(band(4, 16, COPY_SHARE)), str(band(5, 16, HOST_PATH_SHARE))
    ('25-29 GB/s', '22-36 GB/s')
    """
    rate = link_gb_s(generation, lanes)
    return None if rate is None else Band(low=share[0] * rate, high=share[1] * rate)


def algorithm_band(bus: Band, gpus: int) -> Band:
    """The same all-reduce as algorithm bandwidth: message size over time, bus bandwidth divided by 2(n-1)/n.

    Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md.

    >>> str(algorithm_band(Band(low=22, high=36), 4))
    '15-24 GB/s'
    """
    factor = 2 * (gpus - 1) / gpus
    return Band(low=bus.low / factor, high=bus.high / factor)
