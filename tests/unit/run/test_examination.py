"""The doctor on nodes, without a cluster: who is asked, what a silent node becomes, what stops a sweep."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from rtxscale.doctor.cluster import examine_nodes
from rtxscale.doctor.cluster_rules import ClusterFacts, NodeFacts
from rtxscale.errors import RunError
from rtxscale.run import examination, sweep
from rtxscale.run.nodes import clock_here, offset_of
from rtxscale.run.ray_setup import ray
from rtxscale.telemetry.clock_offset import SAME_CLOCK

sys.path.insert(0, str(Path(__file__).parents[1]))
from doctor.made_facts import gpu, machine

NODE = {"NodeID": "a", "NodeManagerAddress": "10.0.0.2"}


def request(**fields):
    return SimpleNamespace(
        ignore=(), results_root=Path("/r"), sweep=SimpleNamespace(hardware=SimpleNamespace(device="auto")), **fields
    )


def watched(nodes):
    return SimpleNamespace(names={f"r{place}": f"node{place}" for place in range(nodes)})


def test_only_clusters_of_several_nodes_are_looked_at_again(monkeypatch):
    asked = []
    monkeypatch.setattr(sweep, "preflight_nodes", lambda *words, **named: asked.append((words, named)) or ("row",))
    assert sweep.nodes_examined(request(), watched(1)) == ()
    assert sweep.nodes_examined(SimpleNamespace(ignore=None), watched(3)) == ()
    assert asked == []
    assert sweep.nodes_examined(request(), watched(2)) == ("row",)
    assert asked == [((Path("/r"), ()), {"on_cpu": False, "names": {"r0": "node0", "r1": "node1"}})]


def found(*facts):
    nodes = tuple(NodeFacts(name=f"node{place}", facts=one) for place, one in enumerate(facts))
    return lambda asked, ignore, names: examine_nodes(ClusterFacts(nodes=nodes), ignore)


def test_an_error_on_any_node_stops_a_sweep_unless_it_is_ignored(monkeypatch):
    mixed = machine([gpu(0), gpu(1, "4090")])
    monkeypatch.setattr(examination, "examine_cluster", found(machine(), mixed))
    with pytest.raises(RunError, match="node1: mixed_generations"):
        examination.preflight_nodes(Path("/r"), (), on_cpu=False, names={})
    rows = examination.preflight_nodes(Path("/r"), ("mixed_generations",), on_cpu=False, names={})
    assert any(row["node"] == "node1" and "ignored by the user" in row["value"] for row in rows)
    on_cpu = examination.preflight_nodes(Path("/r"), (), on_cpu=True, names={})
    assert "mixed_generations" not in {row["name"] for row in on_cpu}


def test_a_node_that_is_silent_or_fails_is_a_finding(monkeypatch):
    silent = examination._node_facts("node1", NODE, None, None, 120.0)
    assert (silent.name, silent.address, silent.problem) == ("node1", "10.0.0.2", "no answer in 120 s")

    def fail(*_, **__):
        raise ray.exceptions.RaySystemError("ModuleNotFoundError: No module named 'rtxscale'")

    monkeypatch.setattr(examination.ray, "get", fail)
    failed = examination._node_facts("node0", NODE, None, object(), 120.0)
    assert "No module named 'rtxscale'" in failed.problem
    assert failed.facts is None


class Elsewhere:
    """An actor on another machine whose clock is ahead."""

    def __init__(self, kernel, ahead_ns):
        self.clock = SimpleNamespace(remote=lambda: (kernel, clock_here()[1] + ahead_ns))


def test_the_clock_of_another_machine_is_compared_and_ones_own_is_not(monkeypatch):
    monkeypatch.setattr("rtxscale.run.nodes.ray", SimpleNamespace(get=lambda answer, **_: answer))
    there = offset_of(Elsewhere("another kernel", 5_000_000_000))
    assert there.offset_s == pytest.approx(5, abs=there.error_s + 1e-6)
    assert there.error_s < 0.5
    assert offset_of(Elsewhere(clock_here()[0], 0)) == SAME_CLOCK
    assert offset_of(Elsewhere("", 0)) != SAME_CLOCK  # what tells nothing is no proof


def test_what_a_node_is_asked_to_look_at(monkeypatch, tmp_path):
    looked = {}

    def look(root, **named):
        looked.update(named, root=root)
        return machine([])

    monkeypatch.setattr(examination, "collect", look)
    monkeypatch.setattr(examination, "measure_transfers", lambda _: pytest.fail("quick measures nothing"))
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    facts, versions = examination.Examiner().look(examination.Asked(results_root=str(tmp_path), psu_w=1600.0))
    assert (looked["root"], looked["quick"], looked["psu_w"]) == (tmp_path, True, 1600.0)
    assert "RAY_ADDRESS" not in looked["environment"]
    assert facts == replace(machine([]), transfers=facts.transfers)
    assert dict(versions).keys() == {"Python", "rtxscale"}
