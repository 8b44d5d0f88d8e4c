import pickle
import time
from types import SimpleNamespace

from planned import planned_session

from rtxscale.run.agenda import Agenda, Todo, remaining

FIRST = planned_session("first", 1.0, 2.0)
SECOND = planned_session("second", 1.0, gpus=2)
PLAN = SimpleNamespace(sessions=(FIRST, SECOND))


def names(agenda):
    given = []
    while todo := agenda.next():
        given.append((todo.session.session_id, todo.planned.axes["ddp.bucket_mib"], todo.attempt))
    return given


def test_what_is_finished_is_left_out_and_the_order_is_the_plans():
    done = {FIRST.trials[0].trial_id: ["ok"], SECOND.trials[0].trial_id: ["crashed"]}
    assert names(Agenda(remaining(PLAN, done))) == [("first", 2.0, 1), ("second", 1.0, 2)]


def test_a_cancelled_trial_is_still_to_do_with_the_next_number():
    todo = remaining(PLAN, {FIRST.trials[0].trial_id: ["cancelled"]})[0]
    assert (todo.attempt, todo.fresh) == (2, False)


def test_a_retry_goes_behind_its_sessions_other_trials():
    agenda = Agenda(remaining(PLAN, {}))
    agenda.retry(agenda.next(), "crashed")
    assert names(agenda) == [("first", 2.0, 1), ("first", 1.0, 2), ("second", 1.0, 1)]


def test_a_retry_of_a_sessions_last_trial_comes_at_once():
    agenda = Agenda(remaining(PLAN, {}))
    agenda.next()
    agenda.retry(agenda.next(), "unsteady")
    assert names(agenda)[0] == ("first", 2.0, 2)


def test_what_broke_a_group_wants_a_fresh_one():
    fresh = {
        outcome: Todo(session=FIRST, planned=FIRST.trials[0], earlier=(outcome,)).fresh
        for outcome in ("crashed", "hang", "unsteady", "cancelled")
    }
    assert fresh == {"crashed": True, "hang": True, "unsteady": False, "cancelled": False}


def test_at_the_limit_there_is_no_next_trial():
    agenda = Agenda(remaining(PLAN, {}), stop_at=time.monotonic())
    assert agenda.next() is None
    assert agenda.stopped == "limit"
    assert agenda.waiting == 3


def test_a_limit_that_nothing_is_left_for_stops_nothing():
    agenda = Agenda([], stop_at=time.monotonic())
    assert agenda.next() is None
    assert agenda.stopped is None


def test_the_first_reason_to_stop_stays():
    agenda = Agenda(remaining(PLAN, {}))
    agenda.stop("SIGINT")
    agenda.stop("error")
    assert (agenda.next(), agenda.stopped) == (None, "SIGINT")


def test_it_can_be_pickled():
    agenda = Agenda(remaining(PLAN, {}))
    agenda.next()
    assert names(pickle.loads(pickle.dumps(agenda))) == names(agenda)  # noqa: S301 - our own bytes
