"""What a plan says about its measure, and which points a measure on an axis cannot have."""

import pytest
from made_plans import machine, plan

AXES = {"gpus": [1, 2]}


def notes(inventory, axes=AXES, **fields):
    return plan(axes, inventory, **fields).notes


def said(found, start):
    return [note for note in found if note.startswith(start)]


def test_quick_and_a_weaker_published_are_not_publishable_and_say_why():
    assert "measure profile quick: not publishable" in notes(machine(2))
    weak = notes(machine(2), measure={"profile": "published", "soak_s": 5, "clock_slope": "off"})
    assert (
        "measure profile published as spelled out is not publishable: soak 5 s, published needs 600 s; "
        "SM clock slope not gated, published allows at most 0.002/min"
    ) in weak
    full = notes(machine(2), measure={"profile": "published"})
    assert not [note for note in full if "publishable" in note]


def test_profiles_on_an_axis_are_told_apart():
    found = notes(machine(2), AXES | {"measure.profile": ["quick", "published"]})
    assert said(found, "measure profile") == ["measure profile quick: not publishable (2 of 4 cells)"]


def test_a_short_window_gives_no_energy_on_gpus():
    assert said(notes(machine(2), measure={"window_s": 1}), "a window of 1 s is shorter than 100 updates")
    assert said(notes(machine(2)), "a window of 3 s holds 100 updates of the energy counter only where")
    assert not said(notes(machine(2), measure={"window_s": 10}), "a window")
    assert not said(notes(machine(), measure={"window_s": 1}), "a window")  # no energy on CPUs anyway


def test_one_visit_is_allowed_and_says_that_intervals_need_two():
    assert said(notes(machine(2), visits=1), "one visit gives no intervals")[0].endswith("at least two visits")


@pytest.mark.parametrize(
    ("workload", "axes", "told"),
    [
        (
            {"kind": "vision", "data_path": "mine"},
            {},
            ["workload.data_path given, which means nothing with data resident"],
        ),
        (
            {"kind": "vision"},
            {"workload.loader_workers": [0, 4]},
            ["workload.loader_workers given, which means nothing"],
        ),
        (
            {"kind": "vision", "data": "digits", "data_path": "mine"},
            {},
            ["workload.data_path given, which means nothing"],
        ),
        ({"kind": "vision", "data": "digits", "loader_workers": 2}, {}, []),
        ({"kind": "vision", "data_path": "mine"}, {"workload.data": ["resident", "images"]}, []),
        ({"kind": "language"}, {"workload.lora_rank": [8, 16]}, ["workload.lora_rank given, which means nothing with"]),
        ({"kind": "language", "lora_rank": 8}, {"workload.tuning": ["full", "lora"]}, []),
        ({"kind": "collectives"}, {}, []),
    ],
)
def test_fields_that_mean_nothing_in_any_cell_are_told(workload, axes, told):
    batch = {} if workload["kind"] == "collectives" else {"batch_per_gpu": 2}
    found = [
        note for note in notes(machine(2), AXES | axes, workload=workload | batch) if "which means nothing" in note
    ]
    assert len(found) == len(told)
    assert all(note.startswith(start) for note, start in zip(found, told, strict=True))


def test_a_value_of_an_axis_that_cannot_hold_is_dropped_with_the_reason():
    made = plan(AXES | {"measure.warmup_min_s": [1, 20]}, machine(2))
    (reason,) = {item.reason for item in made.dropped}
    assert reason == (
        "measure: warmup_min_s 20 with warmup_max_s 20 (profile quick); needs a longest warm-up that is longer than "
        "the least one"
    )
    assert {planned.trial.cell.measure.warmup_min_s for planned in made.trials} == {1}
