"""A run knows its nodes again, whatever their order, and goes on where one of them is away."""

import contextlib
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtxscale.devices.inventory import Gpu, GpuLink, Node
from rtxscale.errors import ResultsError
from rtxscale.results.schema import table
from rtxscale.run.environment import environment_id, environment_rows, environment_table
from rtxscale.run.roster import Found, member_rows, recorded, roster_of


def fact(name, value, subject="host"):
    return {"subject": subject, "name": name, "value": value}


def with_gpus(name, *uuids):
    gpus = tuple(
        Gpu(name="NVIDIA GeForce RTX 5090", uuid=uuid, index=place, memory_mib=32607, power_limit_w=575.0)
        for place, uuid in enumerate(uuids)
    )
    links = tuple(GpuLink(a=uuids[0], b=uuid, label="PHB") for uuid in uuids[1:])
    facts = [fact(f"gpu{place} uuid", uuid, "gpu") for place, uuid in enumerate(uuids)]
    return Found(node=Node(node_id=name, cpus=16, gpus=gpus, links=links), notes=("new driver",), host=tuple(facts))


def without_gpus(name, cpus=2, memory="8 MiB"):
    facts = (fact("cpus usable", str(cpus)), fact("memory", memory))
    return Found(node=Node(node_id=name, cpus=cpus), host=facts)


def written(*found):
    """The rows of a run's environment table that began on these nodes, as they are read back."""
    hosts = {one.node.node_id: one.host for one in found}
    rows = [*environment_rows(hosts, [fact("torch", "2.14", "software")]), *member_rows(one.node for one in found)]
    return environment_table(rows, "e" * 12).to_pylist()


A, B, C = with_gpus("node0", "GPU-a", "GPU-b"), with_gpus("node1", "GPU-c"), with_gpus("node2", "GPU-d")


def test_a_run_that_begins_has_the_nodes_as_they_are():
    roster = roster_of([A, B], recorded([]))
    assert roster.names == {"node0": "node0", "node1": "node1"}
    assert (roster.inventory.nodes, roster.inventory.notes) == ((A.node, B.node), ("new driver",))
    assert list(roster.remarks()) == []


def test_nodes_are_read_back_as_they_were():
    known = recorded(written(A, replace(without_gpus("node1"), node=replace(B.node, nccl_version=(2, 28, 9)))))
    assert known["node0"].node == A.node
    assert known["node1"].node == replace(B.node, nccl_version=(2, 28, 9))
    assert known["node1"].host == (fact("cpus usable", "2"),), "memory decides nothing, as it may grow"


def test_nodes_are_known_by_their_gpus_whatever_their_order():
    there = [A, replace(C, node=replace(C.node, node_id="node1")), replace(B, node=replace(B.node, node_id="node2"))]
    roster = roster_of(there, recorded(written(A, B, C)))
    assert roster.names == {"node0": "node0", "node1": "node2", "node2": "node1"}
    assert roster.inventory.nodes == (A.node, B.node, C.node)
    assert (roster.missing, roster.joined) == ((), ())


def test_a_node_that_is_away_stays_in_the_run_and_its_place_goes_to_nobody():
    roster = roster_of([A, replace(C, node=replace(C.node, node_id="node1"))], recorded(written(A, B, C)))
    assert roster.names == {"node0": "node0", "node1": "node2"}
    assert roster.inventory.nodes == (A.node, B.node, C.node)
    assert roster.missing == ("node1",)
    assert "node1 of this run is not in the cluster: the rest goes on" in next(roster.remarks())


def test_the_environment_is_the_same_while_a_node_is_away_and_another_when_one_has_changed():
    def identity(found):
        hosts = roster_of(found, recorded(written(A, B, C))).hosts
        return environment_id(environment_rows(hosts, [fact("torch", "2.14", "software")]))

    changed = replace(C, host=(*C.host, fact("kernel", "6.12")))
    assert identity([A, B, C]) == identity([A, C]) == identity([C])
    assert identity([A, changed]) != identity([A, C])


def test_machines_without_gpus_are_as_good_as_each_other():
    three = [without_gpus(f"node{place}", memory=f"{place} MiB") for place in range(3)]
    roster = roster_of([three[0], three[2]], recorded(written(*three)))
    assert roster.names == {"node0": "node0", "node2": "node2"}
    assert roster.missing == ("node1",)
    smaller = [without_gpus("node0"), without_gpus("node1", cpus=1)]
    assert roster_of([smaller[1], smaller[0]], recorded(written(*smaller))).names == {
        "node0": "node0",
        "node1": "node1",
    }


def test_a_node_that_has_joined_since_is_left_out():
    roster = roster_of([A, B, C], recorded(written(A, B)))
    assert roster.inventory.nodes == (A.node, B.node)
    assert (roster.joined, "node2" in roster.names) == (("node2",), False)
    assert "1 node joined the cluster after this run began: left out; --fresh" in next(roster.remarks())


def test_one_that_is_not_known_again_takes_the_place_of_one_that_is_away():
    roster = roster_of([A, C], recorded(written(A, B)))
    assert roster.names == {"node0": "node0", "node2": "node1"}
    assert (roster.missing, roster.joined) == ((), ())
    assert roster.inventory.nodes[1].gpus == C.node.gpus


@pytest.mark.parametrize(
    "value",
    [
        "",
        "{}",
        "[]",
        '{"cpus": 2}',
        '{"cpus": Infinity, "nccl_version": null, "links": [], "gpus": []}',
        '{"cpus": 2, "nccl_version": null, "links": [], "gpus": [{"name": "a"}]}',
    ],
)
def test_a_damaged_record_is_refused(value):
    rows = table("environment", [{"node": "n", "subject": "member", "name": "as data", "value": value}])
    with pytest.raises(ResultsError, match="damaged record of n"):
        recorded(rows.to_pylist())


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
NODE = st.fixed_dictionaries(dict.fromkeys(("cpus", "gpus", "nccl_version", "links"), ANYTHING))


@given(NODE | ANYTHING)
def test_whatever_stands_in_a_record_is_read_or_refused(data):
    row = {"node": "n", "subject": "member", "name": "as data", "value": json.dumps(data)}
    with contextlib.suppress(ResultsError):
        assert recorded([row])["n"].node.node_id == "n"
