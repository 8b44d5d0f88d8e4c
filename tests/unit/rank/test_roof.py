"""The roof of a session: measured once for each precision, by all ranks, and kept out of reports that have none."""

from types import SimpleNamespace

import pytest
import torch

from rtxscale.rank import roof
from rtxscale.rank.channel import RankReport
from rtxscale.results.outcomes import Outcome


def report(rank=0):
    return RankReport(rank=rank, outcome=Outcome.OK, facts={"build_s": 1.0})


class Standing:
    """A session's equipment on a GPU that is not there; the other rank says `other`."""

    def __init__(self, other=500.0, device="cuda"):
        self.device = torch.device(device)
        self.roofs = {}
        self.tidied = 0
        self.control = SimpleNamespace(exchange=lambda own: [own, other])

    def tidy(self):
        self.tidied += 1


@pytest.fixture
def measured(monkeypatch):
    """Every precision that was measured; products run at 600 TFLOP/s."""
    seen = []
    monkeypatch.setattr(roof, "gemm_tflops", lambda device, dtype: seen.append(dtype) or 600.0)
    return seen


def test_the_mean_over_ranks_is_reported_and_measured_once_a_session_and_precision(measured):
    session = Standing()
    for precision in ("bf16", "bf16", "fp16"):
        found = roof.with_roof(report(), session, precision)
        assert found.facts == {"build_s": 1.0, "roof_tflops": 550.0}
    assert measured == [torch.bfloat16, torch.float16]
    assert session.tidied == 2


def test_a_rank_without_room_leaves_all_without_a_roof(measured, monkeypatch):
    assert "roof_tflops" not in roof.with_roof(report(), Standing(other=None), "bf16").facts

    def full(device, dtype):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(roof, "gemm_tflops", full)
    assert "roof_tflops" not in roof.with_roof(report(), Standing(), "bf16").facts


def test_only_rank_0_reports_and_only_on_gpus_in_a_precision_with_products(measured):
    assert roof.with_roof(report(rank=1), Standing(), "bf16").facts == {"build_s": 1.0}
    assert len(measured) == 1, "it measured all the same"
    for session, precision in ((Standing(device="cpu"), "bf16"), (Standing(), "fp8"), (Standing(), None)):
        assert roof.with_roof(report(), session, precision).facts == {"build_s": 1.0}
    assert len(measured) == 1


def test_operations_are_counted_as_two_for_each_product_and_sum(monkeypatch):
    now = iter([10.0, 10.0, 10.25])
    monkeypatch.setattr(roof.time, "perf_counter", lambda: next(now))
    found = roof.gemm_tflops(torch.device("cpu"), torch.float32, matrix=32, seconds=0.1)
    assert found == pytest.approx(2 * 32**3 * roof.BATCH / 0.25 / 1e12)
