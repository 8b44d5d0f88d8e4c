"""A warm session of two ranks under torchrun on Gloo, started once and asked for many trials."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from rtxscale.analysis.conclude import conclude_tables
from rtxscale.rank.channel import Order
from rtxscale.rank.command import STANDALONE
from rtxscale.rank.control import Control
from rtxscale.rank.mailbox import MailboxGiver
from rtxscale.rank.place import Place
from rtxscale.rank.session import Session
from rtxscale.run.trial_rows import MEASURED_SPANS
from rtxscale.spec.cell import Trial

sys.path.insert(0, str(Path(__file__).parents[1] / "analysis"))
from made_steps import budget_cell, steps_frame
from made_trials import collectives_frame, made_row, trials_frame

WORLD = 2
NAN_ON_RANK_1, OUT_OF_MEMORY, RAISE_ON_RANK_1 = 3, 5, 6
HEATING_ON_RANK_1_S, STILL_S = 33.0, 34.0
GATE = {"temperature_slope": 0.5, "clock_slope": 0.002}
MEASURE = {"warmup_min_s": 0.2, "warmup_max_s": 3.0, "window_s": 0.2, "min_steps": 5, "tolerance": 5.0}
BUDGET, DELAY_S = {"loss_budget": True, "min_steps": 6}, 0.25
DELAY_MS = 1000 * DELAY_S
TOP1 = {"metric": "top1", "value": 0.5, "every_steps": 5, "max_time_s": 60.0, "samples": 179}
LATE = {"nobody late": {}, "rank 1 late": {"delay_ms": DELAY_MS, "delay_rank": 1}, "all late": {"delay_ms": DELAY_MS}}


def vision(batch=4, visit=1, bucket="auto", measure=(), collectives=None, planted=(), target=None, **workload):
    fields = {"kind": "vision", "model": "test_resnet", "image_size": 32, "classes": 10, "precision": "fp32"}
    fields |= {"batch_per_gpu": batch, "global_batch": batch * WORLD, **workload}
    cell = {"gpus": WORLD, "workload": fields, "ddp": {"bucket_mib": bucket}, "measure": MEASURE | dict(measure)}
    cell |= {"collectives": collectives, "planted": dict(planted), "target": target}
    return Trial.model_validate({"cell": cell, "visit": visit})


def collectives():
    operations = ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"]
    workload = {"kind": "collectives", "operations": operations, "sizes_mib": [0.01, 0.25], "precision": "bf16"}
    return Trial.model_validate({"cell": {"gpus": WORLD, "workload": workload, "measure": MEASURE}, "visit": 1})


TRIALS = {
    "small buckets": vision(bucket=0.25),
    "large buckets": vision(bucket=25.0, collectives={"sizes_mib": [0.25]}),
    "collectives": collectives(),
    "nan": vision(batch=NAN_ON_RANK_1),
    "no such model": vision(model="no_such_model"),
    "oom": vision(batch=OUT_OF_MEMORY),
    "rank 1 raises": vision(batch=RAISE_ON_RANK_1),
    "never steady": vision(measure={"warmup_max_s": 0.4, "tolerance": 1e-9}),
    "soak": vision(precision="bf16", measure={"soak_s": 0.3}),
    "soak again": vision(precision="bf16", measure={"soak_s": 0.3}, visit=2),
    "rank 1 heats up": vision(measure=GATE | {"slope_s": HEATING_ON_RANK_1_S, "warmup_max_s": 0.6}),
    "all stand still": vision(measure=GATE | {"slope_s": STILL_S}),
    "longer soak": vision(precision="bf16", measure={"soak_s": 0.4}, visit=3),
    "lost while soaking": vision(batch=NAN_ON_RANK_1, measure={"soak_s": 0.2}, image_size=64),
    "soaked after all": vision(measure={"soak_s": 0.2}, image_size=64),
    "to target": vision(
        batch=16, target=TOP1, measure={"warmup_max_s": 30.0}, data="digits", loader_workers=0, optimizer="adamw"
    ),
    "small buckets again": vision(bucket=0.25, visit=2),
    **{name: vision(measure=BUDGET, planted=planted) for name, planted in LATE.items()},
}


class Answer:
    def __init__(self, reports, wall_s):
        self.reports = reports
        self.facts = reports[0].facts
        self.outcomes = [str(reports[rank].outcome) for rank in range(WORLD)]
        self.wall_s = wall_s

    def rows(self, table, rank=0):
        return self.reports[rank].tables[table].to_pylist()


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    directory = tmp_path_factory.mktemp("session") / "mailbox"
    script = Path(__file__).with_name("planted_ranks.py")
    ranks = [sys.executable, "-m", "torch.distributed.run", *STANDALONE, "--nproc-per-node", str(WORLD), str(script)]
    giver = MailboxGiver(directory, WORLD)
    process = subprocess.Popen([*ranks, "--mailbox", str(directory), "--device", "cpu", "--threads", "1"])
    found = {}
    try:
        for name, trial in TRIALS.items():
            order = Order(trial=trial, trial_id=trial.trial_id, attempt=2)
            start = time.monotonic()
            giver.give(order)
            reports = giver.reports(order, 90, lambda: process.poll() is None)
            assert sorted(reports) == [0, 1], f"{name}: only ranks {sorted(reports)} answered"
            found[name] = Answer(reports, time.monotonic() - start)
        giver.close()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    return found


def test_a_trial_ends_ok_with_work_over_wall_time_of_the_window(answers):
    facts = answers["small buckets"].facts
    assert answers["small buckets"].outcomes == ["ok", "ok"]
    assert facts["work"] == 4 * WORLD * facts["window_steps"]
    assert facts["throughput_per_s"] == pytest.approx(facts["work"] / facts["window_s"])
    assert facts["window_steps"] >= 5
    assert facts["device"] == "cpu"
    assert facts["host_bound_share"] is None


def measured(answers):
    """The trials that have a window. Other processes of this machine can only add time between two readings of it."""
    return [answer for answer in answers.values() if answer.facts.get("window_s")]


def test_both_clocks_tell_the_same_window(answers):
    by_unix = [(one.facts["window_end_ns"] - one.facts["window_start_ns"]) / 1e9 for one in measured(answers)]
    off = [abs(unix_s / one.facts["window_s"] - 1) for unix_s, one in zip(by_unix, measured(answers), strict=True)]
    assert len(off) > 5
    assert min(off) < 0.01


def test_every_step_of_every_rank_is_a_row_with_its_phase(answers):
    facts = answers["small buckets"].facts
    for rank in range(WORLD):
        rows = answers["small buckets"].rows("steps", rank)
        phases = [row["phase"] for row in rows]
        assert [row["step"] for row in rows] == list(range(len(rows)))
        assert phases[0] == "first"
        assert phases.count("first") + phases.count("warmup") == facts["warmup_steps"]
        assert phases.count("window") == facts["window_steps"]
        assert phases == sorted(phases, key=["first", "warmup", "window"].index)
        assert {(row["rank"], row["attempt"]) for row in rows} == {(rank, 2)}
        assert all(row["step_time_s"] > 0 and row["input_s"] == 0 for row in rows)


def test_steps_of_the_window_fill_the_window(answers):
    filled = []
    for answer in measured(answers):
        steps_s = [row["step_time_s"] for row in answer.rows("steps") if row["phase"] == "window"]
        filled.append(sum(steps_s) / answer.facts["window_s"])
    assert max(filled) <= 1
    assert max(filled) >= 0.9


def test_bucket_layouts_differ_between_caps_and_return_in_a_warm_session(answers):
    small = [row["size_bytes"] for row in answers["small buckets"].rows("buckets")]
    large = [row["size_bytes"] for row in answers["large buckets"].rows("buckets")]
    assert len(small) > len(large) == 1
    assert sum(small) == sum(large)
    assert [row["size_bytes"] for row in answers["small buckets again"].rows("buckets")] == small


def test_a_trial_repeats_the_training_of_its_predecessor(answers):
    first, again = (answers[name].facts for name in ("small buckets", "small buckets again"))
    assert first["loss_last"] < 2.3  # ln(10): what guessing costs
    assert again["loss_last"] == pytest.approx(first["loss_last"], abs=1.0)


def test_two_ranks_train_to_a_target_together(answers):
    facts = answers["to target"].facts
    assert facts["target_reached"]
    assert facts["target_value"] >= 0.5
    assert facts["target_work"] == 16 * WORLD * facts["target_steps"]
    assert answers["to target"].wall_s > facts["target_run_s"] > facts["target_s"] + facts["target_evaluation_s"]
    spans_s = sum(facts[name] or 0.0 for name in ("build_s", *MEASURED_SPANS))
    assert spans_s <= answers["to target"].wall_s, "spans do not overlap"
    assert facts["input_share"] > 0, "digits come from a loader"
    assert "target_reached" not in answers["small buckets"].facts


def test_gloo_makes_nccl_not_applicable(answers):
    verdicts = {row["subject"]: row["verdict"] for row in answers["small buckets"].rows("attestation")}
    assert {verdicts[f"nccl.{knob}"] for knob in ("algorithm", "channels", "protocol", "p2p")} == {"not applicable"}
    assert verdicts["workload.precision"] == "honoured"
    assert verdicts["ddp.bucket_mib"] == "honoured"


def test_a_cells_probe_times_collectives_after_the_window(answers):
    answer = answers["large buckets"]
    (row,) = answer.rows("collectives")
    assert (row["operation"], row["size_bytes"], row["dtype"]) == ("all_reduce", 2**18, "fp32")
    assert row["algbw_gb_s"] == pytest.approx(row["size_bytes"] / row["time_mean_s"] / 1e9)
    assert row["busbw_gb_s"] == pytest.approx(row["algbw_gb_s"])
    assert answer.facts["collectives_s"] > 0
    assert answers["small buckets"].facts["collectives_s"] is None


def test_the_collectives_workload_times_every_operation_and_checks_its_data(answers):
    answer = answers["collectives"]
    rows = answer.rows("collectives")
    assert answer.outcomes == ["ok", "ok"]
    assert len(rows) == 5 * 2
    assert all(row["data_ok"] and row["dtype"] == "bf16" for row in rows)
    assert all(0 < row["time_p50_s"] <= row["time_p95_s"] for row in rows)
    assert "throughput_per_s" not in answer.facts


@pytest.mark.parametrize(
    ("name", "outcome", "words"),
    [
        ("nan", "diverged", "loss is not finite after"),
        ("no such model", "crashed", "no_such_model"),
        ("oom", "oom", "Tried to allocate 20.00 GiB"),
    ],
)
def test_what_goes_wrong_on_all_ranks_is_reported_by_all(answers, name, outcome, words):
    answer = answers[name]
    assert answer.outcomes == [outcome, outcome]
    messages = [report.message for report in answer.reports.values()]
    assert [words in message for message in messages] == [True] * WORLD, messages
    assert "\n" not in "".join(messages)


def test_a_lost_loss_names_the_rank(answers):
    assert "rank 1: nan" in answers["nan"].reports[0].message


def test_one_ranks_error_reaches_the_other_and_the_session_goes_on(answers):
    answer = answers["rank 1 raises"]
    assert answer.outcomes == ["crashed", "crashed"]
    assert answer.reports[1].message == "ValueError: planted"
    assert answers["never steady"].facts["throughput_per_s"] > 0


def test_a_trial_that_never_gets_steady_is_measured_all_the_same(answers):
    answer = answers["never steady"]
    assert str(answer.reports[0].outcome) == "unsteady"
    tried_s = float(re.search(r"not steady after ([\d.]+) s: ", answer.reports[0].message).group(1))
    assert 0.4 <= tried_s <= answer.facts["warmup_s"] + 0.05, (
        "its limit at least, and what a stalled host took beyond it"
    )
    assert answer.facts["steady"] is False
    assert answer.facts["window_s"] > 0


def test_the_soak_is_paid_once_per_workload_and_precision(answers):
    once, again = answers["soak"], answers["soak again"]
    assert once.facts["soak_s"] >= 0.3
    assert {row["phase"] for row in once.rows("steps")} == {"first", "soak", "warmup", "window"}
    assert again.facts["soak_s"] == 0
    longer = answers["longer soak"]
    assert longer.facts["soak_s"] >= 0.1
    steps = sorted(row["step_time_s"] for row in longer.rows("steps") if row["phase"] == "soak")
    assert sum(steps[:-1]) < 0.3, "only what is missing is made up for; a busy host may halt one step for long"
    assert again.facts["warmup_s"] >= 0.2


def test_only_the_soak_that_is_missing_is_owed():
    place = Place(rank=0, world=1, local_rank=0, device="cpu", threads=1)
    session = Session(place=place, device=torch.device("cpu"), control=Control(0, 1), log=None)
    subject = ("vision", "resnet50", "bf16")
    session.note_soak(subject, 0.3)
    owed = [session.soak_owed_s(subject, soak_s) for soak_s in (0.2, 0.3, 0.4)]
    assert owed == [0.0, 0.0, pytest.approx(0.1)]
    assert session.soak_owed_s(("vision", "resnet50", "fp32"), 0.4) == 0.4


def test_one_ranks_card_holds_the_warm_up_of_all(answers):
    heating, still = answers["rank 1 heats up"], answers["all stand still"]
    assert str(heating.reports[0].outcome) == "unsteady"
    assert "temperature +2.00 degC/min (at most 0.5), SM clock -0.10%/min (at most 0.20%)" in heating.reports[0].message
    assert heating.facts["temperature_slope"] == 2.0
    assert str(still.reports[0].outcome) == "ok"
    assert still.facts["steady_criterion"].endswith(
        "temperature +0.10 degC/min (at most 0.5), SM clock -0.10%/min (at most 0.20%); over 34 s"
    )
    assert (still.facts["temperature_slope"], still.facts["sm_clock_slope"]) == (0.1, -0.001)


def test_a_soak_that_was_cut_short_is_still_owed(answers):
    assert answers["lost while soaking"].outcomes == ["diverged", "diverged"]
    assert answers["soaked after all"].facts["soak_s"] >= 0.2


def test_load_adds_up_over_the_session_and_a_cpu_has_no_slopes(answers):
    earlier = [answers[name].facts for name in ("small buckets", "large buckets", "never steady", "soak", "soak again")]
    loads = [facts["load_s"] for facts in earlier]
    assert loads == sorted(loads)
    assert 0 < loads[0] <= earlier[0]["warmup_s"]
    between = loads[-1] - loads[-2]  # the window of "soak" and the warm-up of "soak again", without its first step
    worked = {"soak": "window", "soak again": "warmup"}
    rows = [row for name, phase in worked.items() for row in answers[name].rows("steps") if row["phase"] == phase]
    steps = [row["step_time_s"] for row in rows]
    assert between == pytest.approx(sum(steps))
    assert all(facts["temperature_slope"] is None and facts["sm_clock_slope"] is None for facts in earlier)


def test_a_warm_trial_costs_little_beside_warm_up_and_window(answers):
    answer = answers["small buckets again"]
    spent_s = answer.facts["warmup_s"] + answer.facts["window_s"]
    assert answer.wall_s - spent_s < 5


def test_the_no_sync_arm_comes_last_is_as_long_as_the_window_and_leaves_equal_ranks(answers):
    answer = answers["nobody late"]
    assert answer.outcomes == ["ok", "ok"]
    for rank in range(WORLD):
        phases = [row["phase"] for row in answer.rows("steps", rank)]
        assert phases == sorted(phases, key=["first", "warmup", "window", "no_sync"].index)
        assert phases.count("no_sync") == phases.count("window") == answer.facts["window_steps"] >= BUDGET["min_steps"]
    row = next(row for row in answer.rows("attestation") if row["subject"] == "measure.loss_budget")
    assert (row["verdict"], row["observed"]) == (
        "honoured",
        f"{answer.facts['window_steps']} steps, ranks equal again",
    )
    assert answer.facts["no_sync_s"] > 0
    assert answers["small buckets"].facts["no_sync_s"] is None
    assert "no_sync" not in {row["phase"] for row in answers["small buckets"].rows("steps")}


def test_the_arm_leaves_the_numbers_of_the_window_alone(answers):
    facts = answers["all late"].facts
    window = [
        row["step_time_s"]
        for rank in range(WORLD)
        for row in answers["all late"].rows("steps", rank)
        if row["phase"] == "window"
    ]
    assert facts["step_time_mean_s"] == pytest.approx(sum(window) / len(window))
    assert facts["window_steps"] * DELAY_S <= facts["window_s"]


def quietest(answer, phase):
    """Rows of the step on which other processes of this machine took the least, one a rank: they can only add."""
    by_step = {}
    for rank in range(WORLD):
        for row in answer.rows("steps", rank):
            if row["phase"] == phase:
                by_step.setdefault(row["step"], []).append(row)
    return min(by_step.values(), key=lambda rows: sum(row["step_time_s"] for row in rows))


def mean_s(rows):
    return sum(row["step_time_s"] for row in rows) / len(rows)


def budget_of(answer, alone_s):
    """The parts of a trial's quietest steps as if one worker alone had taken `alone_s` a step."""
    single, several = budget_cell(1, 4), budget_cell(WORLD, 4)
    apart, together_s = quietest(answer, "no_sync"), mean_s(quietest(answer, "window"))
    rows = [made_row(single, 4 / alone_s, step_time_mean_s=alone_s)]
    rows.append(made_row(several, 4 * WORLD / together_s, step_time_mean_s=together_s))
    steps = [row | {"trial_id": rows[1]["trial_id"], "attempt": 1} for row in apart]
    found = conclude_tables(trials_frame(rows), collectives_frame(), axes={"gpus": [1, 2]}, steps=steps_frame(steps))
    return dict(found.budget.select("part", "seconds_per_step").iter_rows())


def test_real_delays_land_in_the_right_part_of_the_loss_budget(answers):
    alone_s = mean_s(quietest(answers["nobody late"], "no_sync"))
    together_s = mean_s(quietest(answers["nobody late"], "window"))
    plain, one, every = (budget_of(answers[name], alone_s) for name in LATE)
    straggling, computing = DELAY_S * (WORLD - 1) / WORLD, DELAY_S / WORLD
    room = 0.24 * DELAY_S  # other processes may slow a rank down; what belongs elsewhere would be off by half or more
    if max(alone_s, together_s) > room:
        took = f"{1000 * max(alone_s, together_s):.0f} ms"
        pytest.skip(
            f"needs a quieter machine: the quietest step without a delay took {took}, {1000 * room:.0f} allow it"
        )
    assert one["stragglers"] - plain["stragglers"] == pytest.approx(straggling, abs=room)
    assert one["compute"] - plain["compute"] == pytest.approx(computing, abs=room)
    assert every["compute"] - plain["compute"] == pytest.approx(DELAY_S, abs=room)
    assert every["stragglers"] - plain["stragglers"] == pytest.approx(0.0, abs=room)
    assert one["synchronisation"] - plain["synchronisation"] == pytest.approx(0.0, abs=room)
    assert every["synchronisation"] - plain["synchronisation"] == pytest.approx(0.0, abs=room)
