"""Nodes of a cluster held against each other: what differs is found, what is alike or unknown is not."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from rtxscale.cli import doctor as command
from rtxscale.cli.main import app
from rtxscale.doctor.cluster import (
    ALL_RULE_IDS,
    BETWEEN,
    cluster_data,
    cluster_lines,
    cluster_rows,
    examine_nodes,
)
from rtxscale.doctor.cluster_rules import CLUSTER_RULES, ClusterFacts, NodeFacts
from rtxscale.doctor.finding import SUBJECT, Severity
from rtxscale.doctor.preflight import preflight, refuse
from rtxscale.errors import BadInput, RunError
from rtxscale.telemetry.clock_offset import SAME_CLOCK, ClockOffset

from .made_facts import gpu, machine


def cluster(*facts, **changes):
    """Nodes of these facts; `changes` go to the last node."""
    nodes = [
        NodeFacts(name=f"node{place}", address=f"10.0.0.{place + 1}", facts=one, clock=SAME_CLOCK)
        for place, one in enumerate(facts)
    ]
    return ClusterFacts(nodes=(*nodes[:-1], replace(nodes[-1], **changes)))


def between(*facts, **changes):
    return {one.rule: one for one in examine_nodes(cluster(*facts, **changes)).between}


def test_equal_nodes_differ_in_nothing():
    assert between(machine(), machine(), machine()) == {}
    assert between(machine()) == {}


MIXED = [
    ("cluster_driver", {"driver": {"version": "570.86.10"}}, "warning", "580.95.05 on node0 and node2, 570.86.10 on"),
    ("cluster_nccl", {"software": {"nccl": "2.26.2"}}, "error", "NCCL 2.27.5 on node0 and node2, 2.26.2 on node1"),
    ("cluster_torch", {"software": {"torch": "2.8.0+cu128"}}, "error", "PyTorch 2.9.0+cu128 on node0 and node2, 2.8.0"),
    ("cluster_software", {"software": {"ray": "2.59.0"}}, "error", "Ray 2.60.0 on node0 and node2, 2.59.0 on node1"),
    ("cluster_software", {"software": {"cudnn": "9.1.0.70"}}, "warning", "cuDNN 9.10.2.21 on node0 and node2"),
]


@pytest.mark.parametrize(("rule", "parts", "severity", "said"), MIXED)
def test_one_node_with_another_version_is_named(rule, parts, severity, said):
    found = between(machine(), machine(**parts), machine())
    assert set(found) == {rule}
    assert found[rule].severity is Severity(severity)
    assert said in found[rule].found


@pytest.mark.parametrize(
    "cards",
    [
        [gpu(0, "5080"), gpu(1, "5080")],
        [gpu(0)],
        [gpu(0, power_limit_w=450.0), gpu(1)],
        [gpu(0, visible=False), gpu(1)],
        [],
    ],
)
def test_another_set_of_gpus_is_found(cards):
    found = between(machine(), machine(cards))["cluster_gpus"]
    assert found.severity is Severity.WARNING
    assert "2x NVIDIA GeForce RTX 5090 (32607 MiB, 575 W) on node0" in found.found


def test_nodes_without_gpus_are_no_difference_in_drivers():
    assert "cluster_driver" not in between(machine(), machine([], driver={"version": None}))
    assert between(machine([]), machine([])) == {}


@pytest.mark.parametrize(
    ("offset", "error", "found"), [(0.2, 0.01, True), (-0.2, 0.01, True), (0.2, 0.15, False), (0.05, 0.0, False)]
)
def test_clocks_are_only_called_apart_when_they_surely_are(offset, error, found):
    seen = between(machine(), machine(), clock=ClockOffset(offset_s=offset, error_s=error))
    assert ("cluster_clocks" in seen) is found
    if found:
        assert f"node1 is {offset:+.3f} s" in seen["cluster_clocks"].found


def test_a_node_that_does_not_answer_is_an_error_and_hides_nobody():
    found = examine_nodes(cluster(machine(), machine(), machine(), facts=None, problem="no answer in 120 s"))
    assert [one.found for one in found.between] == ["node2: no answer in 120 s"]
    assert [name for name, _ in found.nodes] == ["node0", "node1"]
    assert found.exit_code == 1
    assert "node2: no answer in 120 s" in "\n".join(cluster_lines(found))


def test_versions_that_no_facts_hold():
    nodes = cluster(machine(), machine(), versions=(("Python", "3.12.3"),)).nodes
    nodes = (replace(nodes[0], versions=(("Python", "3.11.7"),)), nodes[1])
    (found,) = examine_nodes(ClusterFacts(nodes=nodes)).between
    assert found.found == "Python 3.11.7 on node0, 3.12.3 on node1"


def test_findings_of_one_node_and_ignored_ones():
    mixed = machine([gpu(0), gpu(1, "4090")])
    nodes = cluster(mixed, machine(software={"nccl": "2.26.2"}))
    found = examine_nodes(nodes)
    assert {(name, one.rule) for name, one in found.errors} == {("", "cluster_nccl"), ("node0", "mixed_generations")}
    assert examine_nodes(nodes, ["cluster_nccl", "mixed_generations"]).exit_code == 0
    assert examine_nodes(nodes, ["cluster_nccl"]).exit_code == 1
    with pytest.raises(BadInput, match="cluster_nccl"):
        examine_nodes(nodes, ["cluster_ncl"])


def test_a_rule_that_fails_is_said_and_stops_nothing(monkeypatch):
    broken = replace(CLUSTER_RULES[0], check=lambda _: 1 / 0)
    monkeypatch.setattr("rtxscale.doctor.cluster.CLUSTER_RULES", (broken, *CLUSTER_RULES[1:]))
    found = examine_nodes(cluster(machine(), machine(software={"nccl": "2.26.2"})))
    assert {one.rule for one in found.between} == {CLUSTER_RULES[0].id, "cluster_nccl"}


def test_rules_of_machine_and_cluster_have_names_of_their_own():
    assert len(set(ALL_RULE_IDS)) == len(ALL_RULE_IDS)
    for rule in CLUSTER_RULES:
        assert all((rule.needed, rule.why, rule.fix, rule.source)), rule.id


def test_text_fits_a_terminal_and_json_holds_each_nodes_own():
    found = examine_nodes(cluster(machine(), machine(software={"nccl": "2.26.2"})))
    text = list(cluster_lines(found))
    assert max(map(len, text)) <= 80
    assert text[0].startswith("2 nodes")
    data = json.loads(json.dumps(cluster_data(found), allow_nan=False))
    assert [node["name"] for node in data["nodes"]] == ["node0", "node1"]
    assert data["nodes"][1]["examination"]["machine"]["software"]["nccl"] == "2.26.2"
    assert data["exit_code"] == 1
    assert data["between"][0]["severity"] == "error"


def test_findings_are_kept_by_node_and_errors_stop_a_sweep_unless_ignored():
    nodes = cluster(machine([gpu(0), gpu(1, "4090")]), machine(software={"nccl": "2.26.2"}))
    kept = list(cluster_rows(examine_nodes(nodes)))
    assert {(row["node"], row["name"]) for row in kept} >= {("node0", "mixed_generations"), (BETWEEN, "cluster_nccl")}
    assert {row["subject"] for row in kept} == {SUBJECT}
    with pytest.raises(RunError, match="node0: mixed_generations") as error:
        refuse(examine_nodes(nodes).errors)
    assert "--ignore cluster_nccl --ignore mixed_generations" in str(error.value)
    refuse(examine_nodes(nodes, ["cluster_nccl", "mixed_generations"]).errors)


def test_rules_of_the_cluster_may_be_ignored_before_it_is_known(tmp_path, monkeypatch):
    monkeypatch.setattr("rtxscale.doctor.preflight.collect", lambda *_, **__: machine())
    assert preflight(tmp_path, ["cluster_nccl"]).exit_code == 0


def test_the_command_asks_the_cluster_that_it_is_given(monkeypatch, tmp_path):
    asked = []

    def ask(address, *_, **__):
        asked.append(address)
        return examine_nodes(cluster(machine(), machine(software={"nccl": "2.26.2"})))

    monkeypatch.setattr(command, "_examine_cluster", ask)
    words = ["doctor", "--address", "10.0.0.1:6379", "--results", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, asked) == (1, ["10.0.0.1:6379"])
    assert "error: cluster_nccl" in done.output
    assert json.loads(CliRunner().invoke(app, [*words, "--json"]).output)["exit_code"] == 1


def test_rules_of_the_cluster_are_none_of_one_machine(tmp_path):
    done = CliRunner().invoke(app, ["doctor", "--ignore", "cluster_nccl", "--results", str(tmp_path)])
    assert done.exit_code == 2
