"""A trial's row when nodes have clocks of their own, and when a meter reads the wall: `run.trial_rows`."""

from dataclasses import replace

import pyarrow as pa
import pytest
from planned import planned_session

from rtxscale.plan.model import Placement
from rtxscale.rank.channel import RankReport
from rtxscale.results.outcomes import Outcome
from rtxscale.results.schema import table
from rtxscale.run.agenda import Todo
from rtxscale.run.failures import Verdict
from rtxscale.run.trial_rows import Served, on_drivers_clock, trial_row

SECOND_NS = 1_000_000_000
SESSION = planned_session("s", 25.0, gpus=2)
PLACED = Placement(nodes=("node0", "node0"), gpu_uuids=("GPU-a", "GPU-b"), visible="0,1", link_class="same_root")
SERVED = Served(
    run_id="run",
    sweep_id="sweep",
    study="weak",
    environment_id="env",
    session_id="s-1",
    session_start_s=9.0,
    position=0,
    started_ns=10 * SECOND_NS,
    ended_ns=16 * SECOND_NS,
    placement=PLACED,
)
WINDOW = {"window_start_ns": 12 * SECOND_NS, "window_end_ns": 15 * SECOND_NS, "window_s": 3.0}


def row(samples, **served):
    reports = {rank: RankReport(rank=rank, outcome="ok", facts=WINDOW if rank == 0 else {}) for rank in range(2)}
    todo = Todo(session=SESSION, planned=SESSION.trials[0])
    return trial_row(todo, replace(SERVED, **served), Verdict(outcome=Outcome.OK), reports, samples)


def gpu_samples(node="node0", **more):
    return table(
        "telemetry",
        [
            {"node": node, "device": "gpu", "uuid": uuid, "t_ns": tenth * SECOND_NS // 10, "power_w": 100.0, **more}
            for tenth in range(100, 170)
            for uuid in ("GPU-a", "GPU-b")
        ],
    )


def test_a_window_of_a_node_whose_clock_is_off_is_moved_onto_the_drivers():
    rows = [
        {"node": node, "device": "host", "t_ns": 1, "clock_offset_s": offset}
        for node, offset in (("node0", 0.0), ("node1", 2.5), ("node2", None))
    ]
    facts = {"window_start_ns": 10 * SECOND_NS, "window_end_ns": None, "steady": True}

    def moved(node):
        return on_drivers_clock(facts, replace(PLACED, nodes=(node, "node0")), table("telemetry", rows))

    assert moved("node1") == {**facts, "window_start_ns": 7_500_000_000}
    assert moved("node0") == moved("node2") == moved("node9") == facts
    assert on_drivers_clock(facts, None, table("telemetry", rows)) == facts


def test_samples_and_window_of_a_node_that_is_hours_ahead_meet():
    """The rank took the window by its clock; the samples come with that clock's offset taken off already."""
    ahead = gpu_samples("node1", clock_offset_s=-7200.0)
    placement = replace(PLACED, nodes=("node1", "node1"))
    shifted = {"window_start_ns": (12 - 7200) * SECOND_NS, "window_end_ns": (15 - 7200) * SECOND_NS}
    reports = {rank: RankReport(rank=rank, outcome="ok", facts=shifted if rank == 0 else {}) for rank in range(2)}
    todo = Todo(session=SESSION, planned=SESSION.trials[0])
    found = trial_row(todo, replace(SERVED, placement=placement), Verdict(outcome=Outcome.OK), reports, ahead)
    assert found["window_start_ns"] == 12 * SECOND_NS
    assert found["power_w"] == pytest.approx(200)


def test_power_at_the_wall_stands_in_columns_of_its_own():
    wall = [
        {"node": "node0", "device": "wall", "t_ns": s * SECOND_NS, "wall_power_w": 700.0 + s} for s in range(10, 18)
    ]
    samples = pa.concat_tables([gpu_samples(), table("telemetry", wall)])
    found = row(samples, wall_source="ipmi")
    assert (found["wall_source"], found["wall_power_w"]) == ("ipmi", pytest.approx(713.5))
    assert found["wall_energy_j"] == pytest.approx(713.5 * 3)
    assert (found["power_w"], found["energy_j"]) == (pytest.approx(200), pytest.approx(600))
    assert "wall_power_w" not in row(gpu_samples())
    assert row(gpu_samples(), wall_source="ipmi")["wall_power_w"] is None
