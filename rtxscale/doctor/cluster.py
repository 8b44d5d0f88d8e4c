"""The examination of a whole cluster: every node by itself, then the nodes against each other; text and JSON of it.

Pure: `run.examination` asks the nodes. Callers: `cli.doctor`, `run.sweep`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rtxscale.doctor.cluster_rules import CLUSTER_RULE_IDS, CLUSTER_RULES, ClusterFacts, ClusterRule, NodeFacts
from rtxscale.doctor.examine import RULE_IDS, Examination, check_names, examine
from rtxscale.doctor.finding import SUBJECT, Finding, Hit, Severity, finding
from rtxscale.doctor.show import JSON_SHAPE, as_data, environment_rows, finding_lines, lines, short_line, wrapped
from rtxscale.spec.printable import printable

ALL_RULE_IDS = (*RULE_IDS, *CLUSTER_RULE_IDS)
BETWEEN = "cluster"
"""Stands in for a node in rows about several."""


@dataclass(frozen=True, kw_only=True)
class ClusterExamination:
    """What was found on each node that answered, and between all of them; worst first."""

    cluster: ClusterFacts
    nodes: tuple[tuple[str, Examination], ...]
    between: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[tuple[str, Finding], ...]:
        """Errors that are not ignored, with the node; those between nodes come first, with no node."""
        found = [("", one) for one in self.between if one.severity is Severity.ERROR and not one.ignored]
        return (*found, *((name, one) for name, examination in self.nodes for one in examination.errors))

    @property
    def exit_code(self) -> int:
        """1 for an error that is not ignored on any node or between them, else 0."""
        return 1 if self.errors else 0


def examine_nodes(cluster: ClusterFacts, ignore: Collection[str] = ()) -> ClusterExamination:
    """All rules on every node, and the cluster's rules over all of them.

    Raises:
        BadInput: a name in `ignore` is no rule.
    """
    check_names(ignore, ALL_RULE_IDS)
    own = [name for name in ignore if name in RULE_IDS]
    found = [finding(rule, hit, ignored=rule.id in ignore) for rule in CLUSTER_RULES for hit in _checked(rule, cluster)]
    return ClusterExamination(
        cluster=cluster,
        nodes=tuple((name, examine(facts, own)) for name, facts in cluster.answering),
        between=tuple(sorted(found, key=lambda one: (one.ignored, one.severity.rank))),
    )


def _checked(rule: ClusterRule, cluster: ClusterFacts) -> Iterator[Hit]:
    try:
        yield from rule.check(cluster)
    except Exception as error:  # a fault in one rule must not hide the other findings
        yield Hit(
            severity=Severity.WARNING,
            found=f"this rule failed: {type(error).__name__}: {error}",
            needed="a rule that can judge this cluster",
            why="What it looks at was not checked.",
            fix="please report it with the output of `rtxscale doctor --json`",
        )


def cluster_rows(examination: ClusterExamination) -> Iterator[dict[str, str]]:
    """What is kept with a run: the findings of each node, and those between nodes, as rows of the environment table."""
    for name, one in examination.nodes:
        yield from environment_rows(one, name)
    for finding_between in examination.between:
        yield {
            "node": BETWEEN,
            "subject": SUBJECT,
            "name": finding_between.rule,
            "value": printable(short_line(finding_between)),
        }


def cluster_lines(examination: ClusterExamination) -> Iterator[str]:
    """The whole examination for a terminal: what differs between nodes first, then node by node."""
    nodes = examination.cluster.nodes
    yield f"{len(nodes)} node{'s' * (len(nodes) != 1)}, {len(CLUSTER_RULE_IDS)} rules looked at between them"
    if not examination.between:
        yield "nothing found between them"
    for one in examination.between:
        yield ""
        yield from finding_lines(one)
    found = dict(examination.nodes)
    for node in nodes:
        yield ""
        yield from wrapped(node_line(node))
        if node.name in found:
            yield from lines(found[node.name])


def node_line(node: NodeFacts) -> str:
    """A node's name, address and clock in a line.

    >>> node_line(NodeFacts(name="node1", address="10.0.0.2"))
    'node1 (10.0.0.2), clock not compared:'
    """
    clock = "not compared"
    if node.clock is not None:
        clock = f"{node.clock.offset_s:+.4f} s from the driver's, right to within {node.clock.error_s * 1000:.1f} ms"
    return f"{node.name} ({node.address}), clock {clock}:"


def cluster_data(examination: ClusterExamination) -> dict[str, Any]:
    """The examination as JSON data: `nodes` hold what `rtxscale doctor --json` says of one machine."""
    found = dict(examination.nodes)
    return {
        "shape": JSON_SHAPE,
        "exit_code": examination.exit_code,
        "nodes": [
            {
                "name": node.name,
                "address": node.address,
                "problem": node.problem or None,
                "clock": None if node.clock is None else asdict(node.clock),
                "versions": dict(node.versions),
                "examination": as_data(found[node.name]) if node.name in found else None,
            }
            for node in examination.cluster.nodes
        ],
        "between": [{**asdict(one), "severity": one.severity.value} for one in examination.between],
        "rules": list(ALL_RULE_IDS),
    }
