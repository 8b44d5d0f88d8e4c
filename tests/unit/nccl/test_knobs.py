import pytest

from rtxscale.nccl.knobs import (
    COMMUNICATOR_VARIABLES,
    DEBUG_ENVIRONMENT,
    PROCESS_VARIABLES,
    Knobs,
    channel_limit,
    communicator_environment,
    config_ctas,
    process_environment,
    refusal,
)

ALL_REDUCE = frozenset({"all_reduce"})
DDP = frozenset({"all_reduce", "all_gather", "broadcast"})


@pytest.mark.parametrize("algorithm", ["ring", "tree"])
@pytest.mark.parametrize(
    ("version", "form"),
    [
        ((2, 19, 3), "{}"),
        ((2, 20, 5), "{}"),
        ((2, 21, 5), "{}"),
        ((2, 22, 3), "{}"),
        ((2, 23, 4), "{}"),
        ((2, 24, 3), "allreduce:{}"),
        ((2, 25, 1), "allreduce:{}"),
        ((2, 26, 6), "allreduce:{}"),
        ((2, 27, 7), "allreduce:{}"),
        ((2, 28, 9), "allreduce:{}"),
        ((2, 29, 7), "allreduce:{}"),
        ((2, 30, 7), "allreduce:{}"),
        ((2, 31, 2), "ring,tree;allreduce:{}"),
        ((3, 0, 0), "ring,tree;allreduce:{}"),
    ],
)
def test_the_algorithm_is_forced_in_the_words_of_each_version(version, form, algorithm):
    rendered = communicator_environment(Knobs(algorithm=algorithm), version, DDP)
    assert rendered == {"NCCL_ALGO": form.format(algorithm)}


@pytest.mark.parametrize("version", [(2, 20, 5), (2, 23, 4), (2, 24, 3), (2, 28, 9), (2, 31, 2)])
@pytest.mark.parametrize("protocol", ["ll", "ll128", "simple"])
def test_the_protocol_is_a_bare_word_in_every_version(version, protocol):
    assert communicator_environment(Knobs(protocol=protocol), version, ALL_REDUCE) == {"NCCL_PROTO": protocol}


def test_no_algorithm_is_forced_without_an_all_reduce():
    assert communicator_environment(Knobs(algorithm="tree"), (2, 28, 9), frozenset({"all_gather"})) == {}


def test_auto_leaves_everything_to_nccl():
    assert communicator_environment(Knobs(), (2, 28, 9), DDP) == {}
    assert process_environment(Knobs()) == {}
    assert config_ctas(Knobs()) is None


def test_disabled_p2p_takes_nvlink_multicast_with_it():
    assert process_environment(Knobs(p2p="disabled")) == {"NCCL_P2P_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"}


def test_what_can_be_rendered_is_listed_for_those_who_clear_it():
    everything = Knobs(algorithm="tree", channels=4, protocol="simple", p2p="disabled")
    assert set(communicator_environment(everything, (2, 31, 2), DDP)) == set(COMMUNICATOR_VARIABLES)
    assert set(process_environment(everything)) == set(PROCESS_VARIABLES)
    assert config_ctas(everything) == 4


def test_the_log_covers_choices_and_refused_settings():
    subsystems = DEBUG_ENVIRONMENT["NCCL_DEBUG_SUBSYS"].split(",")
    assert DEBUG_ENVIRONMENT["NCCL_DEBUG"] == "INFO"
    assert {"INIT", "ENV", "TUNING", "GRAPH"} <= set(subsystems)


@pytest.mark.parametrize(
    ("version", "limit"),
    [((2, 16, 5), 0), ((2, 17, 1), 32), ((2, 24, 3), 32), ((2, 25, 1), 64), ((2, 31, 2), 64), (None, 64)],
)
def test_channel_limit_by_version(version, limit):
    assert channel_limit(version) == limit


@pytest.mark.parametrize(
    ("knobs", "world", "version", "unsafe", "part"),
    [
        (Knobs(algorithm="ring"), 1, None, False, "at least 2 ranks, found 1"),
        (Knobs(algorithm="tree"), 1, (2, 28, 9), True, "at least 2 ranks, found 1"),
        (Knobs(algorithm="tree"), 2, (2, 18, 5), False, "cannot force tree on all-reduce alone"),
        (Knobs(protocol="ll128"), 2, (2, 28, 9), False, "nccl.unsafe: true"),
        (Knobs(channels=33), 2, (2, 24, 3), False, "takes 1 to 32"),
        (Knobs(channels=65), 2, None, False, "takes 1 to 64"),
        (Knobs(channels=0), 2, (2, 28, 9), False, "takes 1 to 64"),
        (Knobs(channels=1), 2, (2, 16, 5), False, "no setting for them"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(knobs, world, version, unsafe, part):
    assert part in refusal(knobs, world, version, unsafe)


@pytest.mark.parametrize(
    ("knobs", "world", "version", "unsafe"),
    [
        (Knobs(), 1, None, False),
        (Knobs(algorithm="ring"), 2, (2, 18, 5), False),
        (Knobs(algorithm="tree"), 2, (2, 19, 3), False),
        (Knobs(algorithm="tree"), 2, None, False),
        (Knobs(protocol="ll128"), 2, (2, 28, 9), True),
        (Knobs(protocol="ll"), 2, (2, 28, 9), False),
        (Knobs(channels=33), 2, (2, 25, 1), False),
        (Knobs(channels=32), 2, (2, 24, 3), False),
        (Knobs(p2p="disabled"), 2, None, False),
    ],
)
def test_what_can_work_is_not_refused(knobs, world, version, unsafe):
    assert refusal(knobs, world, version, unsafe) is None
