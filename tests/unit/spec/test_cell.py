"""Ids of cells, trials and sweeps depend on what is measured, and on nothing else."""

import pytest

from rtxscale.spec.cell import Cell, Trial, make_cell
from rtxscale.spec.load import parse_sweep

WORKLOAD = {"kind": "vision", "model": "resnet18", "batch_per_gpu": 16, "global_batch": 32}
SWEEP = """\
name: ids
question: Which?
study: weak
workload: {kind: vision, batch_per_gpu: 8}
axes: {gpus: [1, 2], ddp.bucket_mib: [1, 25]}
"""


def cell(**fields):
    return Cell.model_validate({"workload": WORKLOAD, "gpus": 2, **fields})


def test_ids_are_what_they_always_were():
    # These two are in the results of every sweep made so far: if they change, nothing can be resumed.
    made = cell(ddp={"bucket_mib": 25})
    assert made.canonical() == (
        '{"ddp":{"bucket_mib":25},"gpus":2,"workload":{"batch_per_gpu":16,"global_batch":32,"kind":"vision","model":"resnet18"}}'
    )
    assert made.cell_id == "cc3615831d55"
    assert Trial(cell=made, visit=2, repeat=1, slot=0).trial_id == "4466f7a02145"


def test_a_default_that_is_spelled_out_is_the_same_cell():
    assert cell(nccl={"algorithm": "auto"}, measure={"profile": "quick"}).cell_id == cell().cell_id


def test_25_and_25_0_are_one_cell_and_auto_is_another():
    assert cell(ddp={"bucket_mib": 25}).cell_id == cell(ddp={"bucket_mib": 25.0}).cell_id
    assert cell(ddp={"bucket_mib": 25}).cell_id != cell(ddp={"bucket_mib": "auto"}).cell_id


def test_visit_repeat_and_slot_are_different_trials():
    ids = {
        Trial(cell=cell(), visit=visit, repeat=repeat, slot=slot).trial_id
        for visit in (1, 2)
        for repeat in (1, 2)
        for slot in (0, 1)
    }
    assert len(ids) == 8


def test_a_cell_made_of_shared_sections_is_the_validated_cell():
    fields = cell(nccl={"channels": 4}, collectives={}).model_dump()
    assert make_cell(fields) == Cell.model_validate(fields)
    assert make_cell(fields).canonical() == Cell.model_validate(fields).canonical()


def test_a_cell_knows_its_values_by_path():
    assert cell(nccl={"channels": 4}).at("nccl.channels") == 4
    assert cell().at("collectives.operations") is None


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("Which?", "What?", True),
        ("axes: {gpus: [1, 2], ddp.bucket_mib: [1, 25]}", "axes: {ddp.bucket_mib: [1, 25.0], gpus: [1, 2]}", True),
        ("axes:", "visits: 5\nrepeats: 3\naxes:", True),
        ("axes:", "max_hours: 12\nsentinels: off\naxes:", True),
        ("axes:", "order: interleaved\naxes:", True),
        ("axes:", "order: random\naxes:", False),
        ("batch_per_gpu: 8", "batch_per_gpu: 9", False),
        ("[1, 25]", "[1]", False),
    ],
)
def test_the_sweep_id_is_about_what_is_measured(old, new, same):
    assert old in SWEEP
    ids = {parse_sweep(text, "x").sweep_id for text in (SWEEP, SWEEP.replace(old, new))}
    assert (len(ids) == 1) == same
