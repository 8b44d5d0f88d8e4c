"""Lines in the batch, and what the settings alone add to them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtxscale.models.counted import Catalogue, line_of, read_catalogue, shipped
from rtxscale.models.footprint import Footprint, Moment, Subject, envelope
from rtxscale.models.shapes import SIZES
from rtxscale.models.training import CountedTraining, smallest_world

N = 1000
SUBJECT = Subject(kind="diffusion", model="made up", image_size=64)
FOOTPRINT = Footprint(
    parameters=N,
    buffers=40,
    sample=12,
    moments=(Moment(fixed=500, per_sample=300, gradients=0), Moment(fixed=100, per_sample=20, gradients=900)),
)
SHARED = replace(FOOTPRINT, moments=(Moment(fixed=0, per_sample=300, gradients=0),), gathered=100)
RECOMPUTED = replace(FOOTPRINT, moments=(Moment(fixed=10, per_sample=30, gradients=1000),))
CATALOGUE = Catalogue(
    counts={
        SUBJECT: FOOTPRINT,
        replace(SUBJECT, gathered=True): SHARED,
        replace(SUBJECT, checkpointing=True): RECOMPUTED,
    }
)
TRAINING = CountedTraining(subject=SUBJECT, catalogue=CATALOGUE, footprint=FOOTPRINT, batch=10, shardable=True)

numbers = st.integers(0, 1000)
moments = st.builds(Moment, fixed=numbers, per_sample=numbers, gradients=st.integers(0, N))


@given(st.lists(moments, min_size=1, max_size=12), st.integers(1, 3000))
def test_what_is_left_of_the_moments_has_the_worst_of_each_batch(every, batch):
    kept = envelope(every, N)
    assert set(kept) <= set(every)
    for gradients in (lambda moment: moment.gradients, lambda _: N):
        worst, found = (
            max(one.fixed + one.per_sample * batch + 4 * gradients(one) for one in some) for some in (every, kept)
        )
        assert worst == found


def test_states_are_twelve_bytes_a_parameter_beside_gradients():
    assert TRAINING.states == 12 * N + 40 + 12 * 10
    assert TRAINING.peak == TRAINING.states + max(500 + 300 * 10, 100 + 20 * 10 + 4 * 900, 4 * N)
    assert replace(TRAINING, batch=1).peak == replace(TRAINING, batch=1).states + 4 * N


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({"optimizer": "sgd"}, -4 * N),
        ({"first_weights_kept": True}, 4 * N + 40),
        ({"world": 2}, 4 * N),
        ({"accumulation": 3}, 2 * 12 * 10),
    ],
    ids=str,
)
def test_settings_add_to_the_states_what_they_keep(changes, more):
    assert replace(TRAINING, **changes).states - TRAINING.states == more


def test_earlier_micro_steps_leave_all_gradients_beside_the_activations():
    often = replace(TRAINING, accumulation=2)
    assert often.peak == often.states + 500 + 300 * 10 + 4 * N


def test_an_update_that_is_not_fused_holds_a_number_more_per_parameter():
    one = replace(TRAINING, batch=1, fused=False)
    assert one.peak == one.states + 8 * N


def test_shards_divide_states_and_gradients_and_add_what_is_gathered():
    shared = TRAINING.in_shards(4)
    assert shared.spread
    assert shared.states == 12 * N / 4 + 40 + 12 * 10 + 2 * 100
    assert shared.peak == shared.states + 300 * 10
    assert not TRAINING.in_shards(1).spread
    assert replace(TRAINING, shardable=False).in_shards(4) is None
    full = replace(SUBJECT, low=False)
    whole = replace(shared, subject=replace(full, gathered=True))
    assert whole.states - shared.states == 2 * 100


def test_other_settings_are_other_counts_or_not_known():
    recomputing = TRAINING.at(checkpointing=True, batch=2)
    assert (recomputing.footprint, recomputing.batch, recomputing.checkpointing) == (RECOMPUTED, 2, True)
    assert TRAINING.in_shards(2).at(checkpointing=True) is None


def test_a_compiled_model_surely_needs_its_states_only():
    compiled = replace(TRAINING, compiled=True)
    assert (TRAINING.least, compiled.peak) == (TRAINING.peak, TRAINING.peak)
    assert compiled.least == TRAINING.states + 4 * N


def test_the_smallest_world_needs_shards():
    limit = TRAINING.in_shards(3).peak
    assert smallest_world(TRAINING, limit, 8) == 3
    assert smallest_world(TRAINING, limit, 2) is None
    assert smallest_world(replace(TRAINING, shardable=False), limit, 8) is None


def test_lines_of_a_catalogue_read_as_they_were_written():
    problem = Subject(kind="vision", model="none", image_size=224, low=False)
    lines = ['{"versions": {"timm": "1"}}', *(line_of(*item) for item in CATALOGUE.counts.items())]
    found = read_catalogue([*lines, line_of(problem, "RuntimeError: why")])
    assert found == Catalogue(counts=CATALOGUE.counts, problems={problem: "RuntimeError: why"}, versions={"timm": "1"})


@pytest.mark.parametrize("line", ['{"subject": {"kind": "vision"}}', "[]", "{", '{"subject": 1, "problem": ""}'])
def test_a_line_that_is_no_count_is_refused(line):
    with pytest.raises(ValueError, match=r"."):
        read_catalogue([line])


def test_another_image_size_has_activations_in_proportion():
    found = CATALOGUE.find(replace(SUBJECT, image_size=128))
    assert [moment.per_sample for moment in found.moments] == [1200, 80]
    assert [moment.fixed for moment in found.moments] == [500, 100]
    assert (found.sample, found.parameters) == (48, N)
    assert CATALOGUE.find(replace(SUBJECT, low=False)) is None


def test_joined_catalogues_hold_both():
    other = Catalogue(counts={replace(SUBJECT, model="other"): SHARED}, problems={SUBJECT: "why"})
    joined = CATALOGUE.joined(other)
    assert joined.find(replace(SUBJECT, model="other")) == SHARED
    assert joined.find(SUBJECT) == FOOTPRINT
    assert joined.problems == {SUBJECT: "why"}


def test_what_comes_with_rtxscale_holds_the_models_of_its_own_sweeps():
    known = shipped()
    assert set(known.versions) == {"torch", "timm", "diffusers"}
    for low in (True, False):
        for checkpointing in (True, False):
            vision = {"kind": "vision", "image_size": 224, "low": low, "checkpointing": checkpointing}
            for model in ("resnet50", "swin_base_patch4_window7_224"):
                assert known.find(Subject(model=model, **vision)) is not None
            for gathered in (True, False):
                one = known.find(
                    Subject(**vision | {"kind": "diffusion", "image_size": 1024}, model="sdxl", gathered=gathered)
                )
                assert one.parameters == 2_567_463_684


def test_decoders_are_trainings_too():
    from rtxscale.models.memory import DecoderTraining, memory_of

    training = DecoderTraining(shape=SIZES["1b"], context=2048, sequences=3)
    assert (training.batch, training.spread, training.peak) == (3, False, memory_of(training).peak)
    assert training.at(batch=5, checkpointing=True) == replace(training, sequences=5, checkpointing=True)
    assert training.in_shards(4) == replace(training, parallel="fsdp", world=4)
    assert training.in_shards(4).spread
