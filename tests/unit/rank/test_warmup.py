import math
import time

import numpy as np
import pytest
import torch

from rtxscale.rank.control import Control, Stopped
from rtxscale.rank.vitals import UNREADABLE, Vitals
from rtxscale.rank.warmup import Stepper, first_step, next_chunk, soak, steps_for, warm_up
from rtxscale.spec.cell import Measure
from rtxscale.stats.steady import GpuTrends, Trend

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


def warmed(taking, measure, soak_s=0.0):
    first_step_s = first_step(taking)
    return warm_up(taking, measure, first_step_s=first_step_s, soak_s=soak(taking, soak_s))


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
    warm = warmed(taking, measure)
    assert taking.phases[0].name == "first"
    assert taking.phases[0].block.step_s.size == 1
    assert warm.steps == running.count
    assert warm.soak_s == 0.0
    assert warm.warmup_s >= warm.first_step_s


def test_the_soak_comes_between_and_is_not_warm_up():
    taking = stepper(Steps())
    measure = Measure(warmup_min_s=0.01, warmup_max_s=0.05, tolerance=1e9)
    warm = warmed(taking, measure, soak_s=0.05)
    names = list(dict.fromkeys(phase.name for phase in taking.phases))
    assert names == ["first", "soak", "warmup"]
    assert warm.soak_s >= 0.05
    stepped = sum(phase.block.step_s.size for phase in taking.phases if phase.name != "soak")
    assert warm.steps == stepped


def test_a_long_first_step_leaves_the_warm_up_its_time():
    class SlowStart(Steps):
        def step(self):
            time.sleep(0.3 if self.count == 0 else 0.001)
            return super().step()

    measure = Measure(warmup_min_s=0.1, warmup_max_s=0.25, tolerance=1e9)
    warm = warmed(stepper(SlowStart()), measure)
    assert warm.first_step_s >= 0.3
    assert warm.warmup_s >= 0.4
    assert warm.steady


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_ends_the_trial(loss):
    with pytest.raises(Stopped, match="loss is not finite after 2 steps") as stop:
        warmed(stepper(Steps([1.0, loss])), Measure())
    assert stop.value.outcome == "diverged"


GATED = Measure(
    warmup_min_s=1.0, warmup_max_s=10.0, tolerance=0.05, temperature_slope=0.5, clock_slope=0.002, slope_s=180.0
).resolved()
EVEN = np.array([5.0] + [0.1] * 40)


def gpu(temperature=0.0, clock=0.0, whole=True):
    fields = {"span_s": 180.0 if whole else 40.0, "whole": whole}
    return GpuTrends(temperature=Trend(per_minute=temperature, **fields), clock=Trend(per_minute=clock, **fields))


@pytest.mark.parametrize(
    "moving", [gpu(temperature=0.6), gpu(temperature=-0.6), gpu(clock=-0.003), gpu(clock=0.003), gpu(whole=False)]
)
def test_even_steps_wait_for_every_card_to_stand_still(moving):
    still = next_chunk(EVEN, 9.0, GATED, [gpu(), gpu(0.4, 0.001)])
    assert (still.steps, still.steady) == (0, True)
    assert still.criterion.endswith(
        "temperature +0.40 degC/min (at most 0.5), SM clock +0.10%/min (at most 0.20%); over 180 s"
    )
    assert next_chunk(EVEN, 9.0, GATED, [gpu(), moving]).steps > 0
    late = next_chunk(EVEN, 10.5, GATED, [gpu(), moving])
    assert (late.steps, late.steady, late.gpus) == (0, False, (gpu(), moving))
    assert late.criterion.startswith("not steady after 10.5 s: halves differ by +0.00%")
    assert next_chunk(EVEN, 9.0, MEASURE, [gpu(), moving]).steady  # a quick measure only records


def test_cards_that_stand_still_do_not_make_uneven_steps_steady():
    assert next_chunk(np.linspace(0.1, 0.2, 60), 9.0, GATED, [gpu()]).steps > 0


def test_a_card_that_cannot_be_read_is_said():
    steady = next_chunk(EVEN, 9.0, GATED, [UNREADABLE])
    assert steady.steady
    assert "temperature not readable, SM clock not readable" in steady.criterion


class Fixed(Vitals):
    """Vitals that always show the same."""

    def __init__(self, trends):
        super().__init__(uuid="GPU-a")
        self._fixed = trends

    def trends(self, base_s):
        return self._fixed


class Joined:
    """A control with a second rank whose card does what it is told, and which counts the exchanges."""

    def __init__(self, others):
        self._others = iter(others)
        self.exchanges = 0

    def exchange(self, value):
        self.exchanges += 1
        return [value, (True, 1.0, None, next(self._others))]


def test_rank_0_hears_of_the_other_cards_in_the_exchange_that_is_there_anyway():
    control = Joined([gpu(temperature=2.0)] * 4 + [gpu(temperature=0.2)] * 100)
    taking = Stepper(
        running=Steps(), control=control, device=torch.device("cpu"), rank=0, vitals=Fixed(gpu()), slope_s=180.0
    )
    measure = Measure(warmup_min_s=1e-6, warmup_max_s=60.0, tolerance=1e9, temperature_slope=0.5, slope_s=180.0)
    warm = warmed(taking, measure)
    assert warm.steady
    assert warm.gpus == (gpu(), gpu(temperature=0.2))
    assert control.exchanges == len(taking.phases) >= 6  # one for each chunk, and the fifth brought the good news


def test_load_counts_soak_and_warm_up_and_not_the_first_step():
    class Slow(Steps):
        def step(self):
            time.sleep(0.2 if self.count == 0 else 0.001)
            return super().step()

    taking = stepper(Slow())
    warmed(taking, Measure(warmup_min_s=0.05, warmup_max_s=0.1, tolerance=1e9), soak_s=0.05)
    stepped = sum(float(phase.block.step_s.sum()) for phase in taking.phases)
    assert taking.vitals.load_s == pytest.approx(stepped - float(taking.phases[0].block.step_s.sum()))
    assert 0.1 <= taking.vitals.load_s < stepped - 0.19
