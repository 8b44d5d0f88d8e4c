"""What the plan makes of a language model: settings that apply, cells that cannot run, memory that is not there."""

import pytest
from made_plans import cells, machine, plan, swept

from rtxscale.errors import PlanError
from rtxscale.models.memory import memory_of
from rtxscale.models.shapes import SIZES
from rtxscale.plan.assume import assumed_inventory
from rtxscale.plan.feasibility import MARGIN, training_of
from rtxscale.spec.cell import Cell

TINY = {"kind": "language", "size": "tiny", "context": 64, "batch_per_gpu": 2}


def only_reason(axes, inventory, **workload):
    with pytest.raises(PlanError) as caught:
        plan(axes, inventory, workload=TINY | workload)
    return str(caught.value)


def test_both_batches_are_filled_in_and_sizes_share_no_session():
    axes = {"gpus": [1, 2], "workload.size": ["tiny", "125m"]}
    made = plan(axes, machine(gpus=2), workload={"kind": "language", "context": 64, "batch_per_gpu": 2})
    assert {(c.gpus, c.workload.batch_per_gpu, c.workload.global_batch) for c in cells(made)} == {(1, 2, 2), (2, 2, 4)}
    assert {session.key.workload for session in made.sessions} == {("language", "tiny"), ("language", "125m")}


def test_contexts_checkpointing_and_sharding_share_a_warm_session():
    axes = {
        "gpus": [2],
        "workload.context": [64, 128],
        "workload.checkpointing": ["off", "on"],
        "workload.parallel": ["ddp", "fsdp"],
    }
    made = plan(axes, machine(gpus=2), workload={"kind": "language", "size": "tiny", "batch_per_gpu": 2}, visits=1)
    assert len(made.sessions) == 1
    assert len(swept(made)) == 8


def test_buckets_are_ddps_alone():
    axes = {"gpus": [1, 2], "ddp.bucket_mib": [1, 25], "workload.parallel": ["ddp", "fsdp"]}
    made = plan(axes, machine(gpus=2), workload=TINY)
    buckets = {(c.workload.parallel, c.ddp.bucket_mib) for c in cells(made) if c.gpus == 2}
    assert buckets == {("ddp", 1.0), ("ddp", 25.0), ("ddp", "auto"), ("fsdp", "auto")}
    assert any("ddp.* does not apply to parallel fsdp" in note for note in made.notes)
    assert any("one worker is the whole model" in note for note in made.notes)


def test_resharding_is_fsdps_alone():
    axes = {"gpus": [2], "workload.parallel": ["ddp", "fsdp"], "workload.reshard_after_forward": [True, False]}
    made = plan(axes, machine(gpus=2), workload=TINY)
    seen = sorted((c.workload.parallel, c.workload.reshard_after_forward) for c in cells(made))
    assert seen == [("ddp", True), ("fsdp", False), ("fsdp", True)]


def test_settings_of_lora_are_loras_alone():
    axes = {"gpus": [1], "workload.tuning": ["full", "lora"], "workload.lora_rank": [8, 16]}
    made = plan(axes, machine(gpus=1), workload=TINY)
    assert sorted((c.workload.tuning, c.workload.lora_rank) for c in cells(made)) == [
        ("full", 16),
        ("lora", 8),
        ("lora", 16),
    ]
    assert len(made.sessions) == 2, "full and lora share a session per visit"


def test_a_constant_learning_rate_has_no_length():
    axes = {"gpus": [1], "workload.schedule": ["constant", "cosine"], "workload.schedule_steps": [100, 200]}
    made = plan(axes, machine(gpus=1), workload=TINY)
    assert sorted((c.workload.schedule, c.workload.schedule_steps) for c in cells(made)) == [
        ("constant", 10_000),
        ("cosine", 100),
        ("cosine", 200),
    ]


def test_a_schedule_that_only_warms_up_is_refused():
    given = {"schedule": "step", "schedule_steps": 50, "schedule_warmup_steps": 50}
    said = only_reason({"gpus": [1]}, machine(gpus=1), **given)
    assert "schedule_warmup_steps 50 leave nothing of schedule_steps 50 to schedule step" in said
    warmed = plan({"gpus": [1]}, machine(gpus=1), workload=TINY | {"schedule_warmup_steps": 50_000})
    assert len(cells(warmed)) == 1


def test_zero1_has_buckets_and_the_other_stages_have_none():
    axes = {"gpus": [2], "ddp.bucket_mib": [1], "workload.parallel": ["zero1", "zero2", "zero3"]}
    made = plan(axes, machine(gpus=2), workload=TINY | {"reshard_after_forward": False})
    assert {(c.workload.parallel, c.ddp.bucket_mib, c.workload.reshard_after_forward) for c in cells(made)} == {
        ("zero1", 1.0, True),
        ("zero1", "auto", True),
        ("zero2", "auto", True),
        ("zero3", "auto", True),
    }
    assert any("ddp.* does not apply to parallel zero2, zero3," in note for note in made.notes)


def test_cells_from_before_these_fields_keep_their_ids():
    one = {"gpus": 2, "workload": {"kind": "vision", "model": "resnet50", "batch_per_gpu": 128, "global_batch": 256}}
    other = {"workload": {"kind": "language", "size": "1b", "context": 4096, "batch_per_gpu": 1, "parallel": "fsdp"}}
    assert [Cell.model_validate(fields).cell_id for fields in (one, other)] == ["8054b3fb3b75", "2fc3dc245f7d"]


def test_lora_of_7b_fits_where_full_training_does_not():
    workload = {"kind": "language", "size": "7b", "context": 4096, "batch_per_gpu": 1, "checkpointing": "on"}
    made = plan({"gpus": [1], "workload.tuning": ["full", "lora"]}, assumed_inventory("1x RTX 5090"), workload=workload)
    assert {c.workload.tuning for c in cells(made)} == {"lora"}
    assert [item.rule for item in made.dropped] == ["fits_in_memory"]


def test_cuda_graphs_do_not_go_with_accumulation_of_images():
    workload = {"kind": "vision", "batch_per_gpu": 8, "accumulation": 4, "compile": "reduce-overhead"}
    with pytest.raises(PlanError, match="which accumulation does not allow"):
        plan({"gpus": [1]}, machine(gpus=1), workload=workload)
    assert plan({"gpus": [1]}, machine(gpus=1), workload=workload | {"compile": "default"}).trials


@pytest.mark.parametrize("kernel", ["efficient", "cudnn"])
def test_kernels_of_gpus_do_not_exist_on_cpu(kernel):
    assert f"attention {kernel} does not exist on CPU" in only_reason(
        {"gpus": [1]}, machine(), attention=kernel, precision="fp32"
    )


@pytest.mark.parametrize("kernel", ["flash", "cudnn"])
def test_half_precision_kernels_refuse_fp32_on_gpus(kernel):
    assert "needs precision fp16 or bf16" in only_reason(
        {"gpus": [1]}, machine(gpus=1), attention=kernel, precision="fp32"
    )
    assert plan({"gpus": [1]}, machine(gpus=1), workload=TINY | {"attention": kernel}).trials


@pytest.mark.parametrize("parallel", ["fsdp", "zero2", "zero3"])
def test_scaled_gradients_are_not_sharded(parallel):
    assert f"parallel {parallel} is not supported: gradients are scaled whole; use bf16" in only_reason(
        {"gpus": [2]}, machine(gpus=2), parallel=parallel, precision="fp16"
    )


def test_a_llama_has_no_fused_matrices_to_adapt():
    asked = {"tuning": "lora", "lora_targets": ["q_proj", "qkv_proj"]}
    assert "lora_targets qkv_proj: no block of size tiny has it; use some of q_proj, k_proj" in only_reason(
        {"gpus": [1]}, machine(gpus=1), **asked
    )


def test_nor_are_those_of_a_diffusion_model():
    latents = {"kind": "diffusion", "model": "tiny", "batch_per_gpu": 1, "precision": "fp16"}
    with pytest.raises(PlanError, match="parallel fsdp is not supported: gradients are scaled whole"):
        plan({"gpus": [2]}, machine(gpus=2), workload=latents | {"parallel": "fsdp"})
    assert plan({"gpus": [2]}, machine(gpus=2), workload=latents).trials


@pytest.mark.parametrize("setting", [{"parallel": "fsdp"}, {"parallel": "zero2"}, {"accumulation": 2}])
def test_cuda_graphs_go_neither_with_fsdp_nor_with_accumulation(setting):
    reason = only_reason({"gpus": [2]}, machine(gpus=2), compile="reduce-overhead", **setting)
    assert "uses CUDA graphs" in reason
    assert plan({"gpus": [2]}, machine(gpus=2), workload=TINY | setting | {"compile": "default"}).trials


def test_a_model_far_too_large_is_dropped_with_what_would_fit():
    workload = {"kind": "language", "size": "7b", "context": 4096, "batch_per_gpu": 1}
    axes = {"gpus": [1, 4], "workload.parallel": ["ddp", "fsdp"], "workload.checkpointing": ["off", "on"]}
    made = plan(axes, assumed_inventory("4x RTX PRO 5000 72 GB"), workload=workload)
    assert {(c.gpus, c.workload.parallel, c.workload.checkpointing) for c in cells(made)} == {
        (4, "fsdp", "off"),
        (4, "fsdp", "on"),
    }
    whole = next(
        item for item in made.dropped if item.axes["gpus"] == 1 and item.axes["workload.checkpointing"] == "on"
    )
    assert whole.rule == "fits_in_memory"
    assert whole.reason == "needs about 100 GiB per GPU, has 72; fits from 2 GPUs with fsdp"


def test_checkpointing_is_advised_where_it_saves_gpus():
    workload = {"kind": "language", "size": "13b", "context": 8192, "batch_per_gpu": 4, "parallel": "fsdp"}
    with pytest.raises(PlanError, match=r"or \d+ GPUs with fsdp and checkpointing|from \d+ GPUs with fsdp and check"):
        plan({"gpus": [2]}, assumed_inventory("2x H200"), workload=workload)


def test_what_no_sharding_can_hold_is_said():
    workload = {"kind": "language", "size": "1b", "context": 1_000_000, "batch_per_gpu": 8}
    with pytest.raises(PlanError, match="does not fit at this batch, however sharded"):
        plan({"gpus": [1]}, machine(gpus=1), workload=workload)


def test_a_cell_that_may_fit_is_tried():
    workload = {"kind": "language", "size": "1b", "context": 7040, "batch_per_gpu": 1}
    made = plan({"gpus": [1]}, machine(gpus=1), workload=workload)
    needs = memory_of(training_of(cells(made)[0].workload, 1)).peak
    assert 32607 * 2**20 < needs < MARGIN * 32607 * 2**20


def test_a_cell_whose_lower_figure_is_clearly_more_than_the_memory_is_dropped():
    workload = {"kind": "language", "size": "1b", "context": 8192, "batch_per_gpu": 1}
    with pytest.raises(PlanError, match="needs about 35 GiB per GPU, has 32; fits from 2 GPUs with fsdp"):
        plan({"gpus": [1]}, machine(gpus=1), workload=workload)


def test_memory_that_is_not_known_drops_nothing():
    from dataclasses import replace

    known = machine(gpus=1)
    unknown = replace(known, nodes=(replace(known.nodes[0], gpus=(replace(known.gpus[0], memory_mib=None),)),))
    workload = {"kind": "language", "size": "13b", "context": 8192, "batch_per_gpu": 8}
    assert plan({"gpus": [1]}, unknown, workload=workload).trials


def test_the_spec_names_the_sizes_that_have_a_shape():
    from typing import get_args

    from rtxscale.spec.workload import DecoderSize

    assert get_args(DecoderSize) == tuple(SIZES)


OWN = {"kind": "language", "path": "my-model", "context": 64, "batch_per_gpu": 2}


def test_a_model_of_ones_own_has_no_named_size_and_its_memory_is_not_judged():
    made = plan({"gpus": [1, 2]}, machine(gpus=2), workload=OWN)
    assert {cell.workload.size for cell in cells(made)} == {"125m"}, "nobody's: the default, whatever was left there"
    assert {session.key.workload for session in made.sessions} == {("language", "path", "my-model")}
    (cell,) = {cell for cell in cells(made) if cell.gpus == 1}
    assert cell.workload.label == "language/my-model"
    assert training_of(cell.workload, 1) is None


@pytest.mark.parametrize(
    ("fields", "capability", "said"),
    [
        ({}, (8, 0), None),
        ({}, None, None),
        ({}, (7, 5), "needs a compute capability >= 8.0: the GPU has 7.5; use efficient"),
        ({"precision": "fp32"}, (12, 0), "needs precision fp16 or bf16; fp32 has efficient and math"),
    ],
)
def test_the_flash_attn_package_has_kernels_for_some_cards(fields, capability, said, monkeypatch):
    monkeypatch.setattr("rtxscale.plan.site._lowest_capability", lambda inventory: capability)
    asked = {"attention": "flash_attention_2", **fields}
    if said is None:
        assert cells(plan({"gpus": [1]}, assumed_inventory("1x RTX 5090"), workload=TINY | asked))
    else:
        assert said in only_reason({"gpus": [1]}, assumed_inventory("1x RTX 5090"), **asked)
    assert "flash_attention_2 does not exist on CPU" in only_reason({"gpus": [1]}, machine(), **asked)
