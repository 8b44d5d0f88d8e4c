import pytest

from rtxscale.rank.channel import RankReport
from rtxscale.results.outcomes import Outcome
from rtxscale.run.failures import SEVERITY, SPOILT, Death, TrialEnd, deadline_s, describe_ranks, judge, turned_away
from rtxscale.spec.cell import Cell, Measure
from rtxscale.spec.workload import CollectivesProbe, VisionWorkload


def report(rank, outcome=Outcome.OK, message=""):
    return RankReport(rank=rank, outcome=outcome, message=message)


def end(*reports, world=2, **fields):
    return TrialEnd(world=world, reports={one.rank: one for one in reports}, **fields)


def decide(trial_end, earlier=(), first=True, **context):
    return judge(trial_end, earlier=list(earlier), first_of_session=first, **context)


def test_all_ranks_well_is_ok_and_the_session_goes_on():
    verdict = decide(end(report(0), report(1)))
    assert (verdict.outcome, verdict.retry, verdict.session_over) == (Outcome.OK, False, False)


def test_a_dead_rank_is_a_crash_said_once_with_its_rank_and_is_tried_again():
    verdict = decide(end(report(0), death=Death(summary="group failed", by_rank={1: "its process died"})))
    assert verdict.outcome is Outcome.CRASHED
    assert verdict.message == "rank 1: its process died"
    assert verdict.retry
    assert verdict.session_over


def test_a_death_that_no_rank_explains_keeps_the_summary():
    assert decide(end(death=Death(summary="host gone"))).message == "host gone"


def test_what_peers_report_of_a_dead_rank_is_not_the_reason():
    death = Death(summary="group failed", by_rank={0: "RuntimeError: connection reset", 1: "its process died"})
    verdict = decide(end(report(0, Outcome.CRASHED, "RuntimeError: connection reset"), death=death))
    assert verdict.message == "rank 1: its process died"


def test_a_second_crash_is_the_last_word():
    verdict = decide(end(report(0, Outcome.CRASHED, "boom"), report(1)), earlier=["crashed"])
    assert (verdict.outcome, verdict.retry) == (Outcome.CRASHED, False)


def test_a_cancelled_attempt_does_not_use_up_the_retry():
    assert decide(end(report(0, Outcome.CRASHED, "boom"), report(1)), earlier=["cancelled"]).retry


def test_silence_is_a_hang_that_names_the_silent_ranks():
    verdict = decide(end(report(0), world=3, waited_s=60.0))
    assert verdict.outcome is Outcome.HANG
    assert verdict.message == "ranks 1, 2 silent for 60 s"
    assert verdict.session_over


def test_ranks_silent_beside_a_failed_one_are_not_called_hung_but_the_session_ends():
    verdict = decide(end(report(0, Outcome.DIVERGED, "loss is nan"), report(1, Outcome.CRASHED, "boom"), world=3))
    assert (verdict.outcome, verdict.session_over) == (Outcome.CRASHED, True)


def test_an_echo_of_another_rank_is_not_repeated():
    verdict = decide(end(report(0, Outcome.CRASHED, "rank 1 failed: boom"), report(1, Outcome.CRASHED, "boom")))
    assert verdict.message == "rank 1: boom"


def test_out_of_memory_in_a_used_process_is_tried_again_in_a_fresh_one():
    verdict = decide(end(report(0, Outcome.OOM, "20 GiB"), report(1)), first=False)
    assert (verdict.outcome, verdict.retry, verdict.session_over) == (Outcome.CRASHED, True, True)
    assert "to be confirmed" in verdict.message
    confirmed = decide(end(report(0, Outcome.OOM, "20 GiB"), report(1)), earlier=["crashed"], first=True)
    assert (confirmed.outcome, confirmed.retry) == (Outcome.OOM, False)


def test_out_of_memory_of_one_rank_explains_the_crash_of_its_peers():
    trial_end = end(report(0, Outcome.CRASHED, "connection reset"), report(1, Outcome.OOM, "20 GiB"))
    assert decide(trial_end).outcome is Outcome.OOM


def test_out_of_memory_says_what_would_fit_however_long_the_library_talks():
    verdict = decide(end(report(0, Outcome.OOM, "word " * 400), report(1)), would_fit="batch_per_gpu 4 would fit")
    assert verdict.outcome is Outcome.OOM
    assert verdict.message.endswith("; batch_per_gpu 4 would fit")
    assert len(verdict.message) <= 500
    used = decide(end(report(0, Outcome.OOM, "20 GiB"), report(1)), first=False, would_fit="batch_per_gpu 4 would fit")
    assert used.message.endswith("batch_per_gpu 4 would fit")
    assert decide(end(report(0, Outcome.CRASHED, "boom"), report(1)), would_fit="smaller").message == "rank 0: boom"


GAME = "GPU-a on node0 is held by game (pid 42, 3,000 MiB)"


@pytest.mark.parametrize(
    ("outcome", "message", "over"),
    [
        (Outcome.OK, "", False),
        (Outcome.UNSTEADY, "drift", False),
        (Outcome.OOM, "20 GiB", True),
        (Outcome.CRASHED, "boom", True),
    ],
)
def test_somebody_else_on_the_gpus_explains_the_trial_away(outcome, message, over):
    verdict = decide(end(report(0, outcome, message), report(1)), first=False, strangers=GAME)
    assert (verdict.outcome, verdict.retry, verdict.session_over) == (Outcome.FOREIGN_PROCESS, True, over)
    assert verdict.message.startswith(f"{GAME}; the trial itself: {outcome}")
    assert verdict.message.endswith(message)
    assert "to be confirmed" not in verdict.message
    assert not decide(end(report(0, outcome, message), report(1)), earlier=["foreign_process"], strangers=GAME).retry


def test_a_hang_beside_somebody_else_still_ends_the_session():
    verdict = decide(end(report(0), waited_s=60.0), strangers=GAME)
    assert (verdict.outcome, verdict.session_over) == (Outcome.FOREIGN_PROCESS, True)


@pytest.mark.parametrize("outcome", [Outcome.DIVERGED, Outcome.NOT_HONOURED])
def test_nobody_else_makes_a_loss_nan_or_a_setting_refuted(outcome):
    assert decide(end(report(0, outcome, "because"), report(1)), strangers=GAME).outcome is outcome
    assert outcome not in SPOILT


def test_an_interrupted_trial_is_cancelled_whoever_else_was_there():
    assert decide(end(interrupted=True), strangers=GAME).outcome is Outcome.CANCELLED


def test_a_trial_that_found_its_gpus_taken_is_tried_again_once():
    verdict = turned_away(GAME, earlier=[])
    assert (verdict.outcome, verdict.retry, verdict.session_over) == (Outcome.FOREIGN_PROCESS, True, False)
    assert verdict.message == f"not begun: {GAME}"
    assert not turned_away(GAME, earlier=["hang"]).retry


def test_unsteady_is_tried_again_in_the_same_session():
    verdict = decide(end(report(0, Outcome.UNSTEADY, "drift"), report(1)))
    assert (verdict.outcome, verdict.retry, verdict.session_over) == (Outcome.UNSTEADY, True, False)


def test_an_interrupted_trial_is_cancelled_and_not_tried_again_now():
    verdict = decide(end(report(0), interrupted=True))
    assert (verdict.outcome, verdict.retry) == (Outcome.CANCELLED, False)


def test_a_message_is_one_line_of_bounded_length():
    message = decide(end(report(0, Outcome.CRASHED, "a\nb" * 1000), report(1))).message
    assert "\n" not in message
    assert len(message) <= 500


def test_every_outcome_a_rank_can_report_has_its_place_in_the_order():
    assert set(SEVERITY) | {Outcome.INFEASIBLE} == set(Outcome)


def cell(**fields):
    times = {"warmup_max_s": 20.0, "window_s": 3.0, "soak_s": 0.0}
    measure = Measure(loss_budget=fields.pop("loss_budget", False), **times)
    workload = VisionWorkload(kind="vision", batch_per_gpu=8, compile=fields.pop("compile", "off"))
    return Cell(workload=workload, measure=measure, **fields)


def test_the_deadline_follows_what_the_trial_may_take():
    plain = deadline_s(cell(), floor_s=100.0)
    assert plain == pytest.approx(100.0 + 3 * 23.0)
    assert deadline_s(cell(compile="default"), floor_s=100.0) == plain + 600.0
    probe = CollectivesProbe(operations=("all_reduce", "all_gather"), sizes_mib=(1.0, 64.0))
    assert deadline_s(cell(collectives=probe), floor_s=100.0) == plain + 40.0
    assert deadline_s(cell(loss_budget=True), floor_s=100.0) == pytest.approx(plain + 3 * 3.0)


def test_a_known_trial_is_given_up_much_sooner():
    # 3 x 5 s below a fifth of the floor of 300 s; beside it the 23 s that the measure allows.
    assert deadline_s(cell(), floor_s=300.0, known_s=5.0) == pytest.approx(60.0 + 23.0)
    assert deadline_s(cell(), floor_s=300.0, known_s=30.0) == pytest.approx(90.0 + 23.0)
    assert deadline_s(cell(compile="default"), floor_s=300.0, known_s=100.0) == pytest.approx(300.0 + 23.0)


def test_what_is_known_never_makes_it_longer_and_never_shorter_than_the_measure_allows():
    assert deadline_s(cell(), floor_s=100.0, known_s=1e6) == deadline_s(cell(), floor_s=100.0)
    assert deadline_s(cell(), floor_s=0.0, known_s=0.1) >= 23.0
    probe = CollectivesProbe(operations=("all_reduce",), sizes_mib=(1.0, 64.0))
    assert deadline_s(cell(collectives=probe), floor_s=300.0, known_s=5.0) == pytest.approx(60.0 + 23.0 + 20.0)


def test_ranks_that_say_the_same_are_named_together():
    assert describe_ranks({1: "b", 0: "a", 2: "a"}) == "ranks 0, 2: a; rank 1: b"
