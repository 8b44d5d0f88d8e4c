"""A sweep of somebody's own training: one way into the code, options of any name as fields and as axes."""

import pytest

from rtxscale.devices.inventory import Inventory, Node
from rtxscale.errors import SpecError
from rtxscale.plan.expand import make_plan
from rtxscale.spec.cell import Cell, make_cell
from rtxscale.spec.load import parse_sweep

GOOD = """\
name: own
question: Does my training scale?
study: weak
workload: {kind: script, entry: train:build, batch_per_gpu: 8, options: {depth: 2}}
axes:
  gpus: [1, 2]
  workload.options.width: [1, true, wide]
"""
CPUS = Inventory(nodes=(Node(node_id="a", cpus=4, gpus=(), nccl_version=None),))


def problem(text):
    with pytest.raises(SpecError) as caught:
        parse_sweep(text, "sweep.yaml")
    assert len(caught.value.problems) == 1, "\n".join(map(str, caught.value.problems))
    found = caught.value.problems[0]
    return found.path, found.found, found.expected


def planned(text=GOOD):
    return make_plan(parse_sweep(text, "sweep.yaml"), CPUS)


def test_options_are_swept_beside_those_that_are_fixed():
    cells = {planned.trial.cell for planned in planned().trials}
    options = {(cell.gpus, repr(cell.at("workload.options.width"))) for cell in cells}
    assert options == {(gpus, width) for gpus in (1, 2) for width in ("1", "True", "'wide'")}
    assert {cell.at("workload.options.depth") for cell in cells} == {2}
    assert len({cell.cell_id for cell in cells}) == 6
    for cell in cells:
        assert Cell.model_validate_json(cell.model_dump_json(exclude_defaults=True)).cell_id == cell.cell_id
        assert hash(cell) == hash(cell.model_copy())


def test_one_and_true_are_two_options_however_cells_are_made():
    fields = {"gpus": 1, "collectives": None, "nccl": {}, "ddp": {}, "measure": {}, "planted": {}}
    made = [
        make_cell({**fields, "workload": {"kind": "script", "entry": "a:b", "options": {"x": value}}})
        for value in (1, True, 1.0)
    ]
    assert [type(cell.at("workload.options.x")) for cell in made] == [int, bool, float]
    assert made[0].cell_id != made[1].cell_id
    assert made[0].cell_id == made[2].cell_id


def test_the_code_is_no_part_of_the_id_but_its_name_is():
    assert planned().trials[0].trial_id == planned().trials[0].trial_id
    other = {trial.trial_id for trial in planned(GOOD.replace("train:build", "train:other")).trials}
    assert not other & {trial.trial_id for trial in planned().trials}


def test_every_trial_gets_processes_of_its_own_and_the_plan_says_so():
    made = planned()
    assert all(len(session.trials) == 1 for session in made.sessions)
    assert {trial.trial.cell.isolation for trial in made.trials} == {"process"}
    assert any("script runs each trial in processes of its own" in note for note in made.notes)


def test_a_strong_study_gives_each_rank_its_share():
    text = GOOD.replace("study: weak", "study: strong").replace("batch_per_gpu: 8", "global_batch: 8")
    batches = {(trial.trial.cell.gpus, trial.trial.cell.workload.batch_per_gpu) for trial in planned(text).trials}
    assert batches == {(1, 8), (2, 4)}


@pytest.mark.parametrize(
    ("old", "new", "where", "found"),
    [
        ("entry: train:build, ", "", "workload", "neither entry nor path"),
        ("entry: train:build", "entry: train:build, path: train.py", "workload", "both entry and path"),
        ("train:build", "train.build", "workload.entry", "train.build"),
        ("entry: train:build", "path: /etc/train.py", "workload.path", "/etc/train.py"),
        ("depth: 2", "depth: [2]", "workload.options.depth", "a list"),
        ("depth: 2", "copy: 2", "workload.options.copy", "the option copy"),
        ("depth: 2", "width: 2", "axes.workload.options.width", "workload.options.width both as an axis and fixed"),
        ("options.width", "options.a.b", "axes.workload.options.a.b", "the axis workload.options.a.b"),
        ("[1, true, wide]", "[1, 1]", "axes.workload.options.width[1]", "1 again"),
        ("[1, true, wide]", "[[1]]", "axes.workload.options.width[0]", "a list"),
        ("batch_per_gpu: 8", "batch_per_gpu: 8, arguments: [-v]", "workload.arguments", "arguments without a path"),
        ("batch_per_gpu: 8", "batch_per_gpu: 8, directory: /srv", "workload.directory", "/srv"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(old, new, where, found):
    assert old in GOOD
    path, said, expected = problem(GOOD.replace(old, new))
    assert path == where
    assert found in said
    assert expected


def test_work_per_step_is_refused_where_steps_have_several_sizes():
    fixed = GOOD.replace("batch_per_gpu: 8", "batch_per_gpu: 8, work_per_step: 64")
    assert parse_sweep(fixed, "x").workload.work_per_step == 64
    strong = fixed.replace("study: weak", "study: strong").replace("batch_per_gpu", "global_batch")
    axis = fixed.replace("batch_per_gpu: 8, ", "") + "  workload.batch_per_gpu: [8, 16]\n"
    for text in (strong, axis):
        assert problem(text)[0] == "workload.work_per_step"


def test_another_kind_has_no_options():
    text = GOOD.replace("kind: script, entry: train:build", "kind: vision").replace(", options: {depth: 2}", "")
    path, found, _ = problem(text)
    assert path == "axes.workload.options.width"
    assert "workload.options.width" in found
