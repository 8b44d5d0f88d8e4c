"""A selection becomes sessions of its own: interleaved, balanced, apart from the sweep's, extended by more visits."""

import pytest
from made_plans import VISION, machine, plan, sweep

from rtxscale.errors import PlanError
from rtxscale.plan.confirm import Pair, confirmation_plan
from rtxscale.run.agenda import remaining

AXES = {"gpus": [1, 2, 4], "nccl.algorithm": ["auto", "ring"], "nccl.p2p": ["auto", "disabled"]}
MACHINE = machine(4)


def cell_id(made, **axes):
    wanted = {"nccl.algorithm": "auto", "nccl.p2p": "auto"} | {name.replace("_", "."): axes[name] for name in axes}
    (found,) = {planned.trial.cell.cell_id for planned in made.trials if wanted.items() <= planned.axes.items()}
    return found


def pair_of(made, **axes):
    return Pair(selected=cell_id(made, **axes), default=cell_id(made, gpus=axes["gpus"]), label=f"gpus {axes['gpus']}")


def confirmed(pairs, visits=4, axes=AXES, attempts=None, **fields):
    return confirmation_plan(sweep(axes, **fields), MACHINE, pairs=pairs, visits=visits, attempts=attempts)


@pytest.fixture(scope="module")
def swept():
    return plan(AXES, MACHINE)


@pytest.fixture(scope="module")
def ring(swept):
    return pair_of(swept, gpus=2, **{"nccl_algorithm": "ring"})


def orders(made, pair):
    letters = {pair.selected: "A", pair.default: "B"}
    return ["".join(letters[planned.trial.cell.cell_id] for planned in session.trials) for session in made.sessions]


def test_both_cells_share_a_session_in_balanced_and_mirrored_order(ring):
    assert orders(confirmed([ring]), ring) == ["ABBA", "BAAB", "ABBA", "BAAB"]


def test_cells_of_different_processes_have_a_session_each_and_take_turns(swept):
    pair = pair_of(swept, gpus=2, nccl_p2p="disabled")
    made = confirmed([pair])
    assert orders(made, pair) == ["AA", "BB", "BB", "AA", "AA", "BB", "BB", "AA"]
    assert [session.visit for session in made.sessions] == [1, 1, 2, 2, 3, 3, 4, 4]


def test_process_isolation_is_a_session_a_trial_in_the_same_order():
    whole = plan(AXES, MACHINE, isolation="process")
    pair = pair_of(whole, gpus=2, nccl_algorithm="ring")
    made = confirmed([pair], visits=2, isolation="process")
    assert "".join(orders(made, pair)) == "ABBABAAB"
    assert all(session.key.alone == session.trials[0].trial_id for session in made.sessions)


def test_every_second_visit_takes_the_pairs_in_mirrored_order(swept, ring):
    four = pair_of(swept, gpus=4, nccl_algorithm="ring")
    assert [session.key.gpus for session in confirmed([ring, four]).sessions] == [2, 4, 4, 2, 2, 4, 4, 2]


def test_its_trials_and_sessions_are_never_those_of_the_sweep(swept, ring):
    made = confirmed([ring, pair_of(swept, gpus=4, nccl_p2p="disabled")], visits=2)
    for ids in (
        lambda each: [planned.trial_id for planned in each.trials if planned.trial.stage != "sentinel"],
        lambda each: [session.session_id for session in each.sessions],
    ):
        assert len(set(ids(made))) == len(ids(made))
        assert not set(ids(made)) & set(ids(swept))
    assert {planned.trial.stage for planned in made.trials} == {"confirm"}
    assert all(planned.trial_id == planned.trial.trial_id for planned in made.trials)
    assert max(len(session.session_id) for session in made.sessions) <= 24


def test_two_batches_of_one_key_keep_sessions_apart():
    axes = {"gpus": [2], "workload.batch_per_gpu": [4, 8], "nccl.algorithm": ["auto", "ring"]}
    workload = {name: value for name, value in VISION.items() if name != "batch_per_gpu"}
    whole = plan(axes, MACHINE, workload=workload)
    ids = {tuple(planned.axes.values()): planned.trial.cell.cell_id for planned in whole.trials}
    pairs = [Pair(selected=ids[2, batch, "ring"], default=ids[2, batch, "auto"]) for batch in (4, 8)]
    sessions = confirmed(pairs, axes=axes, workload=workload, visits=1).sessions
    assert sessions[0].key == sessions[1].key
    assert sessions[0].session_id != sessions[1].session_id


def test_running_again_continues_and_more_visits_extend(ring):
    two, four = confirmed([ring], visits=2), confirmed([ring], visits=4)
    assert four.sessions[:2] == two.sessions
    done = {planned.trial_id: ["ok"] for planned in two.trials}
    assert remaining(two, done) == []
    assert {todo.session.visit for todo in remaining(four, done)} == {3, 4}


def test_the_sweep_goes_on_undisturbed(swept, ring):
    done = {planned.trial_id: ["ok"] for planned in confirmed([ring]).trials}
    assert len(remaining(swept, done)) == len(swept.trials)


def test_workers_get_as_many_threads_as_in_the_sweep():
    whole = plan({"gpus": [1, 2, 4], "ddp.bucket_mib": [1]}, machine(0, cpus=8))
    ids = {(cell.gpus, cell.ddp.bucket_mib): cell.cell_id for cell in (planned.trial.cell for planned in whole.trials)}
    pair = Pair(selected=ids[2, 1], default=ids[2, "auto"])
    made = confirmation_plan(whole.sweep, machine(0, cpus=8), pairs=[pair], visits=1)
    assert made.threads_per_worker == whole.threads_per_worker == 2


def test_a_selection_from_an_unfinished_sweep_is_remarked_on(swept, ring):
    asked = [planned.trial_id for planned in swept.trials if planned.trial.stage == "sweep"]
    done = {trial_id: ["ok"] for trial_id in asked}
    assert len(confirmed([ring], attempts=done).notes) == 1
    done.pop(asked[0])
    assert f"1 of the sweep's {len(asked)} trials are not finished" in confirmed([ring], attempts=done).notes[-1]


def test_a_cell_that_the_sweep_does_not_have_here_is_refused(ring):
    with pytest.raises(ValueError, match="share a default"):
        confirmed([ring, Pair(selected="0123456789ab", default=ring.default)])
    with pytest.raises(PlanError, match="found no cell 0123456789ab in the sweep as it would run here"):
        confirmed([Pair(selected="0123456789ab", default=ring.default)])
