import os
from pathlib import Path

import pytest

from rtxscale.nccl.attest import Attested, Verdict
from rtxscale.nccl.knobs import Knobs
from rtxscale.rank.evidence import NcclLog, attest_buckets, attest_nccl, refuted
from rtxscale.workloads.protocol import Bucket

GOLDEN = Path(__file__).parents[2] / "golden" / "nccl"
TREE = (GOLDEN / "h200x2_nvlink_tree_ctas2_nccl2.28.9.log").read_text()
RING = (GOLDEN / "h200x2_shm_ring_ctas8_nccl2.28.9.log").read_text()


@pytest.fixture
def log(monkeypatch):
    for name in ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"):
        monkeypatch.setenv(name, "before")
    log = NcclLog()
    yield log
    log.close()


def written(text):
    with Path(os.environ["NCCL_DEBUG_FILE"]).open("a") as file:
        file.write(text)


def verdicts(log, knobs):
    return {row.subject: (row.observed, row.verdict) for row in attest_nccl(knobs, log, 2)}


def test_nccl_is_told_to_write_to_a_file_of_this_process(log):
    assert os.environ["NCCL_DEBUG"] == "INFO"
    assert "TUNING" in os.environ["NCCL_DEBUG_SUBSYS"]
    assert not Path(os.environ["NCCL_DEBUG_FILE"]).exists()


def test_a_trial_sees_only_what_was_written_since_it_began(log):
    log.begin()
    written(TREE)
    assert verdicts(log, Knobs(algorithm="tree", channels=2))["nccl.algorithm"] == ("tree", Verdict.HONOURED)
    log.begin()
    written(RING)
    found = verdicts(log, Knobs(algorithm="tree", channels=8))
    assert found["nccl.algorithm"] == ("ring", Verdict.REFUTED)
    assert found["nccl.channels"] == ("8", Verdict.HONOURED)


def test_an_empty_log_proves_nothing(log):
    log.begin()
    assert verdicts(log, Knobs(algorithm="tree"))["nccl.algorithm"] == (None, Verdict.NOT_ATTESTED)


def test_the_file_goes_with_the_session(log):
    written(TREE)
    log.close()
    assert not Path(os.environ["NCCL_DEBUG_FILE"]).parent.exists()


def test_without_a_log_every_knob_is_not_applicable():
    rows = attest_nccl(Knobs(algorithm="ring"), None, 2)
    assert [row.subject for row in rows] == ["nccl.algorithm", "nccl.channels", "nccl.protocol", "nccl.p2p"]
    assert {row.verdict for row in rows} == {Verdict.NOT_APPLICABLE}
    assert rows[0].requested == "ring"


def test_the_bucket_layout_is_shown_beside_the_cap():
    row = attest_buckets(25.0, [Bucket(size_bytes=2**20, parameters=3), Bucket(size_bytes=2**21, parameters=1)], 2)
    assert (row.requested, row.observed, row.verdict) == ("25", "2 buckets, largest 2.00 MiB", Verdict.HONOURED)
    assert attest_buckets(25.0, [], 2).verdict is Verdict.NOT_ATTESTED
    assert attest_buckets(None, [], 1).verdict is Verdict.NOT_APPLICABLE


def test_a_refuted_request_is_put_into_words():
    fields = {"subject": "nccl.channels", "requested": "4", "evidence": "log"}
    rows = [Attested(**fields, observed="24", verdict=Verdict.REFUTED)]
    rows.append(Attested(**fields, observed="4", verdict=Verdict.HONOURED))
    assert refuted(rows) == "nccl.channels: asked for 4, found 24 (log)"
