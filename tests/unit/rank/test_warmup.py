import math
import time

import numpy as np
import pytest
import torch

from rtxscale.rank.control import Control, Stopped
from rtxscale.rank.warmup import Stepper, next_chunk, steps_for, warm_up
from rtxscale.spec.cell import Measure

MEASURE = Measure(warmup_min_s=1.0, warmup_max_s=10.0, window_s=1.0, min_steps=5, tolerance=0.05).resolved()


class Steps:
    """A workload of no-ops whose losses are given."""

    unit, work_per_step = "image", 1.0

    def __init__(self, losses=()):
        self._losses = iter(losses)
        self.count = 0

    def step(self):
        self.count += 1
        return 0.0

    def loss(self):
        return next(self._losses, 1.0)


def stepper(running, rank=0):
    return Stepper(running=running, control=Control(0, 1), device=torch.device("cpu"), rank=rank)


def test_even_steps_are_steady_after_the_least_warm_up():
    steady = next_chunk(np.array([5.0] + [0.1] * 40), 9.0, MEASURE)
    assert (steady.steps, steady.steady) == (0, True)
    assert "halves differ" in steady.criterion


def test_before_the_least_warm_up_nothing_is_steady():
    following = next_chunk(np.array([0.01] + [0.01] * 50), 0.5, MEASURE)
    assert not following.steady
    assert following.steps == 25  # a quarter of a second


def test_a_ramp_goes_on_until_its_time_is_up():
    ramp = np.linspace(0.1, 0.2, 60)
    assert next_chunk(ramp, 9.0, MEASURE).steps > 0
    late = next_chunk(ramp, 10.5, MEASURE)
    assert (late.steps, late.steady) == (0, False)
    assert late.criterion.startswith("not steady after 10.5 s: halves differ")


def test_long_steps_are_decided_on_one_by_one():
    assert next_chunk(np.array([3.0, 3.0]), 6.0, MEASURE).steps == 1


@pytest.mark.parametrize(("seconds", "step_s", "steps"), [(1.0, 0.1, 10), (0.3, 0.1, 3), (1.0, 3.0, 1), (1.0, 0.0, 1)])
def test_steps_that_fill_a_time(seconds, step_s, steps):
    assert steps_for(seconds, step_s) == steps


def test_the_first_step_stands_alone_and_counts_as_warm_up():
    running = Steps()
    taking = stepper(running)
    measure = Measure(warmup_min_s=0.01, warmup_max_s=0.05, tolerance=1e9)
    warm = warm_up(taking, measure, soak=False)
    assert taking.phases[0].name == "first"
    assert taking.phases[0].block.step_s.size == 1
    assert warm.steps == running.count
    assert warm.soak_s == 0.0
    assert warm.warmup_s >= warm.first_step_s


def test_the_soak_comes_between_and_is_not_warm_up():
    taking = stepper(Steps())
    measure = Measure(soak_s=0.05, warmup_min_s=0.01, warmup_max_s=0.05, tolerance=1e9)
    warm = warm_up(taking, measure, soak=True)
    names = list(dict.fromkeys(phase.name for phase in taking.phases))
    assert names == ["first", "soak", "warmup"]
    assert warm.soak_s >= 0.05
    warmed = sum(phase.block.step_s.size for phase in taking.phases if phase.name != "soak")
    assert warm.steps == warmed


def test_a_long_first_step_leaves_the_warm_up_its_time():
    class SlowStart(Steps):
        def step(self):
            time.sleep(0.3 if self.count == 0 else 0.001)
            return super().step()

    measure = Measure(warmup_min_s=0.1, warmup_max_s=0.25, tolerance=1e9)
    warm = warm_up(stepper(SlowStart()), measure, soak=False)
    assert warm.first_step_s >= 0.3
    assert warm.warmup_s >= 0.4
    assert warm.steady


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_ends_the_trial(loss):
    with pytest.raises(Stopped, match="loss is not finite after 2 steps") as stop:
        warm_up(stepper(Steps([1.0, loss])), Measure(), soak=False)
    assert stop.value.outcome == "diverged"
