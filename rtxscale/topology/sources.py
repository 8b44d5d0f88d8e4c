"""What several sources say about the same pairs of GPUs, side by side, and where they disagree.

Nobody wins here: a disagreement is data, with a likely reason where one is known. Callers: the doctor, the report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from rtxscale.topology.links import Link, LinkClass
from rtxscale.topology.nccl_graph import PATH_TYPES, NcclGraph, node_name
from rtxscale.topology.smi import Topology

Pair = tuple[str, str]
NVML, SMI, NCCL = "NVML", "nvidia-smi topo -m", "NCCL"
_THROUGH_HOST = frozenset({LinkClass.PHB, LinkClass.NODE, LinkClass.SYS})
_NEARER_THAN_HOST = frozenset({LinkClass.NVLINK, LinkClass.BOARD, LinkClass.PIX, LinkClass.PXB})


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What one source says of one pair: its own word, and which classes that word can stand for."""

    source: str
    label: str
    classes: frozenset[LinkClass]
    nvlinks: int | None = None


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """A pair on which the sources cannot all be right."""

    pair: Pair
    claims: tuple[Claim, ...]
    likely_reason: str | None = None

    def __str__(self) -> str:
        """One line: `GPU0-GPU1: NVML says NV18, NCCL says PHB`."""
        said = ", ".join(f"{claim.source} says {claim.label}" for claim in self.claims)
        return f"{self.pair[0]}-{self.pair[1]}: {said}"


def claims_of_links(source: str, links: Mapping[Pair, Link]) -> dict[Pair, tuple[Claim, ...]]:
    """Claims from links keyed by pairs in either order; both directions count where they differ."""
    claims: dict[Pair, dict[Claim, None]] = {}
    for (a, b), link in links.items():
        claim = Claim(source=source, label=link.label, classes=frozenset({link.kind}), nvlinks=link.nvlinks)
        claims.setdefault((a, b) if (b, a) not in claims else (b, a), {})[claim] = None
    return {pair: tuple(found) for pair, found in claims.items()}


def claims_of_topology(topology: Topology) -> dict[Pair, tuple[Claim, ...]]:
    """Claims of nvidia-smi about pairs of GPUs; none where it printed no matrix."""
    gpus = set(topology.gpus)
    return claims_of_links(SMI, {pair: link for pair, link in topology.links.items() if gpus.issuperset(pair)})


def claims_of_nccl(graph: NcclGraph, bus_ids: Mapping[str, str]) -> dict[Pair, tuple[Claim, ...]]:
    """Claims of NCCL about the GPUs named in `bus_ids` (name to PCI bus id), on the first host of the log."""
    nodes = {gpu: node_name(bus_id) for gpu, bus_id in bus_ids.items()}
    claims: dict[Pair, tuple[Claim, ...]] = {}
    for a, b in combinations(nodes, 2):
        ends = {nodes[a], nodes[b]}
        # Old versions of NCCL leave the host out of the name.
        kinds = [path.kind for path in graph.paths if {_with_system(path.source), _with_system(path.target)} == ends]
        if kinds:
            claims[a, b] = tuple(_nccl_claim(kind) for kind in dict.fromkeys(kinds))
    return claims


def disagreements(claims: Iterable[Mapping[Pair, Sequence[Claim]]]) -> tuple[Disagreement, ...]:
    """Pairs on which two claims exclude each other, in the order of their first mention.

    A source that says nothing about a pair disagrees with nobody.
    """
    by_pair: dict[Pair, list[Claim]] = {}
    for source in claims:
        for (a, b), said in source.items():
            by_pair.setdefault((b, a) if (b, a) in by_pair else (a, b), []).extend(said)
    return tuple(
        Disagreement(pair=pair, claims=tuple(said), likely_reason=_likely_reason(said))
        for pair, said in by_pair.items()
        if any(not _compatible(one, other) for one, other in combinations(said, 2))
    )


def _compatible(one: Claim, other: Claim) -> bool:
    if not one.classes & other.classes:
        return False
    if LinkClass.OTHER in one.classes & other.classes:
        return one.label == other.label
    return None in (one.nvlinks, other.nvlinks) or one.nvlinks == other.nvlinks


def _likely_reason(claims: Sequence[Claim]) -> str | None:
    nccl = [claim for claim in claims if claim.source == NCCL]
    others = [claim for claim in claims if claim.source != NCCL]
    if len({claim.label for claim in nccl}) > 1:
        return "NCCL's log has communicators with different settings, or ranks that see different things"
    if any(claim.classes <= _THROUGH_HOST for claim in nccl) and any(
        claim.classes <= _NEARER_THAN_HOST for claim in others
    ):
        return "NCCL goes through the host although a nearer way exists: peer access is off or was not granted"
    return None


def _nccl_claim(kind: str) -> Claim:
    classes, _ = PATH_TYPES.get(kind, (frozenset({LinkClass.OTHER}), ""))
    return Claim(source=NCCL, label=kind, classes=classes or frozenset({LinkClass.OTHER}))


def _with_system(name: str) -> str:
    return name if "-" in name else name.replace("/", "/0-")
