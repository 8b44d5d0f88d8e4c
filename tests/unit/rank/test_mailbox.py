import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from rtxscale.errors import RunError
from rtxscale.rank.channel import Order, RankReport
from rtxscale.rank.mailbox import Mailbox, MailboxGiver, read_order, write_order
from rtxscale.results.schema import arrow_schema, table
from rtxscale.spec.cell import Trial

CELL = {"gpus": 2, "workload": {"kind": "collectives", "sizes_mib": [1, 2.5]}, "nccl": {"channels": 4}}
TRIAL = Trial.model_validate({"cell": CELL, "visit": 2, "repeat": 3, "slot": 1})
ORDER = Order(trial=TRIAL, trial_id=TRIAL.trial_id, attempt=2)


def alive():
    return True


def test_an_order_survives_the_way():
    assert read_order(write_order(ORDER)) == ORDER


def test_orders_and_reports_go_there_and_back(tmp_path):
    giver = MailboxGiver(tmp_path, 2)
    boxes = [Mailbox(tmp_path, rank) for rank in range(2)]
    for number in range(2):
        giver.give(ORDER)
        for rank, box in enumerate(boxes):
            assert box.take() == ORDER
            facts = {"window_s": np.float64(1.5), "steady": np.bool_(True), "names": ["a"], "number": number}
            tables = {"buckets": table("buckets", [{"trial_id": "x", "attempt": 1, "bucket": rank}])}
            box.finish(ORDER, RankReport(rank=rank, outcome="ok", facts=facts, tables=tables))
        reports = giver.reports(ORDER, 5, alive)
        assert [reports[rank].rank for rank in (0, 1)] == [0, 1]
        assert reports[1].facts == {"window_s": 1.5, "steady": True, "names": ["a"], "number": number}
        assert reports[1].tables["buckets"].column("bucket").to_pylist() == [1]
        assert reports[1].tables["buckets"].schema.equals(arrow_schema("buckets"), check_metadata=True)
    giver.close()
    assert [box.take() for box in boxes] == [None, None]


def test_a_rank_waits_for_work(tmp_path):
    giver = MailboxGiver(tmp_path, 1)
    timer = threading.Timer(0.1, giver.give, [ORDER])
    timer.start()
    assert Mailbox(tmp_path, 0).take() == ORDER
    timer.join()


def test_a_silent_rank_is_missing_once_its_grace_is_over(tmp_path):
    giver = MailboxGiver(tmp_path, 2, grace_s=0.05)
    giver.give(ORDER)
    box = Mailbox(tmp_path, 1)
    box.take()
    box.finish(ORDER, RankReport(rank=1, outcome="oom"))
    start = time.monotonic()
    assert list(giver.reports(ORDER, 60, alive)) == [1]
    assert time.monotonic() - start < 10


def test_time_runs_out(tmp_path):
    giver = MailboxGiver(tmp_path, 1)
    giver.give(ORDER)
    assert giver.reports(ORDER, 0.05, alive) == {}


def test_dead_ranks_are_not_waited_for(tmp_path):
    giver = MailboxGiver(tmp_path, 1)
    giver.give(ORDER)
    assert giver.reports(ORDER, 600, lambda: False) == {}


def test_a_used_directory_is_refused(tmp_path):
    (tmp_path / "order-000001.json").write_text("{}")
    with pytest.raises(RunError, match="expected an empty directory"):
        MailboxGiver(tmp_path, 1)


def test_ranks_do_not_outlive_their_giver(tmp_path):
    code = "import sys, pathlib; from rtxscale.rank.mailbox import MailboxGiver as G; G(pathlib.Path(sys.argv[1]), 1)"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert Mailbox(tmp_path, 0).take() is None
