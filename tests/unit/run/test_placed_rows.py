"""Ranks are where the plan has put them: nodes when a session starts, GPUs by UUID in every trial."""

import pytest

from rtxscale.devices.inventory import Gpu, GpuLink, Inventory, Node
from rtxscale.errors import RunError
from rtxscale.plan.model import Placement
from rtxscale.rank.channel import RankReport
from rtxscale.results.schema import table
from rtxscale.run.environment import environment_id, inventory_rows
from rtxscale.run.failures import TrialEnd, judge
from rtxscale.run.session import SessionSpec, check_nodes
from rtxscale.run.trial_rows import misplaced, with_placement

PLANNED = Placement(nodes=("node0", "node0"), gpu_uuids=("GPU-b", "GPU-a"), visible="0,1", link_class="same_root")


def reports(*uuids, outcome="ok"):
    facts = {"gpu_uuids": list(uuids)} if uuids else {}
    return {0: RankReport(rank=0, outcome=outcome, facts=facts), 1: RankReport(rank=1, outcome=outcome)}


def attested(*uuids, placement=PLANNED):
    tables = with_placement({}, ("t", 1), placement, reports(*uuids))
    return tables["attestation"].to_pylist() if tables else []


def test_the_gpus_that_were_used_are_attested_against_the_planned_ones():
    (row,) = attested("GPU-a", "GPU-b")
    assert (row["subject"], row["requested"], row["observed"]) == ("placement", "GPU-a GPU-b", "GPU-a GPU-b")
    assert (row["verdict"], misplaced(PLANNED, reports("GPU-a", "GPU-b"))) == ("honoured", "")
    (row,) = attested("GPU-a", "GPU-c")
    assert row["verdict"] == "refuted"


def test_a_trial_on_other_gpus_is_not_honoured():
    got = reports("GPU-a", "GPU-c")
    words = misplaced(PLANNED, got)
    assert words == "used GPUs GPU-a GPU-c; planned were GPU-a GPU-b"
    verdict = judge(TrialEnd(world=2, reports=got), earlier=(), first_of_session=True, misplaced=words)
    assert (verdict.outcome, verdict.message, verdict.retry) == ("not_honoured", words, False)


def test_a_trial_that_failed_stays_what_it_is():
    got = reports("GPU-c", outcome="crashed")
    verdict = judge(TrialEnd(world=2, reports=got), earlier=(), first_of_session=True, misplaced="used others")
    assert verdict.outcome == "crashed"


def test_other_attestations_stay_and_cpu_workers_have_none():
    own = {"attestation": table("attestation", [{"trial_id": "t", "attempt": 1, "subject": "nccl.algorithm"}])}
    both = with_placement(own, ("t", 1), PLANNED, reports("GPU-a", "GPU-b"))["attestation"].to_pylist()
    assert [row["subject"] for row in both] == ["placement", "nccl.algorithm"]
    assert attested(placement=Placement(nodes=("node0",))) == []
    assert attested(placement=PLANNED) == [], "nothing is known of the GPUs of ranks that did not report"


def test_many_gpus_are_told_by_number_and_hash():
    many = tuple(f"GPU-{place}" for place in range(16))
    placement = Placement(nodes=("node0",) * 16, gpu_uuids=many, visible="0")
    (row,) = attested(*reversed(many), placement=placement)
    assert row["requested"].startswith("16 GPUs, SHA-256 of their UUIDs ")
    assert row["verdict"] == "honoured"


def test_ranks_on_other_nodes_end_the_session():
    spec = SessionSpec(session_id="s", placement=PLANNED, device="cuda", threads=1, environment={})
    check_nodes(["node0", "node0"], spec)
    with pytest.raises(RunError, match=r"found its ranks on \{'node0': 1, 'node1': 1\}; expected \{'node0': 2\}"):
        check_nodes(["node1", "node0"], spec)


def test_the_inventory_is_recorded_and_changes_no_environment():
    gpus = tuple(Gpu(name="RTX", uuid=f"GPU-{place}", index=place) for place in (2, 3))
    used = Node(node_id="node0", cpus=8, gpus=gpus, links=(GpuLink(a="GPU-2", b="GPU-3", label="PHB"),))
    cluster = Inventory(nodes=(used, Node(node_id="node1", cpus=4)))
    rows = inventory_rows(cluster, Inventory(nodes=(used,)))
    assert [(row["node"], row["name"], row["value"]) for row in rows] == [
        ("node0", "GPUs", "2x RTX"),
        ("node0", "CPU cores", "8"),
        ("node0", "links by GPU index", "2-3 PHB"),
        ("node0", "pool", "used"),
        ("node1", "GPUs", "none"),
        ("node1", "CPU cores", "4"),
        ("node1", "links by GPU index", "not applicable"),
        ("node1", "pool", "left out"),
    ]
    fact = {"node": "workers", "subject": "software", "name": "torch", "value": "2.11"}
    assert environment_id([fact, *rows]) == environment_id([fact])
