"""How trials share sessions, and in which order everything runs."""

import pytest
from made_plans import VISION, machine, node, plan, swept

from rtxscale.devices.inventory import Inventory

AXES = {"gpus": [1, 2], "nccl.p2p": ["auto", "disabled"], "nccl.channels": ["auto", 1, 2, 4, 8, 16]}


def test_a_session_holds_what_one_process_can_serve():
    made = plan(AXES, machine(2), visits=1)
    served = [(session.key.gpus, session.key.slot, session.key.p2p, len(swept(session))) for session in made.sessions]
    assert served == [(1, 0, "auto", 1), (1, 1, "auto", 1), (2, 0, "auto", 6), (2, 0, "disabled", 6)]


def test_another_model_or_launcher_is_another_session():
    axes = {"gpus": [2], "workload.model": ["resnet18", "resnet50"], "launcher": ["ray", "torchrun"]}
    assert len(plan(axes, machine(2), visits=1).sessions) == 4


def test_batch_precision_bucket_and_plain_compile_are_swapped_warm():
    axes = {
        "gpus": [2],
        "workload.batch_per_gpu": [4, 8],
        "workload.precision": ["bf16", "fp32"],
        "ddp.bucket_mib": [1, 25],
        "workload.compile": ["off", "default"],
    }
    workload = {"kind": "vision", "model": "resnet18"}
    assert len(plan(axes, machine(2), workload=workload, visits=1).sessions) == 1


def test_the_baseline_visits_every_gpu_of_the_pool_but_one_cpu_worker_is_like_another():
    pool = Inventory(nodes=(node(2), node(1, node_id="b")))
    assert [s.key.slot for s in plan({"gpus": [1, 2]}, pool, visits=1).sessions if s.key.gpus == 1] == [0, 1, 2]
    assert len(plan({"gpus": [1]}, machine(0), visits=1).sessions) == 1


def test_every_second_visit_is_mirrored():
    made = plan(AXES, machine(2), visits=3)
    visits = [[s.key for s in made.sessions if s.visit == visit] for visit in (1, 2, 3)]
    assert visits[0] == visits[1][::-1] == visits[2]
    assert [session.visit for session in made.sessions] == [1] * 4 + [2] * 4 + [3] * 4


def test_every_cell_is_measured_in_every_visit_and_repeat():
    made = plan(AXES, machine(2), visits=2, repeats=3)
    assert len(swept(made)) == (2 + 12) * 2 * 3
    assert len({planned.trial_id for planned in made.trials}) == len(made.trials)
    assert all(planned.trial_id == planned.trial.trial_id for planned in made.trials)


def _rounds(session):
    by_repeat = {}
    for planned in swept(session):
        by_repeat.setdefault(planned.trial.repeat, []).append(planned.trial.cell.cell_id)
    return list(by_repeat.values())


def test_interleaved_draws_a_new_order_for_each_round():
    session = plan(AXES, machine(2), repeats=3).sessions[2]
    repeats = [planned.trial.repeat for planned in swept(session)]
    assert repeats == sorted(repeats), "a round is finished before the next begins"
    rounds = _rounds(session)
    assert len({tuple(order) for order in rounds}) == 3
    assert len({frozenset(order) for order in rounds}) == 1


def test_random_mixes_the_repeats():
    session = plan(AXES, machine(2), repeats=3, order="random").sessions[2]
    repeats = [planned.trial.repeat for planned in swept(session)]
    assert repeats != sorted(repeats)
    assert sorted(repeats) == [1] * 6 + [2] * 6 + [3] * 6


def test_as_written_keeps_the_order_of_the_file():
    session = plan(AXES, machine(2), order="as_written", repeats=2).sessions[2]
    assert [planned.axes["nccl.channels"] for planned in swept(session)] == ["auto", 1, 2, 4, 8, 16] * 2


def test_the_order_is_the_same_each_time_and_differs_between_visits():
    first, again = plan(AXES, machine(2)), plan(AXES, machine(2))
    assert first.sessions == again.sessions
    orders = {s.visit: [p.trial.cell.cell_id for p in s.trials] for s in first.sessions if s.key.p2p == "disabled"}
    assert orders[1] != orders[2]


def test_more_visits_keep_the_order_of_the_first():
    two, four = plan(AXES, machine(2), visits=2), plan(AXES, machine(2), visits=4)
    assert four.sessions[: len(two.sessions)] == two.sessions


def test_process_isolation_is_a_session_a_trial():
    made = plan(AXES, machine(2), isolation="process")
    assert all(len(session.trials) == 1 for session in made.sessions)
    assert all(session.key.alone == session.trials[0].trial_id for session in made.sessions)
    channels = [session.trials[0].axes["nccl.channels"] for session in made.sessions[2:8]]
    assert channels != ["auto", 1, 2, 4, 8, 16], "interleaving holds across processes too"
    assert len(channels) == 6


def test_an_isolated_mode_does_not_break_up_the_warm_session():
    axes = {"gpus": [2], "workload.compile": ["off", "max-autotune"], "ddp.bucket_mib": [1, 25]}
    made = plan(axes, machine(2), visits=1, workload=VISION)
    assert sorted(len(swept(session)) for session in made.sessions) == [1, 1, 1, 3]
    assert all(session.key.alone or len(session.trials) == 5 for session in made.sessions)


def test_session_ids_are_short_stable_and_unique():
    made = plan(AXES, machine(2))
    ids = [session.session_id for session in made.sessions]
    assert len(set(ids)) == len(ids)
    assert ids[1].startswith("g1s1-")
    assert ids[1].endswith("-v1")
    assert max(map(len, ids)) <= 24


def test_the_order_of_keys_in_the_file_changes_no_session():
    axes = {**AXES, "ddp.bucket_mib": [1, 25]}
    turned = {path: axes[path] for path in reversed(axes)}
    ids = [[[p.trial_id for p in s.trials] for s in plan(each, machine(2)).sessions] for each in (axes, turned)]
    assert ids[0] == ids[1]


def sentinels(session):
    """Place in the session -> repeat and settings of its sentinels."""
    return {
        place: (planned.trial.repeat, planned.trial.cell.nccl.channels)
        for place, planned in enumerate(session.trials)
        if planned.trial.stage == "sentinel"
    }


@pytest.mark.parametrize(
    ("channels", "repeats", "places"),
    [
        ([1], 1, {0: 1, 3: 3}),  # with the default cell two trials
        ([1, 2], 1, {0: 1, 4: 3}),
        ([1, 2, 4], 1, {0: 1, 3: 2, 6: 3}),
        ([1, 2, 4, 8], 1, {0: 1, 3: 2, 7: 3}),
        ([1], 2, {0: 1, 3: 2, 6: 3}),
    ],
)
def test_sentinels_stand_at_start_middle_and_end(channels, repeats, places):
    (session,) = plan({"gpus": [2], "nccl.channels": channels}, machine(2), visits=1, repeats=repeats).sessions
    assert sentinels(session) == {place: (repeat, "auto") for place, repeat in places.items()}
    assert len(swept(session)) == (len(channels) + 1) * repeats


def test_one_trial_and_processes_of_their_own_have_no_sentinels():
    for made in (plan({"gpus": [1, 2]}, machine(2)), plan(AXES, machine(2), isolation="process")):
        assert swept(made) == list(made.trials)
        assert any("there are no sentinels" in note for note in made.notes)
    assert not any("start, middle" in note for note in made.notes)


def test_sentinels_can_be_left_out_and_change_nothing_else():
    with_them, without = plan(AXES, machine(2)), plan(AXES, machine(2), sentinels="off")
    assert swept(without) == list(without.trials)
    assert [session.session_id[:3] for session in without.sessions] == [s.session_id[:3] for s in with_them.sessions]
    assert {planned.trial_id for planned in without.trials} == {planned.trial_id for planned in swept(with_them)}
    assert any(note == "sentinels off: drift within sessions is not seen" for note in without.notes)
    assert any(note.startswith("sentinels: each session's default cell") for note in with_them.notes)


def test_a_sentinel_is_no_trial_of_the_sweep_but_the_same_cell():
    session = plan({"gpus": [2], "nccl.channels": [1]}, machine(2), visits=1).sessions[0]
    own = {planned.trial.cell.cell_id: planned for planned in swept(session)}
    for planned in session.trials:
        if planned.trial.stage == "sentinel":
            assert planned.trial_id == planned.trial.trial_id != own[planned.trial.cell.cell_id].trial_id
            assert planned.axes == own[planned.trial.cell.cell_id].axes


def test_of_several_default_cells_the_first_written_is_the_sentinel_in_every_visit():
    axes = {
        "gpus": [1, 2],
        "workload.precision": ["fp32", "bf16"],
        "workload.batch_per_gpu": [32, 8],
        "ddp.bucket_mib": [1],
    }
    made = plan(axes, machine(2), workload={"kind": "vision", "model": "resnet18"}, visits=3)
    chosen = {
        (p.trial.cell.workload.precision, p.trial.cell.workload.batch_per_gpu, p.trial.cell.ddp.bucket_mib)
        for p in made.trials
        if p.trial.stage == "sentinel"
    }
    assert chosen == {("fp32", 32, "auto")}


def test_a_session_without_a_default_cell_has_the_one_that_forces_least():
    made = plan(
        {"gpus": [2], "nccl.p2p": ["disabled"], "nccl.channels": [4, "auto"], "ddp.bucket_mib": [25, 1]}, machine(2)
    )
    forced = [session for session in made.sessions if session.key.p2p == "disabled"]
    cells = [p.trial.cell for session in forced for p in session.trials if p.trial.stage == "sentinel"]
    assert {(cell.nccl.p2p, cell.nccl.channels, cell.ddp.bucket_mib) for cell in cells} == {("disabled", "auto", 25)}


def test_a_study_of_both_curves_watches_the_weak_one():
    workload = {"kind": "vision", "model": "resnet18", "batch_per_gpu": 8, "global_batch": 32}
    made = plan({"gpus": [1]}, machine(1), study="both", workload=workload, visits=1)
    (session,) = made.sessions
    assert [p.trial.cell.workload.global_batch for p in session.trials if p.trial.stage == "sentinel"] == [8, 8]


def test_more_repeats_keep_the_sentinels_there_are():
    few, many = (plan({"gpus": [2], "nccl.channels": [1]}, machine(2), repeats=repeats) for repeats in (1, 2))
    ids = [{p.trial_id for p in made.trials if p.trial.stage == "sentinel"} for made in (few, many)]
    assert ids[0] < ids[1]


def test_the_written_order_is_warned_of_where_drift_could_hide_in_it():
    def warned(axes):
        return any("order as_written" in note for note in plan(axes, machine(2), order="as_written").notes)

    assert warned({"gpus": [2], "nccl.channels": [1]})
    assert not warned({"gpus": [2]})
