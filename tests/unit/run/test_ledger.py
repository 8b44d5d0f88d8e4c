"""What a run is measured with is written before its first trial, and what is held back comes with the next commit."""

import pytest
from planned import planned_session

from rtxscale.devices.inventory import Node
from rtxscale.errors import ResultsError, StorageOutage
from rtxscale.results.schema import table
from rtxscale.results.write import RunWriter
from rtxscale.run.hub import Registered
from rtxscale.run.ledger import Ledger
from rtxscale.run.roster import member_rows, recorded
from rtxscale.spec.sweep import Sweep

WORKLOAD = planned_session("s", 1.0).trials[0].trial.cell.workload
SWEEP = Sweep(name="kept", question="Why?", study="weak", workload=WORKLOAD, axes={"gpus": (1, 2)})
HOSTS = {name: [{"subject": "host", "name": "cpus usable", "value": "2"}] for name in ("node0", "node1")}
EXAMINED = member_rows([Node(node_id="node0", cpus=2), Node(node_id="node1", cpus=2)])


class AtOnce:
    """A storage that is there, or away for the next so many writes."""

    def __init__(self, away=0):
        self.away = away

    def until_done(self, write):
        if self.away:
            self.away -= 1
            raise StorageOutage("away")
        write()


def ranks(version="2.14"):
    software = ({"subject": "software", "name": "torch", "value": version},)
    return [Registered(rank=rank, pid=rank, node="n", software=software) for rank in (0, 1)]


def logs(text):
    return table("logs", [{"trial_id": "a", "attempt": 1, "source": "driver", "place": 0, "line": text, "count": 1}])


@pytest.fixture
def writer(tmp_path):
    with RunWriter.open(tmp_path, SWEEP, "name: kept\n") as opened:
        yield opened


def test_the_nodes_of_a_run_are_on_disk_before_its_first_trial(writer):
    ledger = Ledger(writer, AtOnce(), hosts=HOSTS, examined=EXAMINED)
    ledger.check_environment(ranks())
    assert list(recorded(writer.rows("environment"))) == ["node0", "node1"]
    assert {row["environment_id"] for row in writer.rows("environment")} == {ledger.environment_id}
    before = writer.rows("environment")
    ledger.check_environment(ranks())
    Ledger(writer, AtOnce(), hosts=HOSTS, examined=EXAMINED).check_environment(ranks())
    assert writer.rows("environment") == before


def test_only_what_is_new_is_added_when_a_run_is_continued(writer):
    Ledger(writer, AtOnce(), hosts=HOSTS, examined=EXAMINED).check_environment(ranks())
    before = writer.rows("environment")
    finding = {"node": "node0", "subject": "doctor", "name": "clock", "value": "warning"}
    Ledger(writer, AtOnce(), hosts=HOSTS, examined=[*EXAMINED, finding]).check_environment(ranks())
    assert [row["subject"] for row in writer.rows("environment")[len(before) :]] == ["doctor"]


def test_another_environment_is_refused_with_what_differs(writer):
    Ledger(writer, AtOnce(), hosts=HOSTS, examined=EXAMINED).check_environment(ranks())
    with pytest.raises(ResultsError, match=r"what differs: torch was 2\.14, is 2\.15"):
        Ledger(writer, AtOnce(), hosts=HOSTS, examined=EXAMINED).check_environment(ranks("2.15"))


def test_rows_that_are_held_back_come_with_the_next_commit_even_if_that_is_tried_twice(writer):
    ledger = Ledger(writer, AtOnce(away=1), hosts=HOSTS, examined=EXAMINED)
    ledger.hold("logs", logs("one"))
    ledger.hold("logs", logs("two"))
    assert writer.rows("logs") == []
    with pytest.raises(StorageOutage):
        ledger.commit({"logs": logs("three")})
    ledger.commit({"logs": logs("three")})
    ledger.commit({"logs": logs("four")})
    assert [row["line"] for row in writer.rows("logs")] == ["one", "two", "three", "four"]
