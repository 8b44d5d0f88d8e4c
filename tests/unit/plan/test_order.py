"""How trials share sessions, and in which order everything runs."""

from made_plans import VISION, machine, node, plan

from rtxscale.devices.inventory import Inventory

AXES = {"gpus": [1, 2], "nccl.p2p": ["auto", "disabled"], "nccl.channels": ["auto", 1, 2, 4, 8, 16]}


def test_a_session_holds_what_one_process_can_serve():
    made = plan(AXES, machine(2), visits=1)
    served = [(session.key.gpus, session.key.slot, session.key.p2p, len(session.trials)) for session in made.sessions]
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
    assert len(made.trials) == (2 + 12) * 2 * 3
    assert len({planned.trial_id for planned in made.trials}) == len(made.trials)
    assert all(planned.trial_id == planned.trial.trial_id for planned in made.trials)


def _rounds(session):
    by_repeat = {}
    for planned in session.trials:
        by_repeat.setdefault(planned.trial.repeat, []).append(planned.trial.cell.cell_id)
    return list(by_repeat.values())


def test_interleaved_draws_a_new_order_for_each_round():
    session = plan(AXES, machine(2), repeats=3).sessions[2]
    repeats = [planned.trial.repeat for planned in session.trials]
    assert repeats == sorted(repeats), "a round is finished before the next begins"
    rounds = _rounds(session)
    assert len({tuple(order) for order in rounds}) == 3
    assert len({frozenset(order) for order in rounds}) == 1


def test_random_mixes_the_repeats():
    session = plan(AXES, machine(2), repeats=3, order="random").sessions[2]
    repeats = [planned.trial.repeat for planned in session.trials]
    assert repeats != sorted(repeats)
    assert sorted(repeats) == [1] * 6 + [2] * 6 + [3] * 6


def test_as_written_keeps_the_order_of_the_file():
    session = plan(AXES, machine(2), order="as_written", repeats=2).sessions[2]
    assert [planned.axes["nccl.channels"] for planned in session.trials] == ["auto", 1, 2, 4, 8, 16] * 2


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
    assert sorted(len(session.trials) for session in made.sessions) == [1, 1, 1, 3]


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
