"""The gate over temperature and clock: what it lets pass is simulated with a card that heats up."""

import math

import numpy as np
import pytest

from rtxscale.stats.steady import GpuTrends, Trend, judge_steady, judge_vitals, steepest, trend

BASE_S, LIMITS = 180.0, {"temperature": 0.5, "clock": 0.002}  # of the profile `published`
DECAY, STEP_S, LOOK_S = 0.04, 0.25, 10


class Card:
    """A card under load: one heat capacity, a boost that decays as it heats up, readings as coarse as NVML's."""

    def __init__(
        self, rng, tau_s, seconds, *, decay=DECAY, clock_noise=10.0, temperature_noise=0.3, swing=0.0, room=0.0
    ):
        self.t_s = np.arange(0.0, seconds, 1.0)
        self._rng, self._tau_s, self._decay = rng, tau_s, decay
        left = np.exp(-self.t_s / tau_s)
        degrees = 40 + rng.uniform(25, 45) * (1 - left) + room * self.t_s / 60 + rng.uniform()
        degrees += swing * np.sin(2 * np.pi * self.t_s / 40) + temperature_noise * rng.standard_normal(self.t_s.size)
        clock = 2400 * (1 + decay * left) + 15 * rng.uniform() + clock_noise * rng.standard_normal(self.t_s.size)
        self.temperature_c, self.clock_mhz = np.round(degrees), 15 * np.round(clock / 15)

    def left(self, now_s):
        """How far the throughput still is from its end, relatively."""
        return self._decay * math.exp(-now_s / self._tau_s)

    def trends(self, now_s):
        seen = slice(max(0, now_s - int(BASE_S)), now_s + 1)
        times = self.t_s[seen]
        return GpuTrends(
            temperature=trend(times, self.temperature_c[seen], base_s=BASE_S),
            clock=trend(times, self.clock_mhz[seen], base_s=BASE_S, relative=True),
        )

    def step_times(self, since_s, now_s):
        t = np.arange(since_s, now_s, STEP_S)
        level = STEP_S / (1 + self._decay * np.exp(-t / self._tau_s))
        return level * (1 + 0.02 * self._rng.standard_normal(t.size))


def accepted_at(card, *, soak_s=0, gated=True):
    """Second at which a warm-up as in `published` ends, looked at every few seconds; None if it never does."""
    for now_s in range(soak_s + 60, int(card.t_s[-1]), LOOK_S):
        if gated and not judge_vitals([card.trends(now_s)], base_s=BASE_S, **LIMITS).steady:
            continue
        if judge_steady(card.step_times(soak_s, now_s), min_s=60.0, tolerance=0.02).steady:
            return now_s
    return None


def ends(tau_s, *, soak_s=0, gated=True, runs=10, **card):
    cards = [Card(np.random.default_rng(seed), tau_s, soak_s + 1200, **card) for seed in range(runs)]
    return cards, [accepted_at(card, soak_s=soak_s, gated=gated) for card in cards]


def share_wrong(cards, found):
    """Share of all runs that were accepted more than 1 % from their end."""
    return sum(now_s is not None and card.left(now_s) > 0.01 for card, now_s in zip(cards, found, strict=True)) / len(
        cards
    )


@pytest.mark.parametrize("noise", [{}, {"clock_noise": 0.0, "temperature_noise": 0.0}, {"clock_noise": 40.0}])
@pytest.mark.parametrize("tau_s", [60.0, 90.0, 120.0])
def test_a_boost_decay_is_waited_out_without_any_soak(tau_s, noise):
    cards, found = ends(tau_s, **noise)
    assert share_wrong(cards, found) < 0.05
    assert all(now_s is not None for now_s in found)


@pytest.mark.parametrize("tau_s", [300.0, 600.0])
def test_a_slow_decay_is_waited_out_or_never_accepted(tau_s):
    cards, found = ends(tau_s)
    assert share_wrong(cards, found) < 0.05


def test_step_times_alone_accept_the_same_decay_too_early():
    cards, found = ends(120.0, gated=False)
    assert share_wrong(cards, found) > 0.5


def test_published_with_its_soak_is_right_and_soon_over():
    cards, found = ends(120.0, soak_s=600)
    assert share_wrong(cards, found) == 0.0
    assert max(found) <= 600 + 120


@pytest.mark.parametrize(
    "unrest", [{}, {"swing": 1.5}, {"clock_noise": 20.0}, {"room": 0.3}, {"clock_noise": 0.0, "temperature_noise": 0.0}]
)
def test_a_steady_card_passes_at_the_first_look(unrest):
    cards = [Card(np.random.default_rng(seed), 1e-3, 200, decay=0.0, **unrest) for seed in range(200)]
    passed = [judge_vitals([card.trends(180)], base_s=BASE_S, **LIMITS).steady for card in cards]
    assert sum(passed) >= 0.96 * len(passed)


def test_a_very_restless_clock_takes_a_minute_longer():
    cards = [Card(np.random.default_rng(seed), 1e-3, 250, decay=0.0, clock_noise=40.0) for seed in range(50)]
    looks = [
        [judge_vitals([card.trends(at)], base_s=BASE_S, **LIMITS).steady for at in range(180, 241, 6)] for card in cards
    ]
    assert 0.5 < sum(seen[0] for seen in looks) / len(looks) < 0.95
    assert sum(any(seen) for seen in looks) >= 0.95 * len(looks)


def test_a_ramp_of_temperature_or_clock_is_refused():
    t = np.arange(0.0, 181.0)
    flat, rising, falling = np.full(t.size, 70.0), np.round(70 + t / 60), 15 * np.round((2400 - 0.15 * t) / 15)
    steady = {"temperature": trend(t, flat, base_s=BASE_S), "clock": trend(t, flat, base_s=BASE_S, relative=True)}
    hot = GpuTrends(**steady | {"temperature": trend(t, rising, base_s=BASE_S)})
    slowing = GpuTrends(**steady | {"clock": trend(t, falling, base_s=BASE_S, relative=True)})
    level = GpuTrends(**steady)
    assert judge_vitals([level], base_s=BASE_S, **LIMITS).steady
    assert not judge_vitals([hot], base_s=BASE_S, **LIMITS).steady
    assert not judge_vitals([slowing], base_s=BASE_S, **LIMITS).steady
    assert not judge_vitals([level, level, hot], base_s=BASE_S, **LIMITS).steady  # one GPU of three holds all
    assert judge_vitals([hot, slowing], base_s=BASE_S, temperature=None, clock=None).steady


def test_a_step_to_another_power_is_refused_until_most_of_the_base_is_behind_it():
    def after(seconds):
        values = np.concatenate([np.full(181 - seconds, 62.0), np.full(seconds, 66.0)])
        return judge_vitals([both(trend(np.arange(181.0), values, base_s=BASE_S))], base_s=BASE_S, **LIMITS).steady

    assert not any(after(seconds) for seconds in range(25, 160, 5))
    assert after(175)


def test_heavy_tailed_readings_do_not_decide():
    rng = np.random.default_rng(3)
    t = np.arange(0.0, 181.0)
    wild = 2400 + 15 * np.round(rng.standard_t(1.5, t.size))
    assert abs(trend(t, wild, base_s=BASE_S, relative=True).per_minute) < 0.002


def both(one, other=None):
    return GpuTrends(temperature=one, clock=other or Trend(per_minute=0.0, span_s=180.0, whole=True))


def test_a_slope_is_not_believed_before_its_base_is_full():
    t = np.arange(0.0, 121.0)
    young = trend(t, np.full(t.size, 70.0), base_s=BASE_S)
    assert (young.per_minute, young.span_s, young.whole) == (0.0, 120.0, False)
    verdict = judge_vitals([both(young)], base_s=BASE_S, **LIMITS)
    assert not verdict.steady
    assert verdict.criterion.startswith("temperature known for 120 s only, SM clock +0.00%/min (at most 0.20%)")


def test_a_base_needs_samples_in_half_of_it():
    recent = np.concatenate([[0.0], np.arange(120.0, 181.0)])  # 60 s of samples after two minutes of nothing
    assert not trend(recent, np.full(recent.size, 70.0), base_s=BASE_S).whole
    window = np.concatenate([np.arange(0.0, 60.0), np.arange(120.0, 181.0)])  # a measured minute in the middle
    assert trend(window, np.full(window.size, 70.0), base_s=BASE_S).whole
    sparse = np.arange(0.0, 200.0, 20.0)  # steps of 20 s
    assert trend(sparse, np.full(sparse.size, 70.0), base_s=BASE_S).whole


def test_only_the_base_counts():
    t = np.arange(0.0, 601.0)
    temperature = np.where(t < 400, t / 10, 40.0)
    assert trend(t, temperature, base_s=180.0).per_minute == 0.0
    assert trend(t, temperature, base_s=600.0).per_minute > 1.0


def test_a_relative_slope_is_a_share_of_the_reading():
    assert trend([0.0, 60.0], [2000.0, 2020.0], base_s=60.0, relative=True).per_minute == pytest.approx(20 / 2010)


def test_what_a_gpu_does_not_tell_is_said_and_not_waited_for():
    none = Trend(readable=False)
    verdict = judge_vitals([GpuTrends(temperature=none, clock=none)], base_s=BASE_S, **LIMITS)
    assert verdict.steady
    assert verdict.criterion == "temperature not readable, SM clock not readable; over 180 s"
    flat = Trend(per_minute=0.1, span_s=180.0, whole=True)
    mixed = judge_vitals([both(flat), both(none)], base_s=BASE_S, **LIMITS)
    assert mixed.steady
    assert "temperature +0.10 degC/min (at most 0.5) (not readable on 1 of 2 GPUs)" in mixed.criterion
    assert trend([0.0, 1.0], [math.nan, math.nan], base_s=180.0) == Trend(span_s=1.0, readable=False)


def test_without_a_gpu_there_is_nothing_to_wait_for_or_to_say():
    verdict = judge_vitals([], base_s=BASE_S, **LIMITS)
    assert (verdict.steady, verdict.criterion) == (True, "")


def test_not_gated_is_said():
    flat = Trend(per_minute=9.0, span_s=1.0)
    verdict = judge_vitals([both(flat, flat)], base_s=60.0, temperature=None, clock=None)
    assert (verdict.steady, verdict.criterion) == (True, "temperature not gated, SM clock not gated")


def test_nothing_read_yet_is_not_steady():
    assert not judge_vitals([GpuTrends(temperature=Trend(), clock=Trend())], base_s=BASE_S, **LIMITS).steady
    assert trend([], [], base_s=180.0) == Trend()
    assert trend([1.0], [70.0], base_s=180.0).per_minute is None


def test_the_steepest_slope_keeps_its_sign():
    assert steepest([]) is None
    assert steepest([Trend(per_minute=0.2), Trend(), Trend(per_minute=-0.5)]) == -0.5
