from dataclasses import replace

import pyarrow as pa
import pytest
from planned import planned_session

from rtxscale.plan.model import Placement
from rtxscale.rank.channel import RankReport
from rtxscale.results.outcomes import Outcome
from rtxscale.results.schema import TRIALS, arrow_schema, table
from rtxscale.run.agenda import Todo
from rtxscale.run.failures import Verdict
from rtxscale.run.foreman import Tally
from rtxscale.run.trial_rows import (
    RANK_COLUMNS,
    Served,
    joined_facts,
    outside_s,
    planned_columns,
    rank_tables,
    tag_telemetry,
    trial_row,
    trials_table,
    with_directory,
    with_notes,
)
from rtxscale.spec.script import ScriptWorkload

SESSION = planned_session("s", 25.0, gpus=2)
TODO = Todo(session=SESSION, planned=SESSION.trials[0])
SECOND_NS = 1_000_000_000
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
    placement=Placement(nodes=("node0",) * 2, gpu_uuids=("GPU-a", "GPU-b"), visible="0,1", link_class="same_root"),
)
FACTS = {
    "device": "cuda",
    "gpu_uuids": ["GPU-a", "GPU-b"],
    "soak_s": 0.0,
    "warmup_s": 1.5,
    "window_s": 3.0,
    "collectives_s": 1.0,
    "window_start_ns": 12 * SECOND_NS,
    "window_end_ns": 15 * SECOND_NS,
    "throughput_per_s": 100.0,
}


def samples(powers={"GPU-a": 100.0, "GPU-b": 200.0, "GPU-idle": 50.0}):  # noqa: B006 - never changed
    return table(
        "telemetry",
        [
            {"node": "node0", "device": "gpu", "uuid": uuid, "t_ns": tenth * SECOND_NS // 10, "power_w": power}
            for tenth in range(100, 170)
            for uuid, power in powers.items()
        ],
    )


def row(verdict=None, facts=FACTS, served=SERVED):
    reports = {0: RankReport(rank=0, outcome="ok", facts=facts), 1: RankReport(rank=1, outcome="ok")}
    return trial_row(TODO, served, verdict or Verdict(outcome=Outcome.OK), reports, samples())


def test_the_row_fits_the_schema_and_holds_every_column_of_run_and_plan():
    written = trials_table(row()).to_pylist()[0]
    missing = {column.name for column in TRIALS if column.writer in ("plan", "run") and written[column.name] is None}
    from_samples = {"temperature_max_c", "sm_clock_mhz", "throttle_share", "power_cap_share", "gpu_busy_share"}
    of_meter = {"wall_power_w", "wall_energy_j", "wall_source"}  # there is none
    # Flags are the analysis' business, and only an imported row is from somewhere else.
    assert missing == from_samples | of_meter | {
        "flags",
        "energy_counter_j",
        "energy_updates",
        "source",
        "gpus_per_node",
    }
    placed = {name: written[name] for name in ("nodes", "node_names", "placement", "link_class")}
    assert placed == {"nodes": 1, "node_names": ["node0"] * 2, "placement": "packed", "link_class": "same_root"}
    assert written["energy_integral_j"] == written["energy_j"]


def test_time_outside_is_what_nothing_was_measured_in():
    assert row()["wall_s"] == 6.0
    assert row()["outside_s"] == pytest.approx(6.0 - 1.5 - 3.0 - 1.0)


def test_the_run_to_a_target_is_measurement_from_its_restart_to_its_last_look():
    """Of a trial of 9 s with the window and all else 5.5 s: restart, first step and evaluation are no overhead."""
    served = replace(SERVED, ended_ns=SERVED.started_ns + 9 * SECOND_NS)
    to_target = {"target_s": 1.5, "target_evaluation_s": 0.25, "target_run_s": 3.0}
    assert row(facts=FACTS | to_target, served=served)["outside_s"] == pytest.approx(9.0 - 5.5 - 3.0)


def test_only_warm_trials_that_ended_well_say_what_a_trial_takes_beside_its_measurement():
    tally = Tally()
    tally.add({"outcome": "ok", "outside_s": 9.0, "build_s": 8.0}, warm=False)
    tally.add({"outcome": "unsteady", "outside_s": 7.0, "build_s": 6.0}, warm=True)
    tally.add({"outcome": "ok", "outside_s": 0.5, "build_s": 0.375}, warm=True)
    tally.add({"outcome": "ok", "outside_s": None}, warm=True)
    assert (tally.warm_outside_s, tally.warm_build_s) == ([0.5], [0.375])
    assert tally.outcomes == {"ok": 3, "unsteady": 1}


def test_without_a_window_there_is_no_time_outside():
    assert outside_s(5.0, {"warmup_s": 1.0}) is None


def test_power_is_that_of_the_used_gpus_alone():
    assert row()["power_w"] == pytest.approx(300.0)
    assert row()["energy_source"] == "integral"


def test_a_crashed_trial_keeps_the_plan_and_the_reason():
    crashed = row(Verdict(outcome=Outcome.CRASHED, message="rank 1: gone"), facts={})
    assert (crashed["outcome"], crashed["message"]) == ("crashed", "rank 1: gone")
    assert "power_w" not in crashed
    assert crashed["global_batch"] == 8


def test_settings_are_text_and_equal_numbers_look_alike():
    assert planned_columns(TODO)["ddp_bucket_mib"] == "25"
    assert planned_columns(TODO)["nccl_channels"] == "auto"


def test_a_fact_that_is_no_column_of_ranks_is_refused():
    with pytest.raises(KeyError, match="outcome"):
        joined_facts({0: RankReport(rank=0, outcome="ok", facts={"outcome": "ok"})})
    assert "throughput_per_s" in RANK_COLUMNS


def test_tables_of_all_ranks_are_joined_in_rank_order():
    def steps(rank):
        return {"steps": table("steps", [{"trial_id": "t", "attempt": 1, "rank": rank, "step": 0}])}

    reports = {rank: RankReport(rank=rank, outcome="ok", tables=steps(rank)) for rank in (1, 0)}
    assert rank_tables(reports)["steps"].column("rank").to_pylist() == [0, 1]
    assert set(rank_tables(reports)) == {"steps"}


def test_what_the_driver_said_stands_beside_what_ranks_wrote():
    line = {"trial_id": "t", "attempt": 1, "source": "nccl", "rank": 0, "place": 0, "line": "NCCL INFO", "count": 3}
    joined = with_notes({"logs": table("logs", [line])}, ("t", 1), ["a session did not start: gone"])[
        "logs"
    ].to_pylist()
    assert joined[0] == line
    assert (joined[1]["source"], joined[1]["line"], joined[1]["rank"]) == (
        "driver",
        "a session did not start: gone",
        None,
    )
    assert with_notes({}, ("t", 2), ["x"])["logs"].column("attempt").to_pylist() == [2]
    lines = with_notes({}, ("t", 2), ["results: here\nnote: quick", "x"])["logs"].select(["place", "line"]).to_pylist()
    assert [(row["place"], row["line"]) for row in lines] == [(0, "results: here"), (1, "note: quick"), (2, "x")]
    assert with_notes({}, ("t", 2), []) == {}


def test_only_samples_inside_the_trial_carry_its_name():
    tagged = tag_telemetry(
        samples({"GPU-a": 1.0}), session_id="s-1", trial=("t", 2), span_ns=(11 * SECOND_NS, 12 * SECOND_NS)
    )
    assert tagged.schema.equals(arrow_schema("telemetry"))
    assert tagged.column("trial_id").to_pylist().count("t") == 11
    assert set(tagged.column("session_id").to_pylist()) == {"s-1"}


def test_samples_between_sessions_carry_no_name():
    tagged = tag_telemetry(samples({"GPU-a": 1.0}), session_id=None)
    assert tagged.column("trial_id").null_count == tagged.column("session_id").null_count == tagged.num_rows


def test_no_samples_are_still_a_table():
    empty = arrow_schema("telemetry").empty_table()
    assert pa.concat_tables([tag_telemetry(empty, session_id="s"), empty]).num_rows == 0


def test_a_trial_whose_ranks_said_nothing_has_the_planned_device_and_directory():
    """The command that repeats a crash is the one that is needed."""
    served = replace(SERVED, device="cpu")
    crashed = Verdict(outcome=Outcome.CRASHED, message="a rank died")
    assert trial_row(TODO, served, crashed, {}, samples())["device"] == "cpu"
    reports = {0: RankReport(rank=0, outcome=Outcome.OK, facts=FACTS)}
    assert trial_row(TODO, served, Verdict(outcome=Outcome.OK), reports, samples())["device"] == "cuda"
    script = ScriptWorkload(kind="script", entry="mine:build", directory="code")
    (row,) = with_directory({}, TODO.name, script, "/home/me/sweeps")["attestation"].to_pylist()
    assert (row["subject"], row["requested"], row["observed"]) == ("workload.directory", "code", "/home/me/sweeps")
    assert with_directory({}, TODO.name, TODO.planned.trial.cell.workload, "/home/me/sweeps") == {}
    assert with_directory({"attestation": "the ranks'"}, TODO.name, script, "/x") == {"attestation": "the ranks'"}
