from dataclasses import replace

import pytest

from rtxscale.models.memory import (
    GIB,
    DecoderTraining,
    activations,
    attention_activations,
    block_activations,
    memory_of,
    smallest_world,
    weight_copies,
)
from rtxscale.models.shapes import SIZES

TINY = DecoderTraining(shape=SIZES["tiny"], context=128, sequences=2)


def kept_by_autograd(training):
    """Bytes that a real forward pass keeps for backward beside the parameters, by the number of blocks."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from rtxscale.workloads.decoder import build_decoder, set_attention, set_checkpointing

    model = build_decoder(training.shape)
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


def test_the_smallest_world_is_the_first_that_fits():
    training = DecoderTraining(shape=SIZES["7b"], context=2048, sequences=1, checkpointing=True, parallel="fsdp")
    world = smallest_world(training, 32 * GIB, 64)
    assert (
        memory_of(replace(training, world=world)).peak <= 32 * GIB < memory_of(replace(training, world=world - 1)).peak
    )
    assert smallest_world(replace(training, parallel="ddp"), 32 * GIB, 64) is None
