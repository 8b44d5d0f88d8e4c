from dataclasses import replace

import pytest

from rtxscale.models.activations import activations, attention_activations, block_activations
from rtxscale.models.memory import GIB, DecoderTraining, memory_of, weight_copies
from rtxscale.models.shapes import SIZES, Adapter
from rtxscale.models.training import smallest_world

TINY = DecoderTraining(shape=SIZES["tiny"], context=128, sequences=2)


def kept_by_autograd(training):
    """Bytes that a real forward pass keeps for backward beside the parameters, by the number of blocks."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from rtxscale.spec.workload import LanguageWorkload
    from rtxscale.workloads.networks.adapters import add_adapters
    from rtxscale.workloads.networks.decoder import build_decoder, set_attention, set_checkpointing

    model = build_decoder(training.shape)
    if training.adapter is not None:
        lora = {"lora_rank": training.adapter.rank, "lora_targets": training.adapter.targets}
        fields = {"kind": "language", "size": "tiny", "precision": training.precision, "tuning": "lora"}
        add_adapters(model, LanguageWorkload.model_validate(fields | lora))
    set_checkpointing(model.train(), training.checkpointing)
    set_attention(model, training.attention)
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept = {}

    def note(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage
        return tensor

    # The CPU's flash attention keeps what the GPU's fused kernels keep.
    kernel = SDPBackend.MATH if training.attention == "math" else SDPBackend.FLASH_ATTENTION
    tokens = torch.randint(training.shape.vocab, (training.sequences, training.context))
    with (
        torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor),
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=training.low),
        sdpa_kernel(kernel),
    ):
        model(input_ids=tokens, labels=tokens, use_cache=False)
    return sum(storage.nbytes() for storage in kept.values())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("attention", ["flash", "efficient", "math"])
def test_a_block_keeps_what_autograd_keeps(precision, attention):
    one, two = (
        replace(TINY, shape=replace(TINY.shape, layers=layers), precision=precision, attention=attention)
        for layers in (1, 2)
    )
    copies = weight_copies(two) - weight_copies(one)
    assert kept_by_autograd(two) - kept_by_autograd(one) == pytest.approx(block_activations(one) + copies, rel=1e-6)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_rest_keeps_little_more_than_logits_and_norm(precision):
    training = replace(TINY, precision=precision)
    log_softmax = memory_of(training).logits / 3
    counted = activations(training) + weight_copies(training) + log_softmax
    # Token numbers, labels, rotary tables and one number per token of the norm are left out.
    assert counted <= kept_by_autograd(training) <= 1.04 * counted


def test_a_checkpointed_block_keeps_its_input():
    one, two = (replace(TINY, shape=replace(TINY.shape, layers=layers), checkpointing=True) for layers in (1, 2))
    assert activations(two) - activations(one) == kept_by_autograd(two) - kept_by_autograd(one)


def test_checkpointed_blocks_hold_no_copies_of_weights_between_the_passes():
    training = DecoderTraining(shape=SIZES["1b"], context=2048, sequences=4)
    kept, recomputing = memory_of(training), memory_of(replace(training, checkpointing=True))
    assert (kept.copies_kept, kept.recomputed) == (kept.copies, 0)
    assert recomputing.copies == kept.copies
    assert recomputing.copies_kept == 2 * 32_000 * 2048, "the output embedding's"
    assert recomputing.recomputed == block_activations(training) + 2 * SIZES["1b"].block_matrices
    # The loss is computed while autocast still holds its copies: logits in both precisions, and their log-softmax.
    states = recomputing.weights + recomputing.optimizer
    assert recomputing.at_loss == states + recomputing.activations + recomputing.copies + 10 * 8192 * 32_000


def test_states_are_sixteen_bytes_a_parameter():
    memory = memory_of(DecoderTraining(shape=SIZES["13b"], context=2048, sequences=1))
    states = memory.weights + memory.gradients + memory.optimizer
    assert states == 16 * 13_015_864_320
    assert states / 1e9 == pytest.approx(208, abs=0.5), "the figure that everybody quotes for 13B"
    assert memory.peak > states * 0.99


def test_sharding_divides_states_and_ddp_adds_buckets():
    training = DecoderTraining(shape=SIZES["7b"], context=4096, sequences=1, world=4, checkpointing=True)
    whole, shared = memory_of(training), memory_of(replace(training, parallel="fsdp"))
    assert shared.weights * 4 == whole.weights
    assert shared.optimizer * 4 == whole.optimizer
    assert (whole.buckets, shared.buckets) == (whole.gradients, 0)
    assert memory_of(replace(training, world=1)).buckets == 0


def test_not_resharding_keeps_every_block_whole():
    training = DecoderTraining(shape=SIZES["7b"], context=4096, sequences=1, world=4, parallel="fsdp")
    blocks = weight_copies(replace(training, reshard_after_forward=False)) - weight_copies(training)
    assert blocks == 30 * 2 * SIZES["7b"].block_parameters


def test_accumulation_brings_gradients_to_the_forward_pass():
    training = DecoderTraining(shape=SIZES["1b"], context=8192, sequences=1)
    once, often = memory_of(training), memory_of(replace(training, accumulation=4))
    assert often.at_loss - once.at_loss == once.gradients
    assert often.activations == once.activations


def test_grouped_heads_count_once_where_the_kernel_knows_them():
    training = DecoderTraining(shape=SIZES["1b"], context=2048, sequences=1)
    flash, efficient = (attention_activations(replace(training, attention=kernel)) for kernel in ("flash", "efficient"))
    assert efficient - flash == 2 * 2 * (2048 - 256)


def test_each_stage_of_zero_divides_what_its_name_says():
    training = DecoderTraining(shape=SIZES["7b"], context=4096, sequences=1, world=4, checkpointing=True)
    ddp, zero1, zero2, zero3, fsdp = (
        memory_of(replace(training, parallel=way)) for way in ("ddp", "zero1", "zero2", "zero3", "fsdp")
    )
    whole = 4 * 6_738_415_616  # bytes of all weights in fp32
    assert (ddp.weights, ddp.gradients, ddp.optimizer, ddp.buckets) == (whole, whole, 2 * whole, whole)
    assert (zero1.weights, zero1.gradients, zero1.optimizer, zero1.buckets) == (whole, whole, whole / 2, whole)
    for stage in (zero2, zero3):
        assert (stage.weights, stage.gradients, stage.optimizer, stage.buckets) == (whole / 4, whole / 4, whole / 2, 0)
    assert zero2.copies - zero3.copies == 30 * 2 * SIZES["7b"].block_parameters
    assert zero3 == fsdp
    assert memory_of(replace(training, parallel="zero1", world=1)) == memory_of(replace(training, world=1))


ALL = tuple(SIZES["tiny"].matrices)
LORA_7B = DecoderTraining(
    shape=SIZES["7b"],
    context=4096,
    sequences=1,
    world=4,
    checkpointing=True,
    adapter=Adapter(rank=16, targets=("q_proj", "v_proj")),
)


def test_lora_has_states_for_its_adapters_and_keeps_its_base_in_low_precision():
    base, adapter = 6_738_415_616, 32 * 2 * 16 * (4096 + 4096)
    memory = memory_of(LORA_7B)
    assert memory.weights == 2 * base + 4 * adapter
    assert (memory.gradients, memory.optimizer, memory.buckets) == (4 * adapter, 8 * adapter, 4 * adapter)
    assert memory_of(replace(LORA_7B, precision="fp32")).weights == 4 * base + 4 * adapter
    shared = memory_of(replace(LORA_7B, parallel="zero3"))
    assert (shared.weights, shared.optimizer) == (memory.weights / 4, memory.optimizer / 4)
    assert memory_of(replace(LORA_7B, parallel="zero1")).optimizer == 2 * adapter
    assert memory.peak < 24 * GIB < memory_of(replace(LORA_7B, adapter=None)).peak


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("attention", ["flash", "efficient", "math"])
@pytest.mark.parametrize("targets", [("q_proj", "v_proj"), ("o_proj", "up_proj", "down_proj"), ALL], ids="-".join)
def test_a_frozen_block_keeps_what_autograd_keeps(precision, attention, targets):
    adapter = Adapter(rank=4, targets=targets)
    two, three = (
        replace(
            TINY,
            shape=replace(TINY.shape, layers=layers),
            precision=precision,
            attention=attention,
            adapter=adapter,
        )
        for layers in (2, 3)
    )
    copies = weight_copies(three) - weight_copies(two)
    assert kept_by_autograd(three) - kept_by_autograd(two) == pytest.approx(block_activations(two) + copies, rel=1e-6)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_checkpointed_frozen_block_keeps_its_input(precision):
    adapter = Adapter(rank=4, targets=("q_proj", "v_proj"))
    two, three = (
        replace(
            TINY,
            shape=replace(TINY.shape, layers=layers),
            checkpointing=True,
            precision=precision,
            adapter=adapter,
        )
        for layers in (2, 3)
    )
    assert activations(three) - activations(two) == kept_by_autograd(three) - kept_by_autograd(two)


def test_the_smallest_world_is_the_first_that_fits():
    training = DecoderTraining(shape=SIZES["7b"], context=2048, sequences=1, checkpointing=True, parallel="fsdp")
    world = smallest_world(training, 32 * GIB, 64)
    assert (
        memory_of(replace(training, world=world)).peak <= 32 * GIB < memory_of(replace(training, world=world - 1)).peak
    )
    assert smallest_world(training, 32 * GIB, world - 1) is None
    assert smallest_world(replace(training, parallel="ddp"), 32 * GIB, 64) == world
