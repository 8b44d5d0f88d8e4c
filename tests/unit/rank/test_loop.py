from types import SimpleNamespace

import pytest
import torch

from rtxscale.rank import loop
from rtxscale.rank.channel import Order, RankReport
from rtxscale.rank.control import Stopped
from rtxscale.rank.place import Place
from rtxscale.spec.cell import Trial

TRIAL = Trial.model_validate({"cell": {"workload": {"kind": "vision", "batch_per_gpu": 2}}, "visit": 1})
PLACE = Place(rank=0, world=1, local_rank=0, device="cpu", threads=1)


class Orders:
    """A channel with so many orders."""

    def __init__(self, count):
        self._left = count
        self.reports = []

    def take(self):
        self._left -= 1
        return Order(trial=TRIAL, trial_id=f"trial {self._left}") if self._left >= 0 else None

    def finish(self, order, report):
        self.reports.append(report)


@pytest.fixture
def outcomes(monkeypatch):
    def run(*endings):
        left = iter(endings)

        def run_trial(order, session):
            ending = next(left)
            if isinstance(ending, Exception):
                raise ending
            return ending

        monkeypatch.setattr(loop, "run_trial", run_trial)
        threads = torch.get_num_threads()
        channel = Orders(len(endings))
        loop.run_rank(channel, PLACE)
        torch.set_num_threads(threads)
        return channel.reports

    return run


def test_every_order_is_answered_whatever_happens(outcomes):
    reports = outcomes(
        RankReport(rank=0, outcome="ok"),
        torch.OutOfMemoryError("CUDA out of memory.\n Tried to allocate 2 GiB"),
        Stopped("diverged", "loss is not finite"),
        ValueError("no such model"),
    )
    assert [str(report.outcome) for report in reports] == ["ok", "oom", "diverged", "crashed"]
    assert reports[1].message == "OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
    assert reports[2].message == "loss is not finite"
    assert reports[3].message == "ValueError: no such model"


def test_a_host_without_the_memory_asked_for_is_out_of_memory_too():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(10**17)
    assert loop.outcome_of(caught.value) == "oom"


def test_out_of_memory_on_a_gpu_says_what_was_taken_and_keeps_it_as_facts(monkeypatch):
    def run_trial(order, session):
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 31.36 GiB of which 4 GiB "
            "is free. Including non-PyTorch memory, this process has 27.25 GiB memory in use. See documentation"
        )

    taken = loop.MemoryTaken(total_mib=32113.0, allocated_mib=26000.0, reserved_mib=27000.0)
    monkeypatch.setattr(loop, "run_trial", run_trial)
    monkeypatch.setattr(loop, "memory_taken", lambda device: taken)
    session = SimpleNamespace(place=PLACE, log=None, device=torch.device("cuda"))
    report, failure = loop._attempt(Order(trial=TRIAL, trial_id="t"), session)
    assert report.message == failure.message
    assert report.message == (
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB "
        "(26,000 MiB allocated and 27,000 reserved of 32,113)"
    )
    assert report.facts == {"memory_peak_mib": 26000.0, "memory_reserved_mib": 27000.0}


def test_what_was_noted_on_an_error_is_told_with_it():
    error = ValueError("no such column")
    error.add_note("train.py, line 12\n in step")
    assert loop.one_line(error) == "ValueError: no such column (train.py, line 12 in step)"


def test_what_a_loaders_worker_raised_is_told_without_its_traceback():
    trace = "Caught OSError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
    assert loop.one_line(OSError(trace + "OSError: no such\n picture")) == "OSError: no such picture"
    assert loop.one_line(ValueError("ValueError: 3")) == "ValueError: ValueError: 3"


def test_an_interrupt_ends_the_rank(monkeypatch):
    def run_trial(order, session):
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "run_trial", run_trial)
    with pytest.raises(KeyboardInterrupt):
        loop.run_rank(Orders(1), PLACE)
