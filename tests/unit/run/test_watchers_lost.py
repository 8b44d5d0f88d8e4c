"""A telemetry actor that is lost is replaced, a node that is lost is dropped, and both are said."""

from types import SimpleNamespace

import pytest
from ray.exceptions import ActorDiedError

from rtxscale.devices.inventory import Node
from rtxscale.errors import RunError
from rtxscale.results.schema import table
from rtxscale.run import nodes as nodes_module
from rtxscale.run import watchers as watchers_module
from rtxscale.run.watchers import COLLECT_S, Watchers, _Post
from rtxscale.telemetry.sampler import Gaps


class Actor:
    """Answers at once, or raises as a dead one does; `heard` is what it was told, `gaps` what it says it missed."""

    def __init__(self, name, *, dead=False):
        self.name, self.dead, self.heard, self.gaps = name, dead, [], Gaps()

    def __getattr__(self, method):
        def remote(*arguments):
            def answer():
                if self.dead:
                    raise ActorDiedError
                self.heard.append((method, *arguments))
                facts = (Node(node_id=self.name, cpus=8), ("a note",), [{"name": "os"}])
                sampled = table("telemetry", [{"node": self.name, "device": "host", "t_ns": len(self.heard)}])
                answers = {"latest": {"power_w": 10.0}, "end_processes": [], "facts": facts}
                return (answers | {"drain": (sampled, self.gaps)}).get(method, self.name)

            return answer

        return SimpleNamespace(remote=remote)


class Cluster:
    """Two nodes with an actor each; `starts_dead` names the nodes on which a new one does not come up."""

    def __init__(self, monkeypatch, *dead, starts_dead=(), alive=("r0", "r1")):
        self.notes, self.killed = [], []
        self.actors = {name: [Actor(name, dead=name in dead)] for name in ("node0", "node1")}
        posts = [
            _Post(name=f"node{n}", ray_id=f"r{n}", cpus=1, gpus=0, sweep="s", run_id="t", actor=self.last(f"node{n}"))
            for n in (0, 1)
        ]
        self.watchers = Watchers(posts)
        self.watchers.note = self.notes.append

        def get(reference, timeout):
            return [one() for one in reference] if isinstance(reference, list) else reference()

        def started(post):
            self.actors.setdefault(post.name, []).append(Actor(f"new {post.name}", dead=post.name in starts_dead))
            return watchers_module.replace(post, actor=self.last(post.name), starts=post.starts + 1)

        fake = SimpleNamespace(get=get, kill=self.killed.append, exceptions=watchers_module.ray.exceptions)
        monkeypatch.setattr(watchers_module, "ray", fake)
        monkeypatch.setattr(_Post, "started", started)
        monkeypatch.setattr(watchers_module, "alive_nodes", lambda: [{"NodeID": one} for one in alive])

    def last(self, name):
        return self.actors[name][-1]


def test_a_lost_actor_is_replaced_and_told_what_it_must_know(monkeypatch):
    cluster = Cluster(monkeypatch)
    cluster.watchers.set_session("s1", [("r1", 42), ("r0", 7)])
    old = cluster.last("node1")
    old.dead = True
    assert cluster.watchers._ask(lambda post: post.actor.who.remote()) == ["node0", "new node1"]
    assert cluster.last("node1").heard == [("set_session", "s1", [42]), ("who",)]
    assert cluster.killed == [old]
    (note,) = cluster.notes
    assert note.startswith("telemetry of node1 was lost and started again: up to ")
    assert cluster.watchers._ask(lambda post: post.actor.who.remote()) == ["node0", "new node1"]
    assert len(cluster.notes) == 1


def test_a_lost_node_is_dropped_and_the_others_answer(monkeypatch):
    cluster = Cluster(monkeypatch, "node1", starts_dead=("node1",), alive=("r0",))
    cluster.watchers.end_processes([("r1", 42)])
    assert cluster.watchers.lost == ["node1"]
    assert cluster.notes == ["lost node1: it does not belong to the cluster any more; going on with the others"]
    assert cluster.watchers._ask(lambda post: post.actor.who.remote()) == ["node0"]
    assert (cluster.watchers.ray_id("node1"), cluster.watchers.name_of("r1")) == ("r1", "node1")


def test_an_actor_that_does_not_come_back_on_a_living_node_ends_the_sweep(monkeypatch):
    cluster = Cluster(monkeypatch, "node1", starts_dead=("node1",))
    with pytest.raises(RunError, match="lost the telemetry actor of node1 and could not start another"):
        cluster.watchers._ask(lambda post: post.actor.who.remote())


def test_who_redraws_does_not_wait_for_a_replacement_but_has_it_begun(monkeypatch):
    cluster = Cluster(monkeypatch, "node1")
    begun = []
    monkeypatch.setattr(
        watchers_module.threading, "Thread", lambda target, daemon: SimpleNamespace(start=lambda: begun.append(target))
    )
    assert cluster.watchers.readings() == {}
    (mend,) = begun
    mend()
    assert cluster.watchers.readings() == {"power_w": 20.0}
    with cluster.watchers._busy:
        assert cluster.watchers.readings() == {}


def test_the_first_look_has_no_more_cpus_than_ray_may_use(monkeypatch):
    looked = Cluster(monkeypatch).watchers.look()
    assert [(one.node.node_id, one.node.cpus, one.notes) for one in looked] == [
        ("node0", 1, ("a note",)),
        ("node1", 1, ("a note",)),
    ]


def test_nodes_are_called_as_the_run_does_and_one_that_is_not_in_it_is_let_go(monkeypatch):
    cluster = Cluster(monkeypatch, alive=("r0", "r1"))
    first, second = cluster.last("node0"), cluster.last("node1")
    cluster.watchers.lost = ["node1"]  # an actor that was lost under a name that meant nothing yet
    cluster.watchers.rename({"node0": "node0", "node1": "node2"}, ["node1"])
    assert cluster.killed == [second]
    assert cluster.watchers.names == {"r0": "node0", "r1": "node2"}
    assert (cluster.watchers.ray_id("node2"), cluster.watchers.lost) == ("r1", ["node1"])
    assert cluster.watchers._ask(lambda post: post.actor.who.remote()) == ["node0", "new node2"]
    cluster.watchers.rename({"node2": "node2"}, [])
    assert cluster.killed == [second, first]
    assert cluster.watchers.names == {"r1": "node2"}


def test_nodes_that_come_one_after_the_other_are_waited_for(monkeypatch):
    there, said = iter([1, 1, 2, 3]), []
    monkeypatch.setattr(nodes_module, "alive_nodes", lambda: range(next(there)))
    monkeypatch.setattr(nodes_module.time, "sleep", lambda _seconds: None)
    nodes_module.await_nodes(3, said.append)
    assert said == ["waiting up to 60 s: this run began on 3 nodes, 1 of them in the cluster"]
    monkeypatch.setattr(nodes_module, "alive_nodes", lambda: range(2))
    nodes_module.await_nodes(2, lambda _text: pytest.fail("there is nothing to wait for"))
    nodes_module.await_nodes(3, said.append, limit_s=0.0)
    assert len(said) == 1


@pytest.fixture
def draining(monkeypatch):
    """A cluster whose clocks agree, and the driver's own clock, which stands still."""
    cluster, clock = Cluster(monkeypatch), SimpleNamespace(now=1000.0)
    monkeypatch.setattr(watchers_module.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(cluster.watchers, "_compare_clocks", lambda: None)
    cluster.watchers._drained_s = clock.now
    return cluster, clock


def test_what_sampling_missed_is_said_once(draining):
    cluster, clock = draining
    cluster.last("node1").gaps = Gaps(dropped_rows=1200, missed_ticks=40, errors=2, last_error="OSError: gone")
    clock.now += 10.0
    assert cluster.watchers.drain().num_rows == 2
    said = "1,200 samples had no room, 40 of 100 ticks were missed, 2 reads failed, the last with OSError: gone"
    assert cluster.notes == [f"telemetry of node1: {said}"]
    clock.now += 10.0
    cluster.watchers.drain()
    assert len(cluster.notes) == 1, "it is old"
    cluster.last("node1").dead = True
    clock.now += 10.0
    cluster.watchers.drain()
    cluster.last("node1").gaps = Gaps(dropped_rows=5)
    cluster.watchers.drain()
    assert cluster.notes[2:] == ["telemetry of node1: 5 samples had no room"], "another actor counts anew"


def test_samples_of_a_long_trial_are_fetched_before_their_actors_have_no_room(draining, monkeypatch):
    cluster, clock = draining
    monkeypatch.setattr(
        watchers_module.threading, "Thread", lambda target, daemon: SimpleNamespace(start=lambda: target())
    )
    cluster.watchers.relieve()
    assert cluster.last("node0").heard == [], "it is too early"
    clock.now += COLLECT_S
    cluster.watchers.relieve()
    cluster.watchers.relieve()
    assert cluster.last("node0").heard == [("drain",)]
    assert cluster.watchers.drain()["t_ns"].to_pylist() == [1, 1, 2, 2]
    assert cluster.watchers.drain()["t_ns"].to_pylist() == [3, 3]
    clock.now += COLLECT_S
    with cluster.watchers._draining:
        cluster.watchers.relieve()
    cluster.last("node0").dead = True
    monkeypatch.setattr(watchers_module, "alive_nodes", lambda: [{"NodeID": "r0"}])
    cluster.watchers.relieve()
    assert cluster.watchers.drain().num_rows == 4, "whoever drains finds both actors again"
