"""Learning rates from update to update: what PyTorch's schedulers make of a sweep's words, and when they move."""

import math

import pytest
import torch
from made_context import made_context
from pydantic import TypeAdapter

from rtxscale.spec.training import Learning
from rtxscale.spec.workload import Workload
from rtxscale.workloads.registry import IMPLEMENTATIONS
from rtxscale.workloads.training.schedule import Schedule, rate_of

VISION = {"kind": "vision", "model": "test_resnet", "image_size": 32, "classes": 10, "batch_per_gpu": 2}
LANGUAGE = {"kind": "language", "size": "tiny", "context": 16, "batch_per_gpu": 2, "precision": "fp32"}
DIFFUSION = {"kind": "diffusion", "model": "tiny", "image_size": 32, "batch_per_gpu": 2, "precision": "fp32"}


def learning(**fields):
    return Learning.model_validate(fields)


def rates(updates, **fields):
    """Learning rate of each update, of a base of 1."""
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    schedule = Schedule(optimizer, learning(**fields))
    found = []
    for _ in range(updates):
        found.append(optimizer.param_groups[0]["lr"])
        weight.grad = torch.zeros(2)
        optimizer.step()
    assert str(schedule.attest().verdict) == "honoured"
    return found


def test_a_constant_rate_is_left_alone():
    assert rates(5) == [1.0] * 5


def test_a_cosine_goes_down_to_nothing_once():
    found = rates(14, schedule="cosine", schedule_steps=10)
    half = [(1 + math.cos(math.pi * place / 10)) / 2 for place in range(10)]
    assert found == pytest.approx([*half, 0, 0, 0, 0], abs=1e-9)


def test_a_line_goes_down_to_nothing():
    found = rates(12, schedule="linear", schedule_steps=10)
    assert found == pytest.approx([1 - place / 10 for place in range(11)] + [0], abs=1e-9)


def test_steps_take_a_tenth_after_each_third_and_stop_with_the_schedule():
    found = rates(22, schedule="step", schedule_steps=10)
    assert found == pytest.approx([1] * 4 + [0.1] * 4 + [0.01] * 14)


@pytest.mark.parametrize("shape", ["cosine", "linear", "step"])
def test_a_warm_up_rises_to_where_the_schedule_begins(shape):
    found = rates(14, schedule=shape, schedule_steps=14, schedule_warmup_steps=4)
    assert found[:4] == pytest.approx([0.25, 0.4375, 0.625, 0.8125])
    assert found[4:] == pytest.approx(rates(10, schedule=shape, schedule_steps=10))


def test_a_constant_rate_can_be_warmed_up_to():
    assert rates(5, schedule_warmup_steps=2) == pytest.approx([0.5, 0.75, 1, 1, 1])


def test_auto_is_what_the_kind_usually_has():
    assert (rate_of(learning(), 0.3), rate_of(learning(learning_rate=0.1), 0.3)) == (0.3, 0.1)


def test_a_rate_that_something_else_has_changed_is_refuted():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=1.0)
    schedule = Schedule(optimizer, learning(schedule="cosine"))
    optimizer.param_groups[0]["lr"] = 0.5
    assert str(schedule.attest().verdict) == "refuted"


def prepared(fields):
    workload = TypeAdapter(Workload).validate_python(fields)
    return IMPLEMENTATIONS[workload.kind].prepare(made_context(workload))


@pytest.mark.parametrize("fields", [VISION, LANGUAGE, DIFFUSION], ids=lambda fields: fields["kind"])
def test_every_kind_of_training_follows_its_schedule(fields):
    given = {"learning_rate": 0.002, "schedule": "linear", "schedule_steps": 4, "schedule_warmup_steps": 2}
    running = prepared(fields | given)
    found = []
    for _ in range(5):
        found.append(running._updates.optimizer.param_groups[0]["lr"])
        running.step()
    assert found == pytest.approx([0.001, 0.0015, 0.002, 0.001, 0])
    (row,) = [row for row in running.attest() if row.subject == "workload.schedule"]
    assert (row.requested, row.observed) == ("linear", "linear to 0 at update 4, after a linear warm-up of 2")
    assert str(row.verdict) == "honoured"
    running.close()


def test_an_update_that_scaling_skips_moves_no_learning_rate():
    running = prepared(VISION | {"precision": "fp16", "schedule": "linear", "schedule_steps": 10, "learning_rate": 0.1})
    running._updates.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    running.step()
    assert running.skipped_steps == 1
    assert running._updates.optimizer.param_groups[0]["lr"] == 0.1
    running.close()
