"""Which cells a plan holds, which it drops and why, and what it tells the user."""

from dataclasses import replace

import pytest
from made_plans import VISION, cells, machine, node, plan, sweep

from rtxscale.devices.inventory import Inventory
from rtxscale.errors import PlanError
from rtxscale.plan.expand import make_plan
from rtxscale.spec.cell import Ddp, Nccl

BOTH = {**VISION, "global_batch": 16}
STRONG = {"kind": "vision", "model": "resnet18", "global_batch": 16}


def reasons(made):
    return {drop.reason for drop in made.dropped}


def has_note(made, words):
    return any(words in note for note in made.notes)


def test_weak_cells_have_both_batches():
    made = plan({"gpus": [1, 2, 4]}, machine(4))
    assert [(c.gpus, c.workload.batch_per_gpu, c.workload.global_batch) for c in cells(made)] == [
        (1, 8, 8),
        (2, 8, 16),
        (4, 8, 32),
    ]


def test_strong_cells_have_both_batches():
    made = plan({"gpus": [1, 2, 4]}, machine(4), study="strong", workload=STRONG)
    assert [(c.workload.batch_per_gpu, c.workload.global_batch) for c in cells(made)] == [(16, 16), (8, 16), (4, 16)]


def test_a_point_of_both_curves_is_one_cell():
    made = plan({"gpus": [1, 2]}, machine(2), study="both", workload=BOTH)
    batches = {(c.gpus, c.workload.batch_per_gpu, c.workload.global_batch) for c in cells(made)}
    assert batches == {(1, 8, 8), (1, 16, 16), (2, 8, 16)}


def test_each_arm_uses_its_own_batch_axis():
    axes = {"gpus": [1, 2], "workload.batch_per_gpu": [8, 4], "workload.global_batch": [16]}
    workload = {"kind": "vision", "model": "resnet18"}
    made = plan(axes, machine(2), study="both", workload=workload)
    batches = {(c.gpus, c.workload.batch_per_gpu) for c in cells(made)}
    assert batches == {(1, 8), (1, 4), (1, 16), (2, 8), (2, 4)}


def test_one_gpu_is_one_baseline_whatever_the_communication_settings():
    axes = {"gpus": [1, 2], "nccl.channels": [1, 2], "nccl.p2p": ["auto", "disabled"], "ddp.bucket_mib": [1, 25]}
    made = plan(axes, machine(2), collectives={})
    baseline = [cell for cell in cells(made) if cell.gpus == 1]
    assert len(baseline) == 1
    assert (baseline[0].nccl, baseline[0].ddp, baseline[0].collectives) == (Nccl(), Ddp(), None)
    assert len(cells(made)) == 1 + 8 + 1
    assert has_note(made, "one baseline without DDP")


def test_the_default_cell_is_there_for_each_combination_of_the_other_axes():
    axes = {"gpus": [2], "nccl.algorithm": ["ring"], "workload.precision": ["bf16", "fp32"]}
    made = plan(axes, machine(2), nccl={"channels": 4}, ddp={"bucket_mib": 50})
    default = [cell for cell in cells(made) if cell.nccl == Nccl() and cell.ddp == Ddp()]
    assert {cell.workload.precision for cell in default} == {"bf16", "fp32"}
    assert has_note(made, "added to those of the axes: 2")


def test_25_mib_is_not_the_default_bucket():
    made = plan({"gpus": [2], "ddp.bucket_mib": [25]}, machine(2))
    assert {cell.ddp.bucket_mib for cell in cells(made)} == {"auto", 25.0}


def test_exclude_leaves_out_points_but_not_the_default():
    axes = {"gpus": [2, 4], "nccl.channels": ["auto", 2]}
    made = plan(axes, machine(4), exclude=[{"gpus": 4, "nccl.channels": 2}, {"gpus": 2, "nccl.channels": "auto"}])
    assert {(c.gpus, c.nccl.channels) for c in cells(made)} == {(2, 2), (2, "auto"), (4, "auto")}
    assert has_note(made, "left out by exclude: 2")


def test_exclude_by_other_axes_takes_the_default_with_it():
    axes = {"gpus": [2, 4], "workload.precision": ["bf16", "fp32"], "nccl.channels": [2]}
    made = plan(axes, machine(4), exclude=[{"gpus": 4, "workload.precision": "fp32"}])
    assert {(c.gpus, c.workload.precision) for c in cells(made)} == {(2, "bf16"), (2, "fp32"), (4, "bf16")}


def test_zipped_axes_move_together():
    axes = {"gpus": [2, 4], "nccl.channels": [1, 2], "ddp.bucket_mib": [10, 20]}
    made = plan(axes, machine(4), zip=[["nccl.channels", "ddp.bucket_mib"]])
    settings = {(c.nccl.channels, c.ddp.bucket_mib) for c in cells(made)}
    assert settings == {(1, 10.0), (2, 20.0), ("auto", "auto")}


def test_more_gpus_than_there_are_is_dropped_with_the_reason():
    made = plan({"gpus": [1, 2, 4], "nccl.channels": [1, 2]}, machine(2))
    assert reasons(made) == {"4 GPUs asked for, 2 there"}
    assert {drop.axes["nccl.channels"] for drop in made.dropped} == {1, 2, "auto"}
    assert {cell.gpus for cell in cells(made)} == {1, 2}


def test_a_global_batch_that_does_not_divide_is_dropped():
    made = plan({"gpus": [1, 2, 3]}, machine(3), study="strong", workload=STRONG)
    assert reasons(made) == {"a global batch of 16 does not divide by 3"}


def test_an_unsafe_protocol_needs_consent():
    axes = {"gpus": [2], "nccl.protocol": ["auto", "ll128"]}
    assert any("ll128" in reason for reason in reasons(plan(axes, machine(2))))
    allowed = plan(axes, machine(2), nccl={"unsafe": True})
    assert not allowed.dropped
    assert len(cells(allowed)) == 2, "unsafe means nothing to the protocol auto"


def test_channels_are_judged_by_the_oldest_nccl_there():
    assert plan({"gpus": [2], "nccl.channels": [64]}, machine(2)).dropped == ()
    old = Inventory(nodes=(node(1), node(1, version=(2, 21, 5), node_id="b")))
    assert any("1 to 32" in reason for reason in reasons(plan({"gpus": [2], "nccl.channels": [64]}, old)))


@pytest.mark.parametrize(("bucket", "dropped"), [(0.5, True), (1, False), ("auto", False)])
def test_compile_needs_whole_buckets(bucket, dropped):
    axes = {"gpus": [2], "ddp.bucket_mib": [bucket], "workload.compile": ["default"]}
    assert bool(plan(axes, machine(2)).dropped) == dropped


def test_torchrun_stays_on_one_node():
    two = Inventory(nodes=(node(2), node(2, node_id="b")))
    made = plan({"gpus": [2, 4], "launcher": ["ray", "torchrun"]}, two)
    assert {(cell.gpus, cell.launcher) for cell in cells(made)} == {(2, "ray"), (2, "torchrun"), (4, "ray")}


def test_tf32_does_not_exist_on_cpu():
    made = plan({"gpus": [1], "workload.precision": ["fp32", "tf32"]}, machine(0))
    assert reasons(made) == {"precision tf32 does not exist on CPU; use fp32 or bf16"}


def test_a_warmup_that_cannot_end_is_dropped():
    made = plan({"gpus": [1, 2], "measure.warmup_min_s": [1, 30]}, machine(2))
    (reason,) = reasons(made)
    assert reason.startswith("measure: warmup_min_s 30 with warmup_max_s 20 (profile quick); needs a longest warm-up")


def test_collectives_need_two_workers_and_have_no_efficiency():
    made = plan({"gpus": [1, 2]}, machine(2), workload={"kind": "collectives"})
    assert reasons(made) == {"a collective needs at least 2 workers"}
    assert has_note(made, "no efficiency is computed")


def test_nccl_settings_do_not_apply_on_cpu():
    axes = {"gpus": [1, 2], "nccl.algorithm": ["ring", "tree"], "ddp.bucket_mib": [1]}
    made = plan(axes, machine(0, cpus=4))
    assert all(cell.nccl == Nccl() for cell in cells(made))
    assert {cell.ddp.bucket_mib for cell in cells(made) if cell.gpus == 2} == {"auto", 1.0}
    assert has_note(made, "nccl.* does not apply on CPU (Gloo)")


def test_cpu_workers_need_a_core_each():
    made = plan({"gpus": [1, 2, 4]}, machine(0, cpus=2))
    assert reasons(made) == {"4 CPU cores asked for, 2 there"}
    assert made.threads_per_worker == 1


@pytest.mark.parametrize(
    ("inventory", "threads"),
    [
        (machine(0, cpus=8), 4),
        (machine(0, cpus=2), 1),
        (machine(2, cpus=64), 32),
        (machine(8, cpus=4), 1),
        (Inventory(nodes=(node(2, 64), node(4, 32, node_id="b"), node(0, 1, node_id="c"))), 8),
    ],
)
def test_threads_are_the_same_in_every_cell(inventory, threads):
    assert plan({"gpus": [1, 2]}, inventory).threads_per_worker == threads


def test_the_hardware_wish_is_honoured():
    on_cpu = plan({"gpus": [1, 2]}, machine(2), hardware={"device": "cpu"})
    assert on_cpu.device == "cpu"
    assert has_note(on_cpu, "the GPUs are not used")
    with pytest.raises(PlanError, match="found no GPU"):
        plan({"gpus": [1]}, machine(0), hardware={"device": "cuda"})
    with pytest.raises(PlanError, match=r'asks for 4 GPUs: .* --assume "4x RTX 5090"'):
        plan({"gpus": [1]}, machine(2), hardware={"min_gpus": 4})


def test_nothing_to_run_is_an_error_with_the_reasons():
    with pytest.raises(PlanError, match=r"8 GPUs asked for, 2 there \(1 point\)"):
        plan({"gpus": [8]}, machine(2))
    with pytest.raises(PlanError, match="exclude leaves out every point"):
        plan({"gpus": [2]}, machine(2), exclude=[{"gpus": 2}])


def test_without_a_1_worker_baseline_the_smallest_count_is_named():
    made = plan({"gpus": [2, 4, 8]}, machine(4))
    assert has_note(made, "weak efficiency relative to 2 GPUs: there is no 1-worker baseline")
    assert not has_note(plan({"gpus": [1, 2]}, machine(2)), "relative to")


def test_without_two_counts_there_is_no_efficiency_and_the_note_says_why():
    made = plan({"gpus": [2, 4]}, machine(2))
    assert has_note(made, "no weak efficiency: only with 2 GPUs, and a curve needs two counts")
    assert has_note(made, "4 GPUs asked for, 2 there")


def test_the_two_curves_of_a_study_are_judged_apart():
    workload = {**VISION, "global_batch": 15}
    made = plan({"gpus": [1, 2, 4]}, machine(4), study="both", workload=workload)
    assert has_note(made, "no strong efficiency: only with 1 GPU, ")
    assert not has_note(made, "no weak efficiency")


def test_modes_with_cuda_graphs_run_in_their_own_process_on_gpus_only():
    axes = {"gpus": [1, 2], "workload.compile": ["off", "max-autotune"]}
    assert {c.workload.compile: c.isolation for c in cells(plan(axes, machine(2)))} == {
        "off": "warm",
        "max-autotune": "process",
    }
    assert {c.isolation for c in cells(plan(axes, machine(0)))} == {"warm"}


def test_cards_without_p2p_and_mixed_cards_are_told():
    axes = {"gpus": [2], "nccl.p2p": ["auto", "disabled"]}
    assert has_note(plan(axes, machine(2)), "RTX 5090 has no P2P with the stock driver")
    cards = (*node(1).gpus, *node(1, name="NVIDIA GeForce RTX 5080", node_id="b").gpus)
    mixed = Inventory(nodes=(replace(node(1), gpus=tuple(replace(card, index=i) for i, card in enumerate(cards))),))
    assert has_note(plan({"gpus": [1, 2]}, mixed), "different GPUs in a")


def test_an_auto_axis_value_and_the_default_are_dropped_once():
    made = plan({"gpus": [2, 4], "nccl.channels": ["auto", 2]}, machine(2))
    assert len(made.dropped) == 2


def test_the_axes_of_a_trial_are_those_of_its_cell():
    made = make_plan(sweep({"gpus": [1, 2], "nccl.channels": [4]}), machine(2))
    assert {(t.axes["gpus"], t.axes["nccl.channels"]) for t in made.trials} == {(1, "auto"), (2, "auto"), (2, 4)}
