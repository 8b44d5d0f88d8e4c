"""Rules about nodes of one cluster held against each other: drivers, software, GPUs, clocks (playbook P1, P23).

Pure. What is wrong with one node alone is the other rules' matter. Caller: `doctor.cluster`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass

from rtxscale.doctor.facts import Facts
from rtxscale.doctor.finding import Hit, RuleText, Severity
from rtxscale.telemetry.clock_offset import ClockOffset

SKEW_S = 0.1
"""A telemetry sample is taken this often: clocks farther apart put a node's samples into the wrong window."""


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """One node: our name for it, its address, what was found there or why nothing was, and its clock against ours.

    `versions` are those of what must be equal everywhere and no `Facts` hold: Python and rtxscale.
    """

    name: str
    address: str = ""
    facts: Facts | None = None
    problem: str = ""
    clock: ClockOffset | None = None
    versions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class ClusterFacts:
    """All nodes, the head first."""

    nodes: tuple[NodeFacts, ...]

    @property
    def answering(self) -> tuple[tuple[str, Facts], ...]:
        """Names and facts of the nodes that answered."""
        return tuple((node.name, node.facts) for node in self.nodes if node.facts is not None)


@dataclass(frozen=True, kw_only=True)
class ClusterRule(RuleText):
    """One thing in which nodes are held against each other."""

    check: Callable[[ClusterFacts], Iterable[Hit]]


def differing(pairs: Iterable[tuple[str, Hashable | None]]) -> str:
    """What differs between nodes in words, empty where nothing does; a node of which it is not known is left out.

    >>> differing([("node0", "2.27.5"), ("node1", "2.26.2"), ("node2", None), ("node3", "2.27.5")])
    '2.27.5 on node0 and node3, 2.26.2 on node1'
    """
    groups: dict[Hashable, list[str]] = {}
    for name, value in pairs:
        if value is not None:
            groups.setdefault(value, []).append(name)
    if len(groups) < 2:
        return ""
    return ", ".join(f"{value} on {_names(names)}" for value, names in groups.items())


def _names(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def silent_nodes(cluster: ClusterFacts) -> Iterator[Hit]:
    """Nodes of which nothing could be learnt."""
    for node in cluster.nodes:
        if node.facts is None:
            yield Hit(severity=Severity.ERROR, found=f"{node.name}: {node.problem or 'no answer'}")


def drivers(cluster: ClusterFacts) -> Iterator[Hit]:
    """Different drivers."""
    if said := differing((name, facts.driver.version) for name, facts in cluster.answering if facts.gpus):
        yield Hit(severity=Severity.WARNING, found=f"driver {said}")


def nccls(cluster: ClusterFacts) -> Iterator[Hit]:
    """Different versions of NCCL."""
    if said := differing((name, facts.software.nccl) for name, facts in cluster.answering):
        yield Hit(severity=Severity.ERROR, found=f"NCCL {said}")


def torches(cluster: ClusterFacts) -> Iterator[Hit]:
    """Different builds of PyTorch."""
    if said := differing((name, facts.software.torch) for name, facts in cluster.answering):
        yield Hit(severity=Severity.ERROR, found=f"PyTorch {said}")


def software(cluster: ClusterFacts) -> Iterator[Hit]:
    """Different versions of the rest: Python, rtxscale, Ray, cuDNN."""
    kinds = dict.fromkeys(kind for node in cluster.nodes for kind, _ in node.versions)
    rows = {kind: [(node.name, dict(node.versions).get(kind)) for node in cluster.nodes] for kind in kinds}
    rows["Ray"] = [(name, facts.software.ray) for name, facts in cluster.answering]
    rows["cuDNN"] = [(name, facts.software.cudnn) for name, facts in cluster.answering]
    for kind, pairs in rows.items():
        if said := differing(pairs):
            severity = Severity.WARNING if kind == "cuDNN" else Severity.ERROR
            yield Hit(severity=severity, found=f"{kind} {said}")


def _cards(facts: Facts) -> str:
    counts = Counter(
        f"{gpu.device.name} ({gpu.device.memory_mib or '?'} MiB, {gpu.device.power_limit_w or 0:g} W)"
        for gpu in facts.used
    )
    return " + ".join(f"{count}x {kind}" for kind, count in sorted(counts.items())) or "no GPU"


def cards(cluster: ClusterFacts) -> Iterator[Hit]:
    """Nodes with different GPUs, another number of them, or other power limits."""
    if any(facts.gpus for _, facts in cluster.answering) and (
        said := differing((name, _cards(facts)) for name, facts in cluster.answering)
    ):
        yield Hit(severity=Severity.WARNING, found=said)


def clocks(cluster: ClusterFacts) -> Iterator[Hit]:
    """Clocks that are surely apart."""
    for node in cluster.nodes:
        if node.clock is not None and node.clock.certain_s > SKEW_S:
            yield Hit(
                severity=Severity.WARNING,
                found=f"the clock of {node.name} is {node.clock.offset_s:+.3f} s from the driver's (right to within "
                f"{node.clock.error_s * 1000:.1f} ms)",
            )


CLUSTER_RULES = (
    ClusterRule(
        id="cluster_node",
        needed="an answer from every node",
        why="What is wrong there was not looked at.",
        fix="install rtxscale there in the same place and version, and look at that node's Ray log",
        source="a task on each node",
        check=silent_nodes,
    ),
    ClusterRule(
        id="cluster_driver",
        needed="one driver version on every node",
        why="Clocks, power management and P2P change between drivers: nodes would differ in more than their number.",
        fix="install the same driver on every node",
        source="playbook P23, P24",
        check=drivers,
    ),
    ClusterRule(
        id="cluster_nccl",
        needed="one NCCL version on every node",
        why="Ranks with different versions of NCCL fail to connect, or hang.",
        fix="the same PyTorch on every node, and no other NCCL on LD_LIBRARY_PATH",
        source="NCCL user guide, troubleshooting; playbook P1",
        check=nccls,
    ),
    ClusterRule(
        id="cluster_torch",
        needed="one PyTorch build on every node",
        why="Ranks would run different kernels, and bring different versions of NCCL.",
        fix="install the same versions everywhere: pip install 'rtxscale[matrix]'",
        source="playbook P1, P32",
        check=torches,
    ),
    ClusterRule(
        id="cluster_software",
        needed="the same versions on every node",
        why="Ray refuses nodes of another Ray or Python; rank code of another version measures something else.",
        fix="install the same versions everywhere: pip install 'rtxscale[matrix]'",
        source="Ray documentation, installing Ray; playbook P32",
        check=software,
    ),
    ClusterRule(
        id="cluster_gpus",
        needed="the same GPUs, memory and power limits on every node",
        why="The slowest card sets the pace of every step.",
        fix="sweep over nodes that are alike, or say in the report that they are not",
        source="playbook P6, P23",
        check=cards,
    ),
    ClusterRule(
        id="cluster_clocks",
        needed=f"clocks within {SKEW_S:g} s of each other",
        why="Samples and log lines of several nodes are put beside each other by their times. rtxscale measures the "
        "difference and takes it off its own samples; logs keep it.",
        fix="sudo timedatectl set-ntp true, or chrony with a server that all nodes share",
        source="Cristian's algorithm over Ray calls",
        check=clocks,
    ),
)
CLUSTER_RULE_IDS = tuple(rule.id for rule in CLUSTER_RULES)
