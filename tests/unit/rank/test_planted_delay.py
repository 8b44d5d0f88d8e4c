"""A delay planted in a cell is in every step of its trial, and nowhere else."""

import pytest
import torch
import torch.distributed as dist

from rtxscale.rank.channel import Order
from rtxscale.rank.loop import run_rank
from rtxscale.rank.place import Place
from rtxscale.spec.cell import Trial
from rtxscale.workloads.delay import HostDelay

WORKLOAD = {"kind": "vision", "model": "resnet18", "image_size": 32, "classes": 10, "precision": "fp32"}
MEASURE = {"warmup_min_s": 0.1, "warmup_max_s": 20.0, "window_s": 0.4, "min_steps": 5, "tolerance": 10.0}
DELAY_MS = 20.0


def trial(**planted):
    workload = {**WORKLOAD, "batch_per_gpu": 2, "global_batch": 2}
    return Trial.model_validate({"cell": {"workload": workload, "measure": MEASURE, "planted": planted}, "visit": 1})


class Served:
    def __init__(self, trials):
        self._left = [Order(trial=trial, trial_id=trial.trial_id) for trial in trials]
        self.reports = []

    def take(self):
        return self._left.pop(0) if self._left else None

    def finish(self, order, report):
        self.reports.append(report)


@pytest.fixture
def alone():
    """This process as the only rank."""
    threads = torch.get_num_threads()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield Place(rank=0, world=1, local_rank=0, device="cpu", threads=1)
    dist.destroy_process_group()
    torch.set_num_threads(threads)


def test_every_step_of_a_delayed_cell_waits_and_none_of_another_arm_or_rank(alone, monkeypatch):
    waits, wait = [], HostDelay.__call__

    def counted(delay):
        waits.append(delay)
        wait(delay)

    monkeypatch.setattr(HostDelay, "__call__", counted)
    planted = ({"delay_ms": DELAY_MS}, {"arm": "a01"}, {"delay_ms": DELAY_MS, "delay_rank": 1})
    served = Served([trial(**fields) for fields in planted])
    run_rank(served, alone)
    assert [str(report.outcome) for report in served.reports] == ["ok"] * 3
    took_s = served.reports[0].tables["steps"]["step_time_s"].to_pylist()
    assert len(waits) == len(took_s), "once a step, and not in the other trials"
    assert min(took_s) >= DELAY_MS / 1000
