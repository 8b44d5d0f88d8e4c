"""Every sweep of the repository can be planned, and says in its first lines what it asks and of which hardware."""

from pathlib import Path

import pytest

from rtxscale.plan.assume import assumed_inventory
from rtxscale.plan.expand import make_plan
from rtxscale.spec.load import load_sweep

SWEEPS = sorted((Path(__file__).parents[3] / "sweeps").glob("*.yaml"))


TEMPLATES = [path for path in SWEEPS if path.name.startswith("playbook-")]


def test_the_playbooks_templates_share_all_settings_and_fit_the_smallest_card():
    swept = {path.stem: load_sweep(path).sweep for path in TEMPLATES}
    assert {sweep.workload.kind for sweep in swept.values()} == {"language", "vision", "diffusion"}
    shared = [sweep.model_dump(exclude={"name", "question", "workload", "axes", "exclude"}) for sweep in swept.values()]
    assert shared[0] == shared[1] == shared[2]
    assert {sweep.axes["gpus"] for sweep in swept.values()} == {(1, 2, 4)}
    for sweep in swept.values():
        made = make_plan(sweep, assumed_inventory("4x RTX 5080"))
        counts = {planned.trial.cell.gpus for planned in made.trials}
        assert counts == ({4} if sweep.workload.kind == "diffusion" else {1, 2, 4}), "its states are in four shards"


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.name)
def test_every_sweep_plans(path):
    loaded = load_sweep(path)
    made = make_plan(loaded.sweep, assumed_inventory("4x RTX 5090"))
    assert made.trials
    comment = "".join(line for line in loaded.text.splitlines(keepends=True)[:6] if line.startswith("#"))
    assert "Asks" in comment
    assert "Needs" in comment
    assert path.stem in loaded.sweep.name


def test_the_quickstart_measures_both_curves_on_two_cores_in_less_than_three_minutes():
    sweep = load_sweep(SWEEPS[0].with_name("quickstart.yaml")).sweep
    made = make_plan(sweep, assumed_inventory("2 cpus"))
    assert not made.dropped
    assert made.threads_per_worker == 1
    assert made.estimate.wall_s < 120, "what is left of three minutes is for a busy machine and the report"
    assert not any("efficiency" in note for note in made.notes)


def test_the_nccl_sweep_on_two_gpus_takes_well_under_an_hour():
    sweep = load_sweep(SWEEPS[0].with_name("nccl.yaml")).sweep
    made = make_plan(sweep, assumed_inventory("2x RTX 5090"))
    assert len(made.trials) == 198, "12 of them sentinels"
    assert made.estimate.wall_s < 30 * 60
