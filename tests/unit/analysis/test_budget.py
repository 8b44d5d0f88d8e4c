"""Planted losses land in the right part of the budget, and the parts add up to what is lost."""

import math

import numpy as np
import polars as pl
import pytest
from made_steps import budget_cell, step_rows, steps_frame
from made_trials import assert_sound, collectives_frame, made_cell, made_row, trials_frame
from scipy import stats

from rtxscale.analysis.budget_steps import no_steps, no_sync_times
from rtxscale.analysis.conclude import conclude_tables
from rtxscale.results.read import polars_schema
from rtxscale.results.schema import table
from rtxscale.spec.cell import Cell

AXES = {"gpus": [1, 2, 4]}
ALONE_S, STEPS, SPREAD = 0.050, 200, 0.002
LOSSES = ("smaller local batch", "compute", "stragglers", "synchronisation", "input")


def simulated(gpus, *, slow_rank_s=0.0, slow_link_s=0.0, slow_compute_s=0.0, visits=4, seed=5, study="weak", **base):
    """Trials and steps of one GPU and of several; a step with synchronisation ends with the slowest rank's link."""
    chance = np.random.default_rng(seed)
    alone_s = base.get("alone_s", {64: ALONE_S})
    trials, steps = [], []
    for visit in range(1, visits + 1):
        level = 1 + 0.001 * chance.standard_normal()
        for batch, seconds in alone_s.items():
            cell = budget_cell(1, batch)
            trials.append(_trial(cell, level * seconds, visit, study))
        several = budget_cell(gpus, base.get("batch", 64))
        own_s = level * base.get("own_s", ALONE_S) + slow_compute_s
        times = own_s + SPREAD * np.abs(chance.standard_normal((gpus, STEPS)))
        times[gpus - 1] += slow_rank_s
        synced = own_s + SPREAD * np.abs(chance.standard_normal((gpus, STEPS)))
        synced[gpus - 1] += slow_rank_s
        trials.append(_trial(several, float((synced.max(axis=0) + slow_link_s).mean()), visit, study))
        steps += step_rows(trials[-1], times)
        steps += step_rows(trials[-1], np.full((gpus, 3), 9.0), phase="window", first=0)
    return trials, steps


def _trial(cell, step_s, visit, study):
    throughput = cell.workload.global_batch / step_s
    return made_row(cell, throughput, visit=visit, study=study, step_time_mean_s=step_s, step_time_p50_s=step_s)


def concluded(trials, steps, attestation=None):
    conclusions = conclude_tables(
        trials_frame(trials), collectives_frame(), axes=AXES, steps=steps_frame(steps), attestation=attestation
    )
    assert_sound(conclusions)
    return conclusions


def parts(trials, steps, curve="weak", attestation=None):
    budget = concluded(trials, steps, attestation).budget.filter(pl.col("curve") == curve)
    return {row["part"]: row for row in budget.iter_rows(named=True)}


def seconds(found):
    return {part: row["seconds_per_step"] for part, row in found.items()}


@pytest.mark.parametrize("gpus", [2, 4])
@pytest.mark.parametrize(
    ("planted", "compute", "stragglers", "synchronisation"),
    [
        ("slow_rank_s", lambda n: 1 / n, lambda n: 1 - 1 / n, lambda n: 0.0),
        ("slow_link_s", lambda n: 0.0, lambda n: 0.0, lambda n: 1.0),
        ("slow_compute_s", lambda n: 1.0, lambda n: 0.0, lambda n: 0.0),
    ],
)
def test_what_is_planted_lands_in_its_part(gpus, planted, compute, stragglers, synchronisation):
    delay_s = 0.012
    before = seconds(parts(*simulated(gpus)))
    after = seconds(parts(*simulated(gpus, **{planted: delay_s})))
    noise = 0.3 * SPREAD * math.sqrt(gpus)
    plain_straggling = before["stragglers"] if planted == "slow_rank_s" else 0.0  # one rank is always the last then
    changed = {part: after[part] - before[part] for part in ("compute", "stragglers", "synchronisation")}
    assert changed["compute"] == pytest.approx(compute(gpus) * delay_s, abs=noise)
    assert changed["stragglers"] == pytest.approx(stragglers(gpus) * delay_s, abs=noise + plain_straggling)
    assert changed["synchronisation"] == pytest.approx(synchronisation(gpus) * delay_s, abs=noise)


def with_loader(trials, steps, wait_s, *, alone_wait_s=0.0):
    """The same cells once more on a loader's data: every step waits for it, also in the arm without synchronisation."""
    waiting, slower = [], []
    for row in trials:
        wait = alone_wait_s if row["gpus"] == 1 else wait_s
        cell = Cell.model_validate_json(row["cell_json"])
        workload = cell.workload.model_copy(update={"data": "digits", "loader_workers": 2})
        step_s = row["step_time_mean_s"] + wait
        waiting.append(_trial(cell.model_copy(update={"workload": workload}), step_s, row["visit"], row["study"]))
        arm = [one for one in steps if one["trial_id"] == row["trial_id"]]
        named = {"trial_id": waiting[-1]["trial_id"]}
        slower += [one | named | {"step_time_s": one["step_time_s"] + wait} for one in arm]
    return waiting, slower


@pytest.mark.parametrize("gpus", [2, 4])
@pytest.mark.parametrize("alone_wait_s", [0.0, 0.005])
def test_a_slow_loader_lands_in_input_alone(gpus, alone_wait_s):
    wait_s = 0.012
    trials, steps = simulated(gpus, slow_link_s=0.003)
    resident = seconds(parts(trials, steps))
    waiting, slower = with_loader(trials, steps, wait_s, alone_wait_s=alone_wait_s)
    conclusions = concluded([*trials, *waiting], [*steps, *slower])
    budgets = {key[0]: rows for key, rows in conclusions.budget.group_by("cell_id")}
    assert set(budgets) == {trials[1]["cell_id"], waiting[1]["cell_id"]}
    loaded = {row["part"]: row for row in budgets[waiting[1]["cell_id"]].iter_rows(named=True)}
    assert loaded["input"]["seconds_per_step"] == pytest.approx(wait_s)
    assert loaded["input"]["low"] < wait_s < loaded["input"]["high"]
    assert loaded["input"]["note"] is None or "not" not in loaded["input"]["note"]
    for part in ("ideal step", "compute", "stragglers", "synchronisation"):
        assert loaded[part]["seconds_per_step"] == pytest.approx(resident[part]), part
    losses = [loaded[part]["seconds_per_step"] for part in LOSSES if part in loaded]
    assert sum(losses) == pytest.approx(
        loaded["measured step"]["seconds_per_step"] - loaded["ideal step"]["seconds_per_step"]
    )
    same = {row["part"]: row for row in budgets[trials[1]["cell_id"]].iter_rows(named=True)}
    assert (same["input"]["seconds_per_step"], same["input"]["note"]) == (None, "not applicable: data is resident")
    assert seconds(same) == pytest.approx(resident)
    said = [remark for remark in conclusions.remarks if remark.startswith("Loss budget")]
    assert any("largest part is input, 12" in remark for remark in said)


def test_a_loader_without_its_like_on_resident_data_has_no_input_and_says_so():
    trials, steps = simulated(2)
    found = parts(*with_loader(trials, steps, 0.012))
    assert found["input"]["seconds_per_step"] is None
    assert found["input"]["note"].startswith("not available: no otherwise equal cell on resident data")
    assert found["compute"]["seconds_per_step"] == pytest.approx(seconds(parts(trials, steps))["compute"] + 0.012)


def test_the_parts_are_the_definitions_and_add_up():
    trials, steps = simulated(2, slow_rank_s=0.004, slow_link_s=0.003)
    found = seconds(parts(trials, steps))
    arm = steps_frame(steps).filter(pl.col("phase") == "no_sync").collect()
    mean = arm["step_time_s"].mean()
    slowest = arm.group_by("trial_id", "step").agg(pl.col("step_time_s").max())["step_time_s"].mean()
    alone = np.mean([row["step_time_mean_s"] for row in trials if row["gpus"] == 1])
    synced = np.mean([row["step_time_mean_s"] for row in trials if row["gpus"] == 2])
    assert found["ideal step"] == pytest.approx(alone)
    assert found["compute"] == pytest.approx(mean - alone)
    assert found["stragglers"] == pytest.approx(slowest - mean)
    assert found["synchronisation"] == pytest.approx(synced - slowest)
    assert found["measured step"] == pytest.approx(synced)
    assert found["input"] is None
    assert "smaller local batch" not in found
    assert list(found) == ["ideal step", "compute", "stragglers", "synchronisation", "input", "measured step"]


def test_intervals_are_welchs_where_the_base_comes_in_and_students_elsewhere():
    trials, steps = simulated(2, visits=3)
    found = parts(trials, steps)
    arm = steps_frame(steps).filter(pl.col("phase") == "no_sync").collect()
    per_trial = arm.group_by("trial_id", maintain_order=True).agg(pl.col("step_time_s").mean())["step_time_s"]
    alone = [row["step_time_mean_s"] for row in trials if row["gpus"] == 1]
    synced = [row["step_time_mean_s"] for row in trials if row["gpus"] == 2]
    welch = stats.ttest_ind(per_trial.to_numpy(), alone, equal_var=False).confidence_interval()
    assert (found["compute"]["low"], found["compute"]["high"]) == pytest.approx((welch.low, welch.high))
    student = stats.t.interval(0.95, 2, np.mean(synced), stats.sem(synced))
    assert (found["measured step"]["low"], found["measured step"]["high"]) == pytest.approx(student)
    assert found["compute"]["share"] == pytest.approx(found["compute"]["seconds_per_step"] / np.mean(synced))


def test_the_strong_curve_shows_what_the_smaller_batch_costs_where_one_gpu_was_measured_with_it():
    # Half the batch takes 30 ms instead of the 25 ms that are its share.
    two = {"alone_s": {64: 0.050, 32: 0.030}, "batch": 32, "own_s": 0.030, "study": "strong"}
    found = parts(*simulated(2, slow_link_s=0.002, **two), curve="strong")
    assert found["ideal step"]["seconds_per_step"] == pytest.approx(0.025, rel=0.01)
    assert found["smaller local batch"]["seconds_per_step"] == pytest.approx(0.005, abs=2e-4)
    assert found["smaller local batch"]["low"] < 0.005 < found["smaller local batch"]["high"]
    losses = [found[part]["seconds_per_step"] or 0.0 for part in LOSSES]
    lost = found["measured step"]["seconds_per_step"] - found["ideal step"]["seconds_per_step"]
    assert sum(losses) == pytest.approx(lost)


def test_without_that_cell_it_is_within_compute_and_said_so():
    two = {"alone_s": {64: 0.050}, "batch": 32, "own_s": 0.030, "study": "strong"}
    found = parts(*simulated(2, **two), curve="strong")
    assert found["smaller local batch"]["seconds_per_step"] is None
    assert "no 1-GPU cell with the batch per GPU" in found["smaller local batch"]["note"]
    assert found["compute"]["seconds_per_step"] > 0.005
    assert found["compute"]["note"] == "includes the smaller local batch"


def test_one_visit_gives_no_interval_and_says_so():
    found = parts(*simulated(2, visits=1))
    assert found["compute"]["seconds_per_step"] is not None
    assert (found["compute"]["low"], found["compute"]["note"]) == (None, "needs >= 2 visits")


def test_what_cannot_step_without_communication_has_a_loss_but_no_parts():
    trials, _ = simulated(2)
    asked = [row for row in trials if row["gpus"] == 2]
    told = [
        {
            "trial_id": row["trial_id"],
            "attempt": 1,
            "subject": "measure.loss_budget",
            "requested": "steps without synchronisation",
            "verdict": "not applicable",
            "evidence": "this workload cannot step without communication",
        }
        for row in asked
    ]
    attestation = pl.DataFrame(pl.from_arrow(table("attestation", told)), schema=polars_schema("attestation"))
    found = parts(trials, [], attestation=attestation)
    assert found["measured step"]["seconds_per_step"] is not None
    for part in ("compute", "stragglers", "synchronisation"):
        assert found[part]["seconds_per_step"] is None
        assert found[part]["note"] == "not available: this workload cannot step without communication"


def test_only_cells_that_asked_and_have_a_base_have_a_budget():
    trials, steps = simulated(2)
    assert concluded([row for row in trials if row["gpus"] == 2], steps).budget.height == 0
    silent = [made_row(made_cell(gpus, 64), gpus * 1280.0, step_time_mean_s=0.05) for gpus in (1, 2)]
    assert concluded(silent, steps).budget.height == 0
    assert concluded([], []).budget.height == 0


def test_an_arm_that_a_rank_lacks_does_not_count_and_the_slowest_rank_is_named():
    trials, steps = simulated(2, slow_rank_s=0.01, visits=2)
    frame = trials_frame(trials)
    whole = no_sync_times(steps_frame(steps), frame)
    assert (whole.height, whole["slowest"].to_list()) == (2, [1, 1])
    torn = [row for row in steps if not (row["trial_id"] == trials[1]["trial_id"] and row["rank"] == 1)]
    assert no_sync_times(steps_frame(torn), frame)["trial_id"].to_list() == [trials[3]["trial_id"]]
    assert no_sync_times(no_steps(), frame).height == 0
    note = parts(trials, steps)["stragglers"]["note"]
    assert note == "rank 1 has the longest mean in 2 of 2 trials"


def test_parts_still_add_up_where_some_trial_has_no_arm():
    trials, steps = simulated(2, slow_link_s=0.003)
    first = next(row["trial_id"] for row in trials if row["gpus"] == 2)
    found = seconds(parts(trials, [row for row in steps if row["trial_id"] != first or row["phase"] != "no_sync"]))
    lost = found["measured step"] - found["ideal step"]
    assert sum(found[part] for part in ("compute", "stragglers", "synchronisation")) == pytest.approx(lost)


def test_the_remark_names_the_largest_part_only_where_it_is_told_from_nothing():
    clear = concluded(*simulated(2, slow_link_s=0.012)).remarks
    assert [remark for remark in clear if "largest part is synchronisation, 12" in remark]
    nothing = concluded(*simulated(2, visits=1, slow_link_s=0.012)).remarks
    assert not [remark for remark in nothing if "Loss budget" in remark]


def test_a_step_longer_than_thirty_years_is_no_step():
    trials, steps = simulated(2, slow_link_s=0.012)
    budget = concluded([row | {"step_time_mean_s": 1e308} for row in trials], steps).budget
    assert budget["seconds_per_step"].drop_nulls().is_empty()
