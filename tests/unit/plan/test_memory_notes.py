"""What a plan says of memory: cells that it drops, cells that may not fit, and models of which nothing is known."""

from made_plans import cells, machine, plan, sweep

from rtxscale.models.counted import Catalogue, shipped
from rtxscale.models.shapes import SIZES
from rtxscale.plan.expand import make_plan
from rtxscale.plan.feasibility import what_would_fit

WORKLOAD = {"kind": "vision", "model": "resnet50"}


def said(made, word):
    return [note for note in made.notes if word in note]


def test_images_that_clearly_do_not_fit_are_dropped_and_those_that_may_not_are_flagged():
    made = plan({"gpus": [1], "workload.batch_per_gpu": [64, 720, 2048]}, machine(gpus=1), workload=WORKLOAD)
    assert [cell.workload.batch_per_gpu for cell in cells(made)] == [64, 720]
    (dropped,) = made.dropped
    assert (dropped.rule, dropped.axes["workload.batch_per_gpu"]) == ("fits_in_memory", 2048)
    assert dropped.reason.endswith("GiB per GPU, has 32; would fit with batch_per_gpu 679 instead of 2048")
    (note,) = said(made, "may not fit")
    assert note.startswith("1 of 2 cells may not fit: by the memory model they need up to 30.3 of 31.8 GiB on each GPU")


def test_a_compiled_model_is_flagged_and_not_dropped_for_its_activations():
    made = plan({"gpus": [1]}, machine(gpus=1), workload=WORKLOAD | {"batch_per_gpu": 2048, "compile": "default"})
    assert len(cells(made)) == 1
    assert said(made, "may not fit")


def test_of_a_model_without_counts_it_is_said_that_nothing_is_known():
    made = plan({"gpus": [1]}, machine(gpus=1), workload=WORKLOAD | {"model": "test_vit", "batch_per_gpu": 100_000})
    assert said(made, "memory of vision/test_vit is not predicted here")
    assert not said(made, "may not fit")


def test_where_all_fits_or_on_a_cpu_nothing_is_said():
    roomy = plan({"gpus": [1]}, machine(gpus=1), workload=WORKLOAD | {"batch_per_gpu": 64})
    on_cpu = plan({"gpus": [1]}, machine(), workload=WORKLOAD | {"model": "test_vit", "batch_per_gpu": 100_000})
    for made in (roomy, on_cpu):
        assert not said(made, "memory")
        assert not made.dropped


def test_a_plan_of_a_thousand_cells_stays_quick():
    import time

    axes = {"gpus": [1, 2, 4, 8], "workload.batch_per_gpu": list(range(8, 1008, 4))}
    began = time.process_time()
    made = plan(axes, machine(gpus=8), workload=WORKLOAD, visits=1)
    assert len(cells(made)) + len(made.dropped) >= 1000
    assert time.process_time() - began < 10


def test_a_model_of_ones_own_whose_shape_is_known_is_flagged_and_never_dropped():
    own = {"kind": "language", "path": "mine", "context": 2048, "batch_per_gpu": 1}
    known = shipped().joined(Catalogue(shapes={"mine": SIZES["7b"]}))
    asked = sweep({"gpus": [1]}, workload=own)
    made = make_plan(asked, machine(gpus=1), known)
    (cell,) = cells(made)
    assert not made.dropped
    assert said(made, "1 of 1 cells may not fit: by the memory model they need up to")
    assert said(make_plan(asked, machine(gpus=1)), "memory of language/mine is not predicted here")
    assert "fsdp" in what_would_fit(cell, 32607, {}, made.catalogue)
    assert what_would_fit(cell, 32607, {}).startswith("not known what would fit")


def test_matrices_that_a_shape_has_not_are_not_predicted():
    own = {"kind": "language", "path": "mine", "batch_per_gpu": 1, "tuning": "lora", "lora_targets": ["qkv_proj"]}
    known = shipped().joined(Catalogue(shapes={"mine": SIZES["7b"]}))
    made = make_plan(sweep({"gpus": [1]}, workload=own), machine(gpus=1), known)
    assert said(made, "memory of language/mine is not predicted here")
