"""What a measure claims: publishable or not, possible or not, and the criterion in words."""

import pytest

from rtxscale.spec.cell import PROFILES, Cell, Measure
from rtxscale.spec.load import parse_sweep
from rtxscale.spec.method import (
    contradictions,
    criterion_words,
    energy_shortfall,
    is_gated,
    measure_of,
    shortfalls,
)

SWEEP = """\
name: small
question: Does it scale?
study: weak
workload: {kind: vision, batch_per_gpu: 8}
axes: {gpus: [1, 2]}
measure: {profile: published}
"""


def published(**fields):
    return Measure(profile="published", **fields)


def test_published_is_what_the_playbook_asks_for():
    full = published().resolved()
    assert 600 <= full.soak_s <= 1200
    assert full.warmup_max_s == 1200
    assert shortfalls(published()) == ()
    assert is_gated(published())
    assert not is_gated(Measure())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"soak_s": 599}, "soak 599 s, published needs 600 s"),
        ({"window_s": 29}, "window 29 s, published needs 30 s"),
        ({"min_steps": 10}, "least number of steps 10, published needs 100"),
        ({"warmup_min_s": 5}, "least warm-up 5 s, published needs 60 s"),
        ({"warmup_max_s": 3600}, "longest warm-up 3600 s, published allows at most 1200 s"),
        ({"tolerance": 0.1}, "tolerance 0.1, published allows at most 0.02"),
        ({"temperature_slope": 2}, "temperature slope 2 degC/min, published allows at most 0.5 degC/min"),
        ({"temperature_slope": "off"}, "temperature slope not gated, published allows at most 0.5 degC/min"),
        ({"clock_slope": 0.01}, "SM clock slope 0.01/min, published allows at most 0.002/min"),
        ({"slope_s": 30}, "time base of slopes 30 s, published needs 180 s"),
    ],
)
def test_each_way_to_be_weaker_than_published_is_named(fields, words):
    assert shortfalls(published(**fields)) == (words,)


@pytest.mark.parametrize(
    "fields",
    [{"soak_s": 1200}, {"window_s": 30}, {"tolerance": 0.01}, {"temperature_slope": 0.1}, {"warmup_max_s": 900}],
)
def test_stronger_is_publishable(fields):
    assert shortfalls(published(**fields)) == ()


def test_several_shortfalls_are_all_named():
    assert len(shortfalls(Measure())) == 8  # quick falls short of everything but the longest warm-up
    assert len(shortfalls(published(soak_s=0, window_s=3, clock_slope="off"))) == 3


@pytest.mark.parametrize("profile", PROFILES)
def test_profiles_can_hold(profile):
    assert contradictions(Measure(profile=profile)) == ()
    assert Measure(profile=profile).resolved().resolved() == Measure(profile=profile).resolved()
    assert Measure(profile=profile, loss_budget=True).resolved().loss_budget


@pytest.mark.parametrize(
    ("fields", "blamed", "found"),
    [
        ({"warmup_min_s": 20}, "warmup_max_s", "warmup_min_s 20 with warmup_max_s 20 (profile quick)"),
        ({"warmup_max_s": 0.5}, "warmup_max_s", "warmup_min_s 1 (profile quick) with warmup_max_s 0.5"),
        (
            {"temperature_slope": 1, "slope_s": 30},
            "slope_s",
            "slope_s 30 with soak_s 0 (profile quick) and warmup_max_s 20 (profile quick)",
        ),
        (
            {"clock_slope": 0.1},
            "slope_s",
            "slope_s 60 (profile quick) with soak_s 0 (profile quick) and warmup_max_s 20 (profile quick)",
        ),
    ],
)
def test_settings_that_exclude_each_other(fields, blamed, found):
    (only,) = contradictions(Measure(**fields))
    assert (only.fields[0], only.found) == (blamed, found)


def test_slopes_that_are_not_gated_need_no_time():
    assert contradictions(Measure(slope_s=1000)) == ()
    assert contradictions(published(soak_s=0, warmup_max_s=100, clock_slope="off", temperature_slope="off")) == ()


def test_the_soak_gives_the_slopes_their_time():
    assert contradictions(Measure(temperature_slope=1, slope_s=30, soak_s=10)) == ()


def test_new_fields_leave_old_identities_alone():
    text = '{"measure":{"profile":"published","soak_s":5},"workload":{"batch_per_gpu":2,"kind":"vision"}}'
    cell = Cell.model_validate(
        {"measure": {"profile": "published", "soak_s": 5}, "workload": {"kind": "vision", "batch_per_gpu": 2}}
    )
    assert cell.canonical() == text
    assert measure_of(text) == published(soak_s=5)


@pytest.mark.parametrize("text", ["", "[]", "null", "{", '{"measure":{"of_tomorrow":1}}', '{"measure":7}'])
def test_a_cell_that_cannot_be_read_has_no_measure(text):
    assert measure_of(text) is None


def test_criteria_in_words():
    assert criterion_words(published(), gpus=False) == "step times within 2 % for 60 s"
    only = criterion_words(published(temperature_slope="off"), gpus=True)
    assert only == "step times within 2 % for 60 s; SM clock within 0.2 %/min over 180 s on every GPU"


@pytest.mark.parametrize(
    ("window_s", "words"), [(1.9, "of any energy counter"), (3, "every 30 ms or faster"), (10, ""), (60, "")]
)
def test_a_window_needs_a_hundred_updates_of_the_counter(window_s, words):
    said = energy_shortfall(Measure(window_s=window_s))
    assert words in said
    assert bool(said) == bool(words)


def test_off_is_the_word_in_a_file_and_on_an_axis():
    fixed = parse_sweep(SWEEP.replace("published}", "published, clock_slope: off}"), "x")
    assert fixed.measure.clock_slope == "off"
    axis = parse_sweep(SWEEP.replace("gpus: [1, 2]", "gpus: [1, 2], measure.temperature_slope: [off, 0.5]"), "x")
    assert axis.axes["measure.temperature_slope"] == ("off", 0.5)
