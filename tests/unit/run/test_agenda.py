import pickle
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from planned import planned_session

from rtxscale.plan.model import Placement
from rtxscale.run.agenda import Agenda, Todo, needs, remaining
from rtxscale.run.quarantine import kills_so_far, quarantine_words

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
    agenda = Agenda(remaining(PLAN, {}), limits={"limit": time.monotonic()})
    assert agenda.next() is None
    assert agenda.stopped == "limit"
    assert agenda.waiting == 3


def test_a_limit_that_nothing_is_left_for_stops_nothing():
    agenda = Agenda([], limits={"limit": time.monotonic()})
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


def row(todo, outcome, ended_ns):
    return {"cell_id": todo.planned.trial.cell.cell_id, "outcome": outcome, "ended_ns": ended_ns}


TWICE = planned_session("again", 1.0, 2.0, visit=2)
VISITS = SimpleNamespace(sessions=(FIRST, TWICE))


def test_a_cell_that_ends_its_workers_twice_in_a_row_is_set_aside_and_the_rest_goes_on():
    agenda = Agenda(remaining(VISITS, {}))
    first = agenda.next()
    assert agenda.ended(first, "crashed") == 0
    agenda.retry(first, "crashed")
    assert agenda.ended(agenda.next(), "ok") == 0
    again = agenda.next()
    assert again.attempt == 2
    assert agenda.ended(again, "hang") == 1
    assert [todo.session.session_id for todo in agenda.quarantined] == ["again"]
    assert names(agenda) == [("again", 2.0, 1)]


@pytest.mark.parametrize("between", ["ok", "oom", "diverged", "unsteady", "not_honoured"])
def test_an_ending_that_leaves_the_workers_alive_breaks_the_row(between):
    """Out of memory in a used process counts as crashed until a fresh one confirms it, at every visit."""
    agenda = Agenda(remaining(VISITS, {}))
    first = agenda.next()
    assert [agenda.ended(first, outcome) for outcome in ("crashed", between, "crashed", between)] == [0, 0, 0, 0]
    assert agenda.waiting == 3


@pytest.mark.parametrize("between", ["cancelled", "foreign_process"])
def test_an_ending_that_says_nothing_about_the_cell_does_not(between):
    agenda = Agenda(remaining(VISITS, {}))
    first = agenda.next()
    assert [agenda.ended(first, outcome) for outcome in ("crashed", between, "crashed")] == [0, 0, 1]


def test_other_endings_kill_nobody():
    agenda = Agenda(remaining(VISITS, {}))
    first = agenda.next()
    for outcome in ("oom", "unsteady", "diverged", "not_honoured", "cancelled", "foreign_process"):
        assert agenda.ended(first, outcome) == 0
    assert agenda.waiting == 3


def test_quarantine_outlives_the_driver():
    first, second = remaining(VISITS, {})[:2]
    rows = [row(first, "hang", 2), row(second, "crashed", 3), row(first, "crashed", 1), row(second, "ok", 4)]
    kills = kills_so_far(rows)
    agenda = Agenda(remaining(VISITS, {}), kills=kills)
    assert {todo.planned.trial.cell for todo in agenda.quarantined} == {first.planned.trial.cell}
    assert names(agenda) == [("first", 2.0, 1), ("again", 2.0, 1)]


def test_before_anything_starts_a_run_names_its_cells_in_quarantine_and_the_way_out():
    first, second = remaining(VISITS, {})[:2]
    told = {"axes_json": '{"gpus": 1, "ddp.bucket_mib": 1.0}', "message": "no word for 300 s"}
    rows = [row(first, "hang", 2) | told, row(second, "crashed", 3), row(first, "crashed", 1), row(second, "ok", 4)]
    said = quarantine_words(rows)
    assert said[0].startswith("quarantine: 1 cell of this run has ended the workers twice in a row")
    assert said[1] == "  gpus=1 ddp.bucket_mib=1.0: hang: no word for 300 s"
    assert "--fresh tries it again" in said[2]
    assert quarantine_words(rows[1:]) == []


def test_what_a_cell_in_quarantine_says_of_itself_is_one_line():
    first = remaining(VISITS, {})[0]
    told = {"axes_json": '{"model": "a\\nquarantine: none"}', "message": "gone\nall is well\x1b[0m"}
    said = quarantine_words([row(first, "hang", 1), row(first, "crashed", 2) | told])
    assert said[1] == r"  model=a\nquarantine: none: crashed: gone\nall is well\x1b[0m"
    assert len(said) == 3


@pytest.mark.parametrize("axes", ["[1, 2]", "no JSON", "3", "{}", "", None, "[" * 100_000])
def test_a_cell_whose_axes_say_nothing_is_named_by_its_workload_or_id(axes):
    cell = {"cell_id": "c1", "outcome": "hang", "axes_json": axes}
    for more, name in (({"workload": "vision/resnet18"}, "vision/resnet18"), ({}, "c1")):
        said = quarantine_words([cell | more | {"ended_ns": 1}, cell | more | {"ended_ns": 2}])
        assert said[1] == f"  {name}: hang"


def test_of_many_cells_in_quarantine_a_few_are_named():
    rows = [{"cell_id": f"cell{n}", "outcome": "crashed", "ended_ns": turn} for turn in (1, 2) for n in range(6)]
    said = quarantine_words(rows)
    assert said[0].startswith("quarantine: 6 cells of this run have")
    assert said[1:-1] == [*(f"  cell{n}: crashed" for n in range(4)), "  and 2 more"]


def test_of_two_limits_the_first_is_named():
    now = time.monotonic()
    agenda = Agenda(remaining(PLAN, {}), limits={"limit": now - 1, "max_hours": now - 2})
    assert agenda.next() is None
    assert agenda.stopped == "max_hours"


def test_trials_that_need_a_lost_node_are_set_aside_and_the_rest_goes_on():
    far = replace(SECOND, placement=Placement(nodes=("node0", "node1")))
    agenda = Agenda(remaining(SimpleNamespace(sessions=(far, FIRST)), {}))
    todo = agenda.next()
    assert needs(todo, {"node1"})
    assert not needs(todo, {"node7"})
    agenda.retry(todo, "crashed")
    assert agenda.lose({"node1"}, todo) == 2
    assert [one.session.session_id for one in agenda.stranded] == ["second", "second"]
    assert names(agenda) == [("first", 1.0, 1), ("first", 2.0, 1)]
