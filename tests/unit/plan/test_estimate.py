"""The estimate adds up start-ups, warm-ups, windows and collectives, and multiplies board power by time."""

import pytest
from made_plans import machine, plan

from rtxscale.plan.estimate import FIRST_SESSION_S, OUTSIDE_S, SESSION_S

MEASURE = {"warmup_min_s": 2, "window_s": 10}
TRIAL_S = OUTSIDE_S + 2 * 1.5 + 10


def test_wall_time_is_start_ups_and_trials():
    made = plan({"gpus": [1, 2]}, machine(0), measure=MEASURE)
    assert made.estimate.wall_s == pytest.approx(FIRST_SESSION_S + 3 * SESSION_S + 4 * TRIAL_S)
    assert made.estimate.energy_wh is None
    assert "without GPUs" in made.estimate.basis


def test_a_loss_budget_takes_a_second_window_where_there_is_something_to_synchronise():
    made = plan({"gpus": [1, 2]}, machine(0), measure=MEASURE | {"loss_budget": True})
    assert made.estimate.wall_s == pytest.approx(FIRST_SESSION_S + 3 * SESSION_S + 4 * TRIAL_S + 2 * 10)


def test_energy_is_board_power_of_the_gpus_in_use():
    made = plan({"gpus": [2]}, machine(2), measure=MEASURE, visits=1)
    assert made.estimate.energy_wh == pytest.approx((FIRST_SESSION_S + TRIAL_S) * 2 * 575 / 3600)


def test_an_unknown_card_has_no_energy():
    made = plan({"gpus": [2]}, machine(2, name="NVIDIA GeForce RTX 5090 Laptop GPU"), measure=MEASURE)
    assert made.estimate.energy_wh is None
    assert "not known" in made.estimate.basis


def test_collectives_and_soaks_take_time():
    axes = {"gpus": [2], "workload.precision": ["bf16", "fp32"]}
    plain = plan(axes, machine(2), visits=1, measure=MEASURE, sentinels="off").estimate.wall_s
    probed = plan(axes, machine(2), visits=1, measure=MEASURE, collectives={}, sentinels="off").estimate.wall_s
    soaked = plan(axes, machine(2), visits=1, measure={**MEASURE, "soak_s": 100}, sentinels="off").estimate.wall_s
    assert probed - plain == pytest.approx(2 * 3 * 0.3)
    assert soaked - plain == pytest.approx(2 * 100), "one soak for each precision"


def test_sentinels_take_the_time_of_trials_and_soak_nothing_more():
    axes = {"gpus": [2], "nccl.channels": [1, 2, 4]}
    sentinels, none = (
        plan(axes, machine(2), visits=1, measure={**MEASURE, "soak_s": 100}, sentinels=words).estimate.wall_s
        for words in ("auto", "off")
    )
    assert sentinels - none == pytest.approx(3 * TRIAL_S)


@pytest.mark.parametrize(
    ("budget_s", "trials"),
    [
        (1, 1),  # the first trial is given out before its session starts
        (FIRST_SESSION_S + TRIAL_S - 1, 1),
        (FIRST_SESSION_S + TRIAL_S + 1, 2),  # nothing begins while a session's only trial runs
        (FIRST_SESSION_S + 3 * SESSION_S + 3 * TRIAL_S + 1, 4),
        (1e6, 4),
    ],
)
def test_how_many_trials_begin_within_max_hours(budget_s, trials):
    made = plan({"gpus": [1, 2]}, machine(0), measure=MEASURE, max_hours=budget_s / 3600)
    assert len(made.trials) == 4
    assert made.estimate.in_budget == trials


def test_trials_of_one_session_are_cut_one_by_one():
    axes, long = {"gpus": [2], "nccl.channels": [1, 2, 4]}, {"visits": 1, "measure": MEASURE, "sentinels": "off"}
    counts = [
        plan(axes, machine(2), max_hours=(FIRST_SESSION_S + n * TRIAL_S + 1) / 3600, **long).estimate.in_budget
        for n in range(5)
    ]
    assert counts == [1, 2, 3, 4, 4]


def test_without_max_hours_nothing_is_cut():
    assert plan({"gpus": [1, 2]}, machine(0), measure=MEASURE).estimate.in_budget is None
