"""Verdicts of the instrument's checks: right on machines whose truth is known, and able to fail."""

import math

import numpy as np
import polars as pl
import pytest
from made_trials import collectives_frame, made_row, trials_frame

from rtxscale.analysis.selftest.delays import check_delays
from rtxscale.analysis.selftest.equality import check_isolation, check_launcher
from rtxscale.analysis.selftest.reference import check_bandwidth, check_energy
from rtxscale.analysis.selftest.simulated import Machine, check_simulated, simulated_arms
from rtxscale.analysis.selftest.verdicts import arm_pairs, check_equal_arms, evidence_of
from rtxscale.spec.cell import Cell

MIB = 2**20


def cell(batch=256, gpus=2, **fields):
    workload = {"kind": "vision", "model": "resnet18", "batch_per_gpu": batch, "global_batch": batch * gpus}
    return Cell.model_validate({"gpus": gpus, "workload": workload, **fields})


def row(of, step_s, visit, session=None, **columns):
    """One trial of 100 steps that took `step_s` each."""
    throughput = of.workload.global_batch / step_s
    session = session or f"{of.launcher}-{of.isolation}-{visit}"
    times = {"window_s": 100 * step_s, "window_steps": 100}
    return made_row(of, throughput, visit=visit, session=session, **{**times, **columns})


# --- equal arms -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("visits", [2, 3, 5])
def test_equal_arms_are_called_different_as_often_as_the_test_says(visits):
    shares = []
    for seed in range(10, 20):
        check = check_equal_arms(evidence_of(simulated_arms(Machine(), 500, visits, seed)))
        assert len(check.rows) == 500
        shares.append(np.mean([pair["p_value"] < 0.05 for pair in check.rows]))
    assert np.mean(shares) == pytest.approx(0.05, abs=0.008)  # 5,000 verdicts: 2.6 standard errors


def test_the_check_that_the_command_shows_passes():
    check = check_simulated()
    assert (check.name, check.verdict, len(check.rows)) == ("simulated", "passed", 500)
    assert "of 500 equal pairs called different" in check.said


def test_arms_that_are_not_equal_are_found_out():
    check = check_equal_arms(evidence_of(simulated_arms(Machine(arm=0.01), 200, 3, 1)))
    assert check.verdict == "failed"


def test_a_spread_that_is_not_the_noise_of_a_visit_is_found_out():
    """Means over all visits in place of each visit's value: hardly any spread is left to judge the arms by."""
    trials = simulated_arms(Machine(), 200, 3, 3)
    pooled = pl.col("throughput_per_s").mean().over("cell_id")
    smooth = trials.with_columns(throughput_per_s=pooled * (1 + 1e-6 * pl.int_range(pl.len()).over("cell_id") ** 2))
    wobble = pl.col("cell_id").hash(7) % 7
    smooth = smooth.with_columns(pl.col("throughput_per_s") * (1 + 1e-7 * wobble * pl.col("visit")))
    assert check_equal_arms(evidence_of(trials)).verdict == "passed"
    assert check_equal_arms(evidence_of(smooth)).verdict == "failed"


def test_arms_are_paired_once_each_and_only_with_their_like():
    names = {"a00": 256, "a01": 256, "a02": 256, "a03": 256, "b00": 128, "b01": 128, "odd": 128}
    cells = [cell(batch, planted={"arm": name}) for name, batch in names.items()]
    cells += [cell(planted={"arm": "late", "delay_ms": 2.0}), cell()]
    evidence = evidence_of(trials_frame([row(one, 0.02, 1) for one in cells]))
    assert sorted(arm_pairs(evidence.settings)["pair"]) == ["a00 and a01", "a02 and a03", "b00 and b01"]


def test_few_pairs_say_so_and_one_visit_says_nothing():
    arms = [cell(planted={"arm": f"a{number}"}) for number in range(4)]
    rows = [
        row(one, 0.02 * (1 + 0.01 * place * visit**2 % 3), visit) for visit in (1, 2) for place, one in enumerate(arms)
    ]
    check = check_equal_arms(evidence_of(trials_frame(rows)))
    assert "fewer than 60 pairs" in check.said
    alone = check_equal_arms(evidence_of(trials_frame(rows[:4])))
    assert (alone.verdict, alone.said) == ("inconclusive", "no pair of arms has two visits in common")


def test_failed_trials_and_sentinels_do_not_count():
    arms = [cell(planted={"arm": f"a{number}"}) for number in range(2)]
    rows = [row(one, 0.02, visit) for visit in (1, 2) for one in arms]
    rows += [row(arms[0], 0.9, 3, outcome="crashed"), row(arms[1], 0.02, 3)]
    rows += [row(arms[0], 0.9, 1, trial_id="sentinel", stage="sentinel")]
    (pair,) = check_equal_arms(evidence_of(trials_frame(rows))).rows
    assert (pair["visits"], pair["ratio"]) == (2, 1.0)


# --- planted delays ---------------------------------------------------------------------------------------------------


def delayed_rows(delays_ms, *, visits=3, found=1.0, noise=0.0002, seed=0, relief_ms=0.0, **columns):
    """Trials of 20 ms steps and delayed twins, of whose delay the share `found` shows; any pause gives `relief_ms`."""
    chance = np.random.default_rng(seed)
    rows = []
    for visit in range(1, visits + 1):
        level = 0.020 * (1 + chance.normal(0, 0.02))
        for delay_ms in (0.0, *delays_ms):
            step_s = level * (1 + chance.normal(0, noise)) + found * delay_ms / 1000
            step_s -= relief_ms / 1000 if delay_ms else 0.0
            rows.append(row(cell(planted={"delay_ms": delay_ms}), step_s, visit, **columns))
    return trials_frame(rows)


def judged(check):
    return [row for row in check.rows if not row["is_base"]]


def test_planted_delays_are_recovered():
    check = check_delays(evidence_of(delayed_rows([2.0, 5.0, 20.0])))
    assert check.verdict == "passed", check.said
    assert [found["planted_ms"] for found in judged(check)] == [3.0, 18.0]
    for found in judged(check):
        assert found["recovered_ms"] == pytest.approx(found["planted_ms"], abs=0.05)
        assert found["low_ms"] < found["recovered_ms"] < found["high_ms"]
        assert (found["base_ms"], found["visits"], found["confidence"]) == (2.0, 3, pytest.approx(1 - 0.05 / 2))


def test_what_a_pause_gives_back_is_told_and_does_not_blur_the_verdict():
    check = check_delays(evidence_of(delayed_rows([16.0, 17.0, 20.0], relief_ms=0.5)))
    assert check.verdict == "passed", check.said
    (base,) = [row for row in check.rows if row["is_base"]]
    assert (base["planted_ms"], base["recovered_ms"]) == (16.0, pytest.approx(15.5, abs=0.05))
    assert "a pause of 16 ms itself gives back 0." in check.said
    assert "1 ms beyond 16 found as" in check.said


def test_a_single_delay_is_compared_with_none():
    check = check_delays(evidence_of(delayed_rows([5.0], relief_ms=0.5)))
    assert check.verdict == "failed"
    assert check.rows[0]["recovered_ms"] == pytest.approx(4.5, abs=0.05)


def test_delays_on_one_rank_and_on_all_are_kept_apart():
    late = {"delay_rank": 1}
    rows = [
        row(cell(planted={"delay_ms": delay_ms, **which}), 0.02 + delay_ms / (1000 if which else 500), visit)
        for visit in (1, 2, 3)
        for which in ({}, late)
        for delay_ms in (4.0, 8.0)
    ]
    found = {found["delay_rank"]: found["recovered_ms"] for found in check_delays(evidence_of(trials_frame(rows))).rows}
    assert found == {None: pytest.approx(8.0), "1": pytest.approx(4.0)}


@pytest.mark.parametrize("found", [0.9, 1.1, 0.0])
def test_an_instrument_that_sees_another_delay_fails(found):
    check = check_delays(evidence_of(delayed_rows([5.0, 20.0], found=found)))
    assert check.verdict == "failed", check.said


def test_noise_that_hides_the_delay_is_no_pass():
    check = check_delays(evidence_of(delayed_rows([2.0], noise=0.2)))
    assert (check.verdict, check.rows[0]["contains_nothing"]) == ("inconclusive", True)


def test_one_visit_gives_no_interval_and_no_verdict():
    check = check_delays(evidence_of(delayed_rows([2.0], visits=1)))
    assert (check.verdict, check.rows[0]["low_ms"]) == ("inconclusive", None)
    assert "without an interval" in check.said


def test_at_the_power_cap_a_missed_delay_is_the_machines():
    capped = check_delays(evidence_of(delayed_rows([5.0], found=0.8, power_cap_share=0.9)))
    assert capped.verdict == "inconclusive"
    assert "power cap" in capped.said
    assert check_delays(evidence_of(delayed_rows([5.0], found=0.8, power_cap_share=0.01))).verdict == "failed"


def test_all_delays_together_are_right_as_often_as_one_interval_would_be():
    verdicts = [
        check_delays(evidence_of(delayed_rows([2.0, 5.0, 20.0], noise=0.002, seed=seed))).verdict for seed in range(200)
    ]
    assert verdicts.count("failed") <= 20  # at most 5 % expected: 10 of 200, 3 standard errors more
    assert verdicts.count("passed") >= 150


def test_several_undelayed_arms_are_averaged_and_other_cells_left_out():
    rows = [row(cell(planted={"arm": name}), step_s, visit) for visit in (1, 2, 3)
            for name, step_s in (("a0", 0.019 + visit * 1e-5), ("a1", 0.021 + visit * 1e-5))]  # fmt: skip
    rows += [row(cell(planted={"delay_ms": 5.0}), 0.025 + visit * 1.1e-5, visit) for visit in (1, 2, 3)]
    rows += [row(cell(128), 0.001, visit) for visit in (1, 2, 3)]
    (found,) = check_delays(evidence_of(trials_frame(rows))).rows
    assert found["recovered_ms"] == pytest.approx(5.002)


# --- equality ---------------------------------------------------------------------------------------------------------

BATCHES = (256, 288, 320, 384)


def two_ways(ratio, *, noise=0.002, visits=3, seed=0, **other_way):
    """Four cells run the default way and another way, which is `ratio` times as fast."""
    chance = np.random.default_rng(seed)
    rows = []
    for visit in range(1, visits + 1):
        for batch in BATCHES:
            rows.append(row(cell(batch), 0.02 * math.exp(chance.normal(0, noise)), visit))
            session = f"other-{visit}-{batch if 'isolation' in other_way else ''}"
            step_s = 0.02 / ratio * math.exp(chance.normal(0, noise))
            rows.append(row(cell(batch, **other_way), step_s, visit, session=session))
    return evidence_of(trials_frame(rows))


def test_fresh_processes_that_are_as_fast_are_shown_equal_cell_by_cell():
    check = check_isolation(two_ways(1.0, isolation="process"))
    assert check.verdict == "passed", check.said
    assert [found["cells"] for found in check.rows] == [f"batch {batch}" for batch in BATCHES]
    for found in check.rows:
        assert (found["verdict"], found["visits"]) == ("equal", 3)
        assert 1 / 1.01 < found["low"] < found["ratio"] < found["high"] < 1.01


def test_three_visits_are_enough_on_a_machine_with_noise_of_two_in_a_thousand():
    verdicts = [check_isolation(two_ways(1.0, isolation="process", seed=seed)).verdict for seed in range(100)]
    assert verdicts.count("passed") >= 80
    assert "failed" not in verdicts


@pytest.mark.parametrize(("ratio", "verdict"), [(0.97, "failed"), (1.05, "failed")])
def test_fresh_processes_that_differ_by_more_than_the_margin_fail(ratio, verdict):
    assert check_isolation(two_ways(ratio, isolation="process")).verdict == verdict


def test_a_difference_at_the_margin_is_hardly_ever_accepted():
    verdicts = [check_isolation(two_ways(1.01, isolation="process", seed=seed)).rows for seed in range(100)]
    accepted = sum(found["verdict"] == "equal" for rows in verdicts for found in rows)
    assert accepted <= 40  # 5 % of 400, 4.6 standard errors more


def test_noise_is_inconclusive_and_seldom_a_failure():
    checks = [check_isolation(two_ways(1.0, noise=0.05, isolation="process", seed=seed)) for seed in range(100)]
    verdicts = [check.verdict for check in checks]
    assert verdicts.count("inconclusive") >= 88
    assert verdicts.count("failed") <= 12  # at most 5 % expected, 3 standard errors more
    assert "not shown equal" in checks[verdicts.index("inconclusive")].said


def test_launchers_are_compared_over_all_cells_of_a_visit():
    check = check_launcher(two_ways(1.0, launcher="torchrun"))
    assert check.verdict == "passed", check.said
    (found,) = check.rows
    assert (found["cells"], found["visits"]) == ("4 cells", 3)
    slower = check_launcher(two_ways(1 / 0.95, launcher="torchrun"))  # torchrun is faster: Ray takes something away
    assert slower.verdict == "failed"
    assert slower.rows[0]["ratio"] == pytest.approx(0.95, abs=0.005)


def test_without_the_other_way_nothing_can_be_said():
    only = evidence_of(trials_frame([row(cell(), 0.02, visit) for visit in (1, 2)]))
    assert check_isolation(only).verdict == check_launcher(only).verdict == "inconclusive"


# --- other instruments ------------------------------------------------------------------------------------------------


def bandwidths(ratios, *, visits=2):
    """Timed all-reduces, by size in MiB the ratio to nccl-tests' 100 GB/s."""
    trials, rows = [], []
    for visit in range(1, visits + 1):
        trial = row(cell(), 0.02, visit)
        trials.append(trial)
        for size_mib, ratio in ratios.items():
            busbw = 100.0 * ratio * (1 + 0.0005 * visit)
            rows.append({"trial_id": trial["trial_id"], "attempt": 1, "operation": "all_reduce", "data_ok": True,
                         "size_bytes": size_mib * MIB, "dtype": "fp32", "busbw_gb_s": busbw, "algbw_gb_s": busbw,
                         "time_p50_s": 0.01})  # fmt: skip
    return evidence_of(trials_frame(trials)), collectives_frame(rows)


NCCL_TESTS = [{MIB: 100.0, 64 * MIB: 100.0, 512 * MIB: 100.1}, {MIB: 100.0, 64 * MIB: 100.1, 512 * MIB: 100.0}]


def test_bandwidth_is_compared_size_by_size_from_64_mib_on():
    check = check_bandwidth(*bandwidths({1: 0.4, 64: 0.99, 512: 1.003, 256: 0.5}), NCCL_TESTS)
    assert check.verdict == "passed", check.said
    assert [found["size_bytes"] // MIB for found in check.rows] == [64, 512]
    assert check.rows[0]["ratio"] == pytest.approx(0.99 * 1.00075 / 1.0005, abs=1e-5)
    assert check.rows[0]["low"] < check.rows[0]["ratio"] < check.rows[0]["high"]


def test_bandwidth_below_the_bar_fails_if_the_interval_says_so():
    assert check_bandwidth(*bandwidths({64: 0.9, 512: 1.0}), NCCL_TESTS).verdict == "failed"
    near = check_bandwidth(*bandwidths({64: 0.978}), [{64 * MIB: 99.0}, {64 * MIB: 101.0}])
    assert near.verdict == "inconclusive"
    assert check_bandwidth(*bandwidths({64: 0.97}, visits=1), NCCL_TESTS[:1]).verdict == "failed"


def test_bandwidth_without_a_common_size_says_nothing():
    assert check_bandwidth(*bandwidths({1: 1.0}), NCCL_TESTS).verdict == "inconclusive"
    assert check_bandwidth(*bandwidths({64: 1.0}), [{}]).verdict == "inconclusive"


def test_energies_are_reported_with_their_difference():
    rows = [
        row(cell(batch), 0.02, visit, energy_counter_j=1000.0, energy_integral_j=1000.0 * (1 + 0.01 * visit))
        for visit in (1, 2, 3)
        for batch in (256, 288)
    ]
    check = check_energy(evidence_of(trials_frame(rows)))
    (found,) = check.rows
    assert (check.verdict, found["windows"], found["sessions"]) == ("reported", 6, 3)
    assert found["difference"] == pytest.approx(0.02, abs=1e-4)
    assert found["low"] < 0.02 < found["high"]
    assert found["largest"] == pytest.approx(math.log(1.03))
    assert "+2.00% (" in check.said


def test_windows_with_too_few_steps_of_the_counter_are_counted():
    both = {"energy_counter_j": 1000.0, "energy_integral_j": 1000.0, "energy_source": "counter"}
    rows = [row(cell(), 0.02, visit, energy_updates=50.0 * visit, **both) for visit in (1, 2, 3)]
    check = check_energy(evidence_of(trials_frame(rows)))
    assert check.rows[0]["coarse"] == 1
    assert "in 1 of them the counter made fewer than 100 steps: `rtxscale record FILE --seconds 60`" in check.said


def test_bounds_of_a_ratio_that_say_nothing_are_none():
    wild = [{64 * MIB: 10.0}, {64 * MIB: 1000.0}]
    (found,) = check_bandwidth(*bandwidths({64: 1.0}), wild).rows
    assert (found["low"], found["high"]) == (None, None)
    rows = []
    for visit, factor in ((1, 1.0), (2, 40.0)):
        rows += [row(cell(), 0.02, visit, session=f"w{visit}"), row(cell(isolation="process"), 0.02 * factor, visit)]
    check = check_isolation(evidence_of(trials_frame(rows)))
    assert (check.rows[0]["low"], check.rows[0]["high"]) == (None, None)
    assert "interval wider than x10: more visits" in check.said


def test_without_counters_energy_does_not_apply():
    check = check_energy(evidence_of(trials_frame([row(cell(), 0.02, 1, energy_integral_j=5.0)])))
    assert check.text.startswith("not run: not applicable")


def test_a_run_whose_trials_all_failed_says_nothing_and_breaks_nothing():
    rows = [row(cell(planted={"arm": name}), 0.02, 1, outcome="crashed") for name in ("a0", "a1")]
    for trials in (trials_frame(rows), trials_frame([])):
        evidence = evidence_of(trials)
        checks = [check(evidence) for check in (check_equal_arms, check_delays, check_isolation, check_launcher)]
        checks.append(check_bandwidth(evidence, collectives_frame(), NCCL_TESTS))
        assert {check.verdict for check in checks} == {"inconclusive"}
        assert check_energy(evidence).verdict == "not run"
