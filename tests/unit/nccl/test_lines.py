from pathlib import Path

import pytest

from rtxscale.nccl.lines import Line, condense, is_lossy, parse_line, whole_lines

GOLDEN = Path(__file__).parents[2] / "golden" / "nccl"


@pytest.mark.parametrize(
    ("raw", "speaker", "message"),
    [
        ("node-a.lab.example:1:2 [0] NCCL INFO Connected all trees", "node-a.lab.example:1:2", "Connected all trees"),
        ("worker-7f6d8c9b5-0a1b2c:12:99 [0] NCCL INFO x", "worker-7f6d8c9b5-0a1b2c:12:99", "x"),
        ("[1,0]<stdout>:node-a:1:2 [0] NCCL INFO x", "node-a:1:2", "x"),
        ("[0] node-a:1:2 [0] NCCL INFO x", "node-a:1:2", "x"),
        ("2: node-0:309:310 [0] NCCL INFO x", "node-0:309:310", "x"),
        ("  | 2024-12-04T07:19:46.483Z | algo-1:18564:18638 [2] NCCL INFO x", "algo-1:18564:18638", "x"),
        ("(train_fn pid=26) 2024-05-11 14:10:52.224 node-1:26:27 [0] NCCL INFO x", "node-1:26:27", "x"),
        ("\x1b[36m(W pid=8, ip=192.0.2.1)\x1b[0m node-b:8:9 [2] NCCL INFO x\x1b[0m", "node-b:8:9", "x"),
        ("[1] NCCL INFO x", "", "x"),
        ("node-a:1:2 [0] NCCL INFO x\r", "node-a:1:2", "x"),
    ],
)
def test_prefixes_are_seen_through(raw, speaker, message):
    assert parse_line(raw) == Line("INFO", speaker, message)


@pytest.mark.parametrize(
    "raw",
    [
        "[2026-01-01 00:00:00] node-a:1004:1104 [3] graph/search.cc:1127 NCCL WARN trouble",
        "node-a:1004:1104 [3] graph/search.cc:1127 NCCL WARN trouble",
    ],
)
def test_a_warning_with_and_without_time(raw):
    assert parse_line(raw) == Line("WARN", "node-a:1004:1104", "trouble")


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "NCCL version 2.20.5+cuda12.4",
        "[1] 15269.938482 topoGetAlgoInfo:1535 NCCL TRACE 24 Bytes -> Algo 1 proto 0 time 2771.401367",
        "I was told that NCCL INFO prints a lot",
        "node-a:1:2 [0] NCCL INF",
        "node-a:1:2 [0] NCCL INFO Connected all treesnode-a:3:4 [1] NCCL INFO Connected all trees",
    ],
)
def test_what_nccl_did_not_write_whole_is_nothing(raw):
    assert parse_line(raw) is None


def test_a_last_line_without_newline_is_left_out():
    assert whole_lines("a\nb") == (["a"], True)
    assert whole_lines("a\nb\n") == (["a", "b"], False)
    assert whole_lines("") == ([], False)


def test_folded_and_glued_lines_are_lossy():
    assert is_lossy("(W pid=3) a:1:2 [0] NCCL INFO x\x1b[32m [repeated 6x across cluster]\x1b[0m")
    assert is_lossy("a:1:2 [0] NCCL INFO xa:3:4 [1] NCCL INFO y")
    assert is_lossy("a.lab.example:1:2 [0] NCa:3:4 [1] NCCL INFO y")
    assert is_lossy("0] NCCL INFO x")
    assert not is_lossy("a:1:2 [0] NCCL INFO x")
    assert not is_lossy("[1,0]<stdout>:[0] a.lab.example:1:2 [0] NCCL INFO x")


def test_condense_counts_what_differs_only_in_noise():
    text = (
        "host-1:1:2 [0] NCCL INFO Bootstrap: Using eth0:192.0.2.10<0>\n"
        "host-2:5:6 [0] NCCL INFO Bootstrap: Using eth0:192.0.2.11<0>\n"
        "[2026-01-01 00:00:00] host-1:1:2 [3] a.cc:7 NCCL WARN bad\n"
        "[2026-01-01 00:00:09] host-1:1:2 [3] a.cc:7 NCCL WARN bad\n"
        "(W pid=3) host-1:1:2 [0] NCCL INFO UDS converted handle 0x7f00 to fd 79 on remote peer 1\n"
        "(W pid=4) host-1:1:2 [0] NCCL INFO UDS converted handle 0x8f00 to fd 80 on remote peer 1\n"
    )
    assert condense(text) == [
        ("[0] NCCL INFO Bootstrap: Using eth0:address<0>", 2),
        ("[3] a.cc:7 NCCL WARN bad", 2),
        ("[0] NCCL INFO UDS converted handle 0x* to fd * on remote peer 1", 2),
    ]


def test_condense_keeps_what_was_chosen_and_drops_who_and_where():
    text = (GOLDEN / "h200x2_shm_ring_ctas8_nccl2.28.9.log").read_text()
    lines = dict(condense(text))
    assert lines["[0] NCCL INFO AllReduce: 67108864 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..7}"] == 3
    assert not any("vm:" in line or "192.0.2" in line for line in lines)
    assert sum(map(len, lines)) < len(text)
