from dataclasses import replace
from pathlib import Path

import pytest

from rtxscale.nccl.attest import Verdict, attest
from rtxscale.nccl.knobs import Knobs
from rtxscale.nccl.log import LogFacts, Selection, parse_log

GOLDEN = Path(__file__).parents[2] / "golden" / "nccl"
MIB = 2**20
HONOURED, REFUTED = Verdict.HONOURED, Verdict.REFUTED
NOT_ATTESTED, NOT_APPLICABLE = Verdict.NOT_ATTESTED, Verdict.NOT_APPLICABLE


def golden(name):
    return parse_log((GOLDEN / name).read_text())


def chose(algorithm="ring", protocol="simple", channels=8, size=64 * MIB, function="all_reduce", count=1):
    return Selection(
        function=function,
        size_bytes=size,
        algorithm=algorithm,
        protocol=protocol,
        first_channel=None if channels is None else 0,
        last_channel=None if channels is None else channels - 1,
        count=count,
    )


def verdicts(knobs, facts, world=2):
    return {one.subject: one.verdict for one in attest(knobs, facts, world)}


def one(subject, knobs, facts, world=2):
    return next(one for one in attest(knobs, facts, world) if one.subject == subject)


def test_a_real_run_on_nvlink():
    facts = golden("h200x2_nvlink_tree_ctas2_nccl2.28.9.log")
    asked = Knobs(algorithm="tree", channels=2, protocol="simple", p2p="disabled")
    assert verdicts(asked, facts) == {
        "nccl.algorithm": HONOURED,
        "nccl.channels": HONOURED,
        "nccl.protocol": HONOURED,
        "nccl.p2p": REFUTED,
    }


def test_a_real_run_through_host_memory():
    facts = golden("h200x2_shm_ring_ctas8_nccl2.28.9.log")
    asked = Knobs(algorithm="tree", channels=16, protocol="ll", p2p="disabled")
    assert verdicts(asked, facts) == {
        "nccl.algorithm": REFUTED,
        "nccl.channels": REFUTED,
        "nccl.protocol": REFUTED,
        "nccl.p2p": HONOURED,
    }


@pytest.mark.parametrize("facts", [LogFacts(), LogFacts(lines=500, versions=((2, 28, 9),), rings_connected=True)])
def test_nothing_is_honoured_without_evidence(facts):
    asked = Knobs(algorithm="ring", channels=8, protocol="simple", p2p="disabled")
    assert set(verdicts(asked, facts).values()) == {NOT_ATTESTED}
    assert all(found.observed is None for found in attest(asked, facts, 2))


def test_a_variable_taken_is_not_yet_a_setting_honoured():
    facts = LogFacts(environment={"NCCL_ALGO": ("allreduce:tree",), "NCCL_P2P_DISABLE": ("1",)})
    assert set(verdicts(Knobs(algorithm="tree", p2p="disabled"), facts).values()) == {NOT_ATTESTED, NOT_APPLICABLE}


def test_auto_is_not_judged_but_observed():
    found = attest(Knobs(), golden("h200x2_nvlink_tree_ctas2_nccl2.28.9.log"), 2)
    assert {one.verdict for one in found} == {NOT_APPLICABLE}
    assert [one.observed for one in found] == ["tree", "2", "simple", "P2P/CUMEM"]


def test_auto_p2p_on_the_host_path_is_never_refuted():
    found = one("nccl.p2p", Knobs(p2p="auto"), LogFacts(transports={"SHM/direct": 4}))
    assert (found.verdict, found.observed) == (NOT_APPLICABLE, "SHM/direct")


@pytest.mark.parametrize(
    ("transports", "verdict"),
    [
        ({"SHM/direct": 2}, HONOURED),
        ({"SHM/direct": 2, "NET/Socket": 2}, HONOURED),
        ({"SHM/direct": 2, "P2P/IPC": 1}, REFUTED),
        ({}, NOT_ATTESTED),
    ],
)
def test_p2p_disabled(transports, verdict):
    assert one("nccl.p2p", Knobs(p2p="disabled"), LogFacts(transports=transports)).verdict is verdict


def test_nvlink_multicast_refutes_p2p_disabled():
    facts = LogFacts(transports={"SHM/direct": 2}, selections=(chose("nvls"),))
    found = one("nccl.p2p", Knobs(p2p="disabled"), facts)
    assert (found.verdict, found.observed) == (REFUTED, "nvls, SHM/direct")


def test_one_rank_has_nothing_to_attest():
    asked = Knobs(algorithm="ring", channels=8, protocol="ll", p2p="disabled")
    assert set(verdicts(asked, LogFacts(), world=1).values()) == {NOT_APPLICABLE}


def test_small_messages_and_other_collectives_do_not_refute_an_algorithm():
    facts = LogFacts(
        selections=(
            chose("ring", "ll", 1, size=4, count=9),
            chose("ring", function="broadcast"),
            chose("tree", size=2 * MIB),
        )
    )
    assert one("nccl.algorithm", Knobs(algorithm="tree"), facts).verdict is HONOURED


def test_one_large_all_reduce_of_another_kind_refutes():
    facts = LogFacts(selections=(chose("tree", count=40), chose("ring", size=MIB, count=1)))
    found = one("nccl.algorithm", Knobs(algorithm="tree"), facts)
    assert (found.verdict, found.observed) == (REFUTED, "tree, ring")


def test_only_small_messages_attest_nothing():
    facts = LogFacts(selections=(chose("tree", "ll", 1, size=MIB - 1),))
    asked = Knobs(algorithm="tree", channels=1, protocol="ll")
    assert verdicts(asked, facts) == {
        "nccl.algorithm": NOT_ATTESTED,
        "nccl.channels": NOT_ATTESTED,
        "nccl.protocol": NOT_ATTESTED,
        "nccl.p2p": NOT_APPLICABLE,
    }


def test_without_all_reduce_the_protocol_is_judged_and_the_algorithm_is_not():
    facts = LogFacts(selections=(chose("ring", "ll", function="all_gather"),))
    found = verdicts(Knobs(algorithm="ring", protocol="ll", channels=8), facts)
    assert found["nccl.algorithm"] is NOT_ATTESTED
    assert found["nccl.protocol"] is found["nccl.channels"] is HONOURED


def test_before_2_23_a_mixture_may_be_another_collective():
    nameless = chose("tree", channels=None, function=None), chose("ring", channels=None, function=None)
    assert one("nccl.algorithm", Knobs(algorithm="tree"), LogFacts(selections=nameless)).verdict is NOT_ATTESTED
    assert one("nccl.algorithm", Knobs(algorithm="tree"), LogFacts(selections=nameless[:1])).verdict is HONOURED
    assert one("nccl.algorithm", Knobs(algorithm="tree"), LogFacts(selections=nameless[1:])).verdict is REFUTED


def test_before_2_20_the_reason_is_the_version():
    found = one("nccl.algorithm", Knobs(algorithm="ring"), golden("nccl_info_2_18.log"))
    assert found.verdict is NOT_ATTESTED
    assert found.evidence == "NCCL 2.18.5 does not log its choices"


@pytest.mark.parametrize(
    ("requested", "seen", "verdict"),
    [
        (8, [(MIB, 8)], HONOURED),
        (8, [(MIB, 5), (64 * MIB, 8)], HONOURED),  # a small message may use fewer
        (8, [(MIB, 8), (64 * MIB, 9)], REFUTED),
        (8, [(64 * MIB, 7)], REFUTED),
        (64, [(MIB, 32)], NOT_ATTESTED),  # too small to need 64
        (64, [(4 * MIB, 32)], REFUTED),
        (8, [], NOT_ATTESTED),
    ],
)
def test_channels(requested, seen, verdict):
    facts = LogFacts(selections=tuple(chose(size=size, channels=channels) for size, channels in seen))
    assert one("nccl.channels", Knobs(channels=requested), facts).verdict is verdict


def test_messages_of_one_group_share_the_channels():
    halves = Selection(
        function="all_reduce", size_bytes=MIB, algorithm="ring", protocol="simple", first_channel=0, last_channel=3
    )
    facts = LogFacts(selections=(halves, replace(halves, first_channel=4, last_channel=7)))
    assert one("nccl.channels", Knobs(channels=8), facts).verdict is HONOURED


def test_before_2_24_the_communicators_channels_stand_in():
    facts = golden("nccl_info_2_20.log")
    assert one("nccl.channels", Knobs(channels=1), facts).verdict is HONOURED
    found = one("nccl.channels", Knobs(channels=4), facts)
    assert (found.verdict, found.observed) == (REFUTED, "1")
    assert "not logged" in found.evidence


def test_with_several_communicators_nobody_knows_whose_channels_count():
    facts = LogFacts(channels=(2, 24))
    assert one("nccl.channels", Knobs(channels=24), facts).verdict is NOT_ATTESTED
    assert one("nccl.channels", Knobs(channels=8), facts).verdict is REFUTED


def test_refused_settings_are_in_the_evidence():
    facts = LogFacts(selections=(chose(channels=4),), refused=("minCTAs 9 is larger than maxCTAs 4, set both to 4",))
    found = one("nccl.channels", Knobs(channels=9), facts)
    assert found.verdict is REFUTED
    assert "set both to 4" in found.evidence


def test_a_lossy_log_can_refute_but_not_honour():
    facts = golden("nccl_ray_dedup_after.log")
    assert facts.lossy
    found = verdicts(Knobs(algorithm="ring", channels=4, protocol="ll", p2p="disabled"), facts)
    assert found == {
        "nccl.algorithm": NOT_ATTESTED,
        "nccl.channels": NOT_ATTESTED,
        "nccl.protocol": REFUTED,
        "nccl.p2p": NOT_ATTESTED,
    }


def test_a_log_cut_short_can_refute_but_not_honour():
    text = (GOLDEN / "h200x2_shm_ring_ctas8_nccl2.28.9.log").read_text()
    right, wrong = Knobs(algorithm="ring", channels=8, p2p="disabled"), Knobs(algorithm="tree", channels=4)
    assert verdicts(right, parse_log(text[:-1])) == {
        "nccl.algorithm": NOT_ATTESTED,
        "nccl.channels": NOT_ATTESTED,
        "nccl.protocol": NOT_APPLICABLE,
        "nccl.p2p": NOT_ATTESTED,
    }
    assert verdicts(wrong, parse_log(text[:-1]))["nccl.algorithm"] is REFUTED


HOSTS = "node-a.lab.example:1:2 [0] NCCL INFO ", "node-b.lab.example:3:4 [1] NCCL INFO "
SAID = (
    "Channel 00 : 0[0] -> 1[1] via SHM/direct/direct",
    "Channel 00/0 : 1[1] -> 2[2] via P2P/CUMEM/read",
    "AllReduce: 67108864 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..7}",
    "AllReduce: 67108864 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..8}",
)
WHOLE = [HOSTS[place % 2] + message for place, message in enumerate(SAID)]
FALSE = [Knobs(algorithm=name, protocol=kind, p2p="disabled") for name, kind in (("ring", "simple"), ("tree", "ll"))]


@pytest.mark.parametrize("cut", range(len(SAID)))
def test_a_refuted_request_is_not_honoured_by_a_message_cut_anywhere_behind_its_begin(cut):
    begin = len(HOSTS[cut % 2]) + SAID[cut].index("[" if "Channel" in SAID[cut] else " Algo") + 1
    for end in range(begin, len(WHOLE[cut])):
        short = [*WHOLE[:cut], WHOLE[cut][:end], *WHOLE[cut + 1 :]]
        for asked in FALSE:
            assert HONOURED not in verdicts(asked, parse_log("\n".join(short) + "\n")).values()


@pytest.mark.parametrize("first", range(len(SAID) - 1))
def test_a_refuted_request_is_not_honoured_by_ranks_writing_into_each_other(first):
    one_line, next_line = WHOLE[first], WHOLE[first + 1]
    for end in range(len(one_line)):
        glued = [*WHOLE[:first], one_line[:end] + next_line, one_line[end:], *WHOLE[first + 2 :]]
        for asked in FALSE:
            assert HONOURED not in verdicts(asked, parse_log("\n".join(glued) + "\n")).values()
