"""Time to target: when it is over, what the clock counts, and that two ranks say the same; with real digits."""

from types import SimpleNamespace

import pytest
import torch

from rtxscale.plan.rules import target_can_be_measured
from rtxscale.plan.site import Site
from rtxscale.rank import target as module
from rtxscale.rank.channel import Order
from rtxscale.rank.control import Control
from rtxscale.rank.place import Place
from rtxscale.rank.session import Session
from rtxscale.rank.target import seed_of, train_to_target
from rtxscale.rank.trial import run_trial
from rtxscale.results.outcomes import Outcome
from rtxscale.run.failures import deadline_s
from rtxscale.spec.cell import Cell, Target, Trial
from rtxscale.workloads.training.evaluation import Evaluation, evaluated, places_of

MEASURE = {"warmup_min_s": 0.1, "warmup_max_s": 60.0, "window_s": 0.1, "min_steps": 3, "tolerance": 9.0}
DIGITS = {
    "kind": "vision",
    "model": "test_resnet",
    "image_size": 32,
    "classes": 10,
    "precision": "fp32",
    "optimizer": "adamw",
    "data": "digits",
    "loader_workers": 0,
}
TARGET = {"metric": "top1", "value": 0.5, "every_steps": 5, "max_time_s": 120.0, "samples": 179}


def session():
    place = Place(rank=0, world=1, local_rank=0, device="cpu", threads=torch.get_num_threads())
    return Session(place=place, device=torch.device("cpu"), control=Control(0, 1), log=None)


class Improving:
    """Each step lowers the loss by a tenth; the first one takes long."""

    unit, work_per_step = "sample", 8.0

    def __init__(self, clock, ends_at=None):
        self.clock, self.value, self.ends_at = clock, 3.0, ends_at

    def step(self):
        self.clock.now += 100.0 if self.value == 3.0 else 0.5
        self.value = float("nan") if self.ends_at and self.value < self.ends_at else self.value - 0.1
        return 0.0

    def loss(self):
        return self.value

    def evaluate(self, samples):
        self.clock.now += 7.0
        return Evaluation(samples=4.0, loss=4 * self.value, correct=4 - self.value)


@pytest.fixture
def clock(monkeypatch):
    made = SimpleNamespace(now=0.0)
    monkeypatch.setattr(module.time, "perf_counter", lambda: made.now)
    monkeypatch.setattr(module, "run_steps", lambda step, count, device: [step() for _ in range(count)])
    return made


def test_the_clock_stops_while_it_is_looked_at_and_the_first_step_counts_as_the_others(clock):
    target = Target(metric="val_loss", value=1.0, every_steps=4)
    found = train_to_target(target, Improving(clock), session())
    # 3.0 - 0.1 n <= 1.0 from step 20 on; looked at after 5, 9, 13, 17, 21.
    assert found.target_reached
    assert (found.target_steps, found.target_work) == (21, 168.0)
    assert found.target_value == pytest.approx(0.9)
    assert found.target_s == pytest.approx(21 * 0.5)
    assert found.target_evaluation_s == pytest.approx(5 * 7.0)


def test_a_share_is_reached_from_below(clock):
    found = train_to_target(Target(metric="top1", value=0.6, every_steps=1), Improving(clock), session())
    assert found.target_reached
    assert found.target_steps == 14  # (4 - (3 - 1.4)) / 4
    assert found.target_value == pytest.approx(0.6)


def test_a_training_loss_is_the_mean_since_the_last_look(clock):
    found = train_to_target(Target(metric="loss", value=2.75, every_steps=3), Improving(clock), session())
    assert found.target_steps == 4
    assert found.target_value == pytest.approx((2.8 + 2.7 + 2.6) / 3)


def test_not_reached_in_time_is_said_so(clock):
    target = Target(metric="loss", value=0.5, every_steps=4, max_time_s=3.0)
    found = train_to_target(target, Improving(clock), session())
    assert not found.target_reached
    assert found.target_s >= 3.0
    assert found.target_steps == 8


def test_the_time_is_over_long_before_the_next_look(clock):
    target = Target(metric="loss", value=0.01, every_steps=10**9, max_time_s=5.0)
    found = train_to_target(target, Improving(clock), session())
    assert not found.target_reached
    assert (found.target_steps, found.target_s) == (12, pytest.approx(6.0))  # two steps of half a second at a time
    assert found.target_value == pytest.approx((2.8 + 1.8) / 2)


def test_a_loss_that_is_no_number_is_not_reached(clock):
    found = train_to_target(Target(metric="loss", value=0.5), Improving(clock, ends_at=2.5), session())
    assert not found.target_reached
    assert found.target_value != found.target_value


def test_a_loss_of_nothing_is_reached(clock):
    perfect = Improving(clock)
    perfect.loss = lambda: 0.0
    found = train_to_target(Target(metric="loss", value=0.5), perfect, session())
    assert (found.target_reached, found.target_value) == (True, 0.0)


def trial(visit=1, stage="sweep", target=(), **workload):
    cell = {"workload": DIGITS | {"batch_per_gpu": 32} | workload, "measure": MEASURE, "target": TARGET | dict(target)}
    return Trial.model_validate({"cell": cell, "visit": visit, "stage": stage})


def facts(one):
    report = run_trial(Order(trial=one, trial_id=one.trial_id), session())
    assert report.outcome is Outcome.OK
    return report.facts


def test_digits_are_learnt_to_a_target_and_a_seed_is_another_way_there():
    first, again, other = facts(trial()), facts(trial()), facts(trial(visit=2))
    assert first["target_reached"]
    assert first["target_value"] >= 0.5
    assert first["target_work"] == 32 * first["target_steps"]
    assert (first["seed"], other["seed"]) == (0, 1000)
    assert again["target_value"] == first["target_value"]
    assert other["target_value"] != first["target_value"]
    assert 0 < first["input_share"] < 1


def test_only_the_sweeps_own_trials_go_for_the_target():
    assert "target_reached" not in facts(trial(stage="sentinel"))


def test_every_held_out_sample_counts_once_however_many_ranks_look():
    class Numbers(torch.utils.data.Dataset):
        def __len__(self):
            return 11

        def __getitem__(self, place):
            return torch.tensor(float(place))

    def score(values, weights):
        seen.append(len(values))
        return Evaluation(samples=float(weights.sum()), loss=float((values * weights).sum()), correct=0.0)

    for world in (1, 2, 3, 4):
        parts, counts = [], []
        for rank in range(world):
            seen = []
            context = SimpleNamespace(rank=rank, world=world, device=torch.device("cpu"))
            parts.append(evaluated(Numbers(), context, samples=100, batch=2, score=score))
            counts.append(seen)
        whole = sum(parts[1:], start=parts[0])
        assert (whole.samples, whole.loss) == (11.0, sum(range(11)))
        assert len({tuple(count) for count in counts}) == 1, "ranks run forward equally often"
    assert places_of(1, 1, 2) == [None]


@pytest.mark.parametrize(
    ("workload", "metric", "said"),
    [
        ({"kind": "vision"}, "top1", "nothing held out"),
        ({"kind": "vision", "data": "synthetic"}, "val_loss", "nothing held out"),
        ({"kind": "vision"}, "loss", None),
        ({"kind": "vision", "data": "digits"}, "top1", None),
        ({"kind": "vision", "data": "digits"}, ("top1", 90.0), "the value 90 is more than all images"),
        ({"kind": "vision", "data": "digits"}, ("top1", 1.0), None),
        ({"kind": "vision", "data": "digits"}, ("val_loss", 90.0), None),
        ({"kind": "language", "data": "stdlib"}, "top1", "only images have classes"),
        ({"kind": "language", "data": "stdlib"}, "val_loss", None),
        ({"kind": "diffusion"}, "val_loss", "nothing held out"),
        ({"kind": "collectives"}, "loss", "trains no model of ours"),
    ],
)
def test_a_target_that_cannot_be_measured_is_dropped_by_the_plan(workload, metric, said):
    name, value = (metric, 0.5) if isinstance(metric, str) else metric
    cell = Cell.model_validate({"workload": workload, "target": {"metric": name, "value": value}})
    site = Site(device="cuda", workers=1, placer=None, nccl_version=None)
    reason = target_can_be_measured(cell, site)
    assert reason is None if said is None else said in reason


def test_a_trial_with_a_target_may_take_as_long_as_that():
    cells = [trial(target={"max_time_s": seconds}).cell for seconds in (10.0, 1000.0)]
    assert deadline_s(cells[1], floor_s=1.0) - deadline_s(cells[0], floor_s=1.0) >= 990
    assert deadline_s(cells[1], floor_s=1.0, known_s=5.0) >= 1000


def test_repeats_and_visits_have_seeds_of_their_own():
    made = {
        seed_of(Trial.model_validate({"cell": trial().cell, "visit": v, "repeat": r})) for v in (1, 2) for r in (1, 2)
    }
    assert len(made) == 4


def test_evaluations_of_nothing_named_add_up():
    parts = Evaluation(samples=1, loss=2), Evaluation(samples=2, loss=3, correct=1)
    assert parts[0] + parts[1] == Evaluation(samples=3, loss=5)
