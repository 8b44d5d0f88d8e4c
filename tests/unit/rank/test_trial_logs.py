"""What a rank keeps of what was written while a trial ran."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from rtxscale.nccl.log import parse_log
from rtxscale.rank.channel import Order
from rtxscale.rank.evidence import NcclLog
from rtxscale.rank.logs import LENGTH, LINES, failure_logs, logs_table, nccl_lines
from rtxscale.spec.cell import Trial

GOLDEN = Path(__file__).parents[2] / "golden" / "nccl"
TREE = (GOLDEN / "h200x2_nvlink_tree_ctas2_nccl2.28.9.log").read_text()
ORDER = Order(
    trial=Trial.model_validate({"cell": {"workload": {"kind": "vision", "batch_per_gpu": 2}}, "visit": 1}),
    trial_id="38dd048208b5",
    attempt=2,
)
WARNING = "vm:606:606 [1] NCCL WARN Mismatched collective detected\n"


@pytest.fixture
def log(monkeypatch):
    for name in ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"):
        monkeypatch.setenv(name, "before")
    log = NcclLog()
    log.begin()
    Path(os.environ["NCCL_DEBUG_FILE"]).write_text(TREE + WARNING)
    yield log
    log.close()


def session(log, rank):
    return SimpleNamespace(log=log, place=SimpleNamespace(rank=rank))


def test_what_is_kept_of_rank_0_still_says_what_nccl_chose(log):
    kept = nccl_lines(log, 0)
    assert len({line for line, _ in kept}) == len(kept)
    assert sum(count for _, count in kept) > len(kept)
    again = parse_log("".join(f"a:1:1 {line}\n" for line, _ in kept))
    whole = parse_log(TREE)
    said = {(one.function, one.size_bytes, one.algorithm, one.channels) for one in whole.selections}
    assert said
    assert {(one.function, one.size_bytes, one.algorithm, one.channels) for one in again.selections} == said


def test_names_and_addresses_of_the_host_are_not_kept(log):
    text = "\n".join(line for line, _ in nccl_lines(log, 0))
    assert "192.0.2.2" in TREE
    assert "192.0.2.2" not in text
    assert "vm:605" not in text


def test_other_ranks_keep_their_warnings_or_all_where_they_failed(log):
    assert nccl_lines(log, 1) == [("[1] NCCL WARN Mismatched collective detected", 1)]
    assert len(nccl_lines(log, 1, failed=True)) == len(nccl_lines(log, 0))
    assert nccl_lines(None, 0) == []


def test_rows_are_the_trials_in_order_and_never_more_than_is_useful():
    lines = [(f"{place} " + "x" * 2 * LENGTH, 1) for place in range(3 * LINES)]
    rows = logs_table(ORDER, 1, {"nccl": lines, "trace": []}).to_pylist()
    assert len(rows) == LINES + 1
    assert [row["place"] for row in rows] == list(range(LINES + 1))
    assert {(row["trial_id"], row["attempt"], row["source"], row["rank"]) for row in rows} == {
        ("38dd048208b5", 2, "nccl", 1)
    }
    assert max(len(row["line"]) for row in rows) == LENGTH
    assert rows[LINES // 2]["line"] == f"({2 * LINES} more distinct lines)"
    assert rows[-1]["line"].startswith(f"{3 * LINES - 1} ")


def test_a_failure_leaves_its_trace_on_the_rank_that_failed_only(log):
    try:
        raise ValueError("no such model")
    except ValueError as error:
        rows = failure_logs(ORDER, session(log, 1), error)["logs"].to_pylist()
    trace = [row["line"] for row in rows if row["source"] == "trace"]
    assert trace[0] == "Traceback (most recent call last):"
    assert trace[-1] == "ValueError: no such model"
    assert any("test_trial_logs.py" in line for line in trace)
    others = failure_logs(ORDER, session(None, 0))["logs"]
    assert others.num_rows == 0
