from hypothesis import given
from hypothesis import strategies as st

from rtxscale.nccl.attest import Verdict, attest
from rtxscale.nccl.knobs import RULES, Knobs, communicator_environment, refusal
from rtxscale.nccl.lines import condense
from rtxscale.nccl.log import parse_log

PIECES = (
    "node-a:1:2 [0] NCCL INFO ",
    "\n",
    " NCCL WARN ",
    "AllReduce: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..7}",
    "1048576 Bytes -> Algo 1 proto 2 time 123.400002",
    "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
    "comm 0x55 rank 0 nranks 2 cudaDev 0 busId 1 - Init START",
    "8 coll channels, 8 collnet channels, 0 nvls channels, 8 p2p channels, 2 p2p channels per peer",
    "NCCL version 2.28.9+cuda13.0",
    "NCCL_ALGO set by environment to ",
    " [repeated 6x across cluster]",
    "(W pid=3) ",
    "\x1b[36m",
    "99999999999999999999999",
)
like_a_log = st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=40).map("".join)
texts = st.text() | like_a_log
knobs = st.builds(
    Knobs,
    algorithm=st.sampled_from(["auto", "ring", "tree"]),
    channels=st.none() | st.integers(-1, 100),
    protocol=st.sampled_from(["auto", "ll", "ll128", "simple"]),
    p2p=st.sampled_from(["auto", "disabled"]),
)
versions = st.tuples(st.integers(2, 3), st.integers(0, 40), st.integers(0, 12))


@given(texts, knobs, st.integers(1, 8))
def test_any_text_is_read_and_judged_without_raising(text, asked, world):
    facts = parse_log(text)
    found = attest(asked, facts, world)
    assert [one.subject for one in found] == ["nccl.algorithm", "nccl.channels", "nccl.protocol", "nccl.p2p"]
    for one in found:
        assert one.verdict is not Verdict.HONOURED or (one.observed is not None and not facts.lossy)
        assert one.requested != "auto" or one.verdict is Verdict.NOT_APPLICABLE


@given(texts)
def test_condense_counts_every_line_that_says_something(text):
    lines = condense(text)
    assert len({line for line, _ in lines}) == len(lines)
    assert sum(count for _, count in lines) <= len(text.split("\n"))


@given(like_a_log)
def test_reading_a_log_twice_over_doubles_the_counts_and_nothing_else(text):
    whole = text + "\n"
    once, twice = parse_log(whole), parse_log(whole + whole)
    assert [one.count * 2 for one in once.selections] == [one.count for one in twice.selections]
    assert {name: 2 * count for name, count in once.transports.items()} == twice.transports
    assert (once.versions, once.refused, once.warnings) == (twice.versions, twice.refused, twice.warnings)


@given(knobs, versions, st.sets(st.sampled_from(["all_reduce", "all_gather", "broadcast", "reduce_scatter"])))
def test_rendering_names_the_algorithm_only_for_all_reduce(asked, version, collectives):
    rendered = communicator_environment(asked, version, frozenset(collectives))
    assert ("NCCL_ALGO" in rendered) == (asked.algorithm != "auto" and "all_reduce" in collectives)
    assert rendered.get("NCCL_ALGO", asked.algorithm).endswith(asked.algorithm)
    if version >= (2, 24, 0):
        assert "NCCL_ALGO" not in rendered or "allreduce:" in rendered["NCCL_ALGO"]


@given(knobs, st.integers(1, 8), st.none() | versions, st.booleans())
def test_a_refusal_names_the_setting(asked, world, version, unsafe):
    reason = refusal(asked, world, version, unsafe)
    assert reason is None or any(name in reason for name in ("algorithm", "protocol", "channels", "tree"))
    assert asked != Knobs() or reason is None
    assert len({rule.name for rule in RULES}) == len(RULES)
