"""Whatever a valid sweep says, its plan is reproducible, complete and possible."""

from itertools import groupby

from hypothesis import given, settings
from hypothesis import strategies as st

from rtxscale.devices.inventory import Gpu, Inventory, Node
from rtxscale.errors import PlanError
from rtxscale.plan.expand import make_plan
from rtxscale.plan.rules import refusal, refusal_of_fields
from rtxscale.plan.site import site_of
from rtxscale.spec.cell import Cell, Ddp, Nccl
from rtxscale.spec.sweep import Sweep

VALUES = {
    "gpus": [1, 2, 3, 4, 16],
    "nccl.algorithm": ["auto", "ring", "tree"],
    "nccl.channels": ["auto", 1, 64],
    "nccl.protocol": ["auto", "ll", "ll128"],
    "nccl.p2p": ["auto", "disabled"],
    "ddp.bucket_mib": ["auto", 0.5, 25],
    "workload.precision": ["fp32", "tf32", "bf16"],
    "workload.compile": ["off", "default", "max-autotune"],
    "launcher": ["ray", "torchrun"],
    "isolation": ["warm", "process"],
    "placement": ["packed", "spread", "by_class", "cross_node", "same_root"],
    "nodes": [1, 2],
    "measure.warmup_min_s": [1, 100],
}


@st.composite
def sweeps(draw):
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4, unique=True))
    axes = {name: draw(st.lists(st.sampled_from(VALUES[name]), min_size=1, max_size=3, unique=True)) for name in names}
    rule = {name: axes[name][0] for name in draw(st.lists(st.sampled_from(names), max_size=2, unique=True))}
    study = draw(st.sampled_from(["weak", "strong", "both"]))
    workload = {"kind": "vision", "model": "resnet18"}
    if study != "strong":
        workload["batch_per_gpu"] = draw(st.integers(1, 64))
    if study != "weak":
        workload["global_batch"] = draw(st.integers(1, 64))
    return Sweep.model_validate(
        {
            "name": "drawn",
            "question": "Any?",
            "study": study,
            "workload": workload,
            "axes": axes,
            "exclude": [rule] if rule else [],
            "visits": draw(st.integers(1, 3)),
            "repeats": draw(st.integers(1, 2)),
            "order": draw(st.sampled_from(["interleaved", "random", "as_written"])),
            "sentinels": draw(st.sampled_from(["auto", "auto", "off"])),
        }
    )


@st.composite
def inventories(draw):
    counts = draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    nodes = []
    for place, count in enumerate(counts):
        gpus = tuple(Gpu(name="NVIDIA H200", uuid=f"GPU-{place}{index}", index=index) for index in range(count))
        nodes.append(Node(node_id=f"n{place}", cpus=draw(st.integers(1, 16)), gpus=gpus))
    return Inventory(nodes=tuple(nodes))


def planned(sweep, inventory):
    try:
        return make_plan(sweep, inventory)
    except PlanError:
        return None


@settings(max_examples=60)
@given(sweeps(), inventories(), st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_change_which_trials_there_are_nor_when(sweep, inventory, chance):
    names = list(sweep.axes)
    chance.shuffle(names)
    shuffled = sweep.model_copy(update={"axes": {name: sweep.axes[name] for name in names}})
    first, second = planned(sweep, inventory), planned(shuffled, inventory)
    if first is None or second is None:
        assert first is second
        return
    assert sweep.sweep_id == shuffled.sweep_id
    assert {trial.trial_id for trial in first.trials} == {trial.trial_id for trial in second.trials}
    if sweep.order != "as_written":
        assert [trial.trial_id for trial in first.trials] == [trial.trial_id for trial in second.trials]


@settings(max_examples=60)
@given(sweeps(), inventories())
def test_every_planned_trial_keeps_every_rule(sweep, inventory):
    made = planned(sweep, inventory)
    if made is None:
        return
    site = site_of(inventory, made.device)
    for trial in made.trials:
        cell = trial.trial.cell
        assert cell == Cell.model_validate(cell.model_dump())
        assert refusal(cell, site) is None
        assert refusal_of_fields(cell.model_dump(), site) is None
        assert cell.workload.global_batch == cell.workload.batch_per_gpu * cell.gpus
        assert trial.trial_id == trial.trial.trial_id
        if made.device == "cpu" or cell.gpus == 1:
            assert cell.nccl == Nccl()
        if cell.gpus == 1:
            assert cell.ddp == Ddp()


@settings(max_examples=60)
@given(sweeps(), inventories())
def test_visits_are_mirrored_and_hold_the_same_cells(sweep, inventory):
    made = planned(sweep, inventory)
    if made is None:
        return
    shared = [
        [(key.gpus, key.slot, key.launcher, key.workload, key.p2p, key.compile, bool(key.alone)) for key in keys]
        for keys in ([s.key for s in made.sessions if s.visit == visit] for visit in range(1, sweep.visits + 1))
    ]
    runs = [[key for key, _ in groupby(keys)] for keys in shared]
    for number, keys in enumerate(runs):
        assert keys == (runs[0] if number % 2 == 0 else runs[0][::-1])
    measured = [
        sorted((t.trial.cell.cell_id, t.trial.slot, t.trial.repeat) for t in made.trials if t.trial.visit == visit)
        for visit in range(1, sweep.visits + 1)
    ]
    assert all(one == measured[0] for one in measured)


@settings(max_examples=60)
@given(sweeps(), inventories())
def test_ids_are_unique_and_default_cells_are_in(sweep, inventory):
    made = planned(sweep, inventory)
    if made is None:
        return
    assert len({trial.trial_id for trial in made.trials}) == len(made.trials)
    assert len({session.session_id for session in made.sessions}) == len(made.sessions)
    cells = {trial.trial.cell.canonical(): trial.trial.cell for trial in made.trials}
    communication = [rule for rule in sweep.exclude if any(path.startswith(("nccl.", "ddp.")) for path in rule)]
    for cell in cells.values():
        default = cell.model_copy(update={"nccl": Nccl(), "ddp": Ddp()})
        assert communication or default.canonical() in cells
    assert sum(len(session.trials) for session in made.sessions) == len(made.trials)


@settings(max_examples=60)
@given(sweeps(), inventories())
def test_sentinels_are_one_cell_of_their_session_at_its_ends_and_middle(sweep, inventory):
    made = planned(sweep, inventory)
    if made is None:
        return
    for session in made.sessions:
        places = {t.trial.repeat: at for at, t in enumerate(session.trials) if t.trial.stage == "sentinel"}
        own = [t for t in session.trials if t.trial.stage == "sweep"]
        watched = {t.trial.cell.canonical() for t in session.trials if t.trial.stage == "sentinel"}
        if sweep.sentinels == "off" or session.key.alone or len(own) < 2:
            assert not places
            continue
        if len(own) < 4:
            assert places == {1: 0, 3: len(own) + 1}
        else:
            assert places == {1: 0, 2: len(own) // 2 + 1, 3: len(own) + 2}
        (cell,) = watched
        assert cell in {t.trial.cell.canonical() for t in own}
        defaults = {t.trial.cell.canonical() for t in own if t.trial.cell.nccl == Nccl() and t.trial.cell.ddp == Ddp()}
        assert not defaults or cell in defaults


@settings(max_examples=30)
@given(sweeps())
def test_a_plan_is_the_same_on_every_machine_of_one_kind(sweep):
    nodes = [Node(node_id=name, cpus=8, gpus=()) for name in ("here", "there")]
    plans = [planned(sweep, Inventory(nodes=(node,))) for node in nodes]
    assert (plans[0] is None and plans[1] is None) or plans[0].sessions == plans[1].sessions
