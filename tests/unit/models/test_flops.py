"""Model FLOPs against what PyTorch counts on a real step: a second block adds what the formula says a block needs."""

from dataclasses import replace

import pytest

from rtxscale.models.flops import training_flops_per_token
from rtxscale.models.shapes import SIZES, Adapter

CONTEXT, SEQUENCES = 32, 2
TARGETS = (("q_proj", "v_proj"), ("o_proj", "down_proj"), tuple(SIZES["tiny"].matrices))


def counted(layers, adapter):
    """FLOPs of one step's matrix products, forward and backward."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    from rtxscale.spec.workload import LanguageWorkload
    from rtxscale.workloads.networks.adapters import add_adapters
    from rtxscale.workloads.networks.decoder import build_decoder

    model = build_decoder(replace(SIZES["tiny"], layers=layers))
    if adapter is not None:
        fields = {"kind": "language", "size": "tiny", "precision": "fp32", "tuning": "lora"}
        lora = {"lora_rank": adapter.rank, "lora_targets": adapter.targets}
        add_adapters(model, LanguageWorkload.model_validate(fields | lora))
    tokens = torch.randint(SIZES["tiny"].vocab, (SEQUENCES, CONTEXT))
    counter = FlopCounterMode(display=False)
    # The math kernel is made of matrix products, all of which are counted, masked or not.
    with counter, sdpa_kernel(SDPBackend.MATH):
        model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
    return counter.get_total_flops()


def formula(layers, adapter):
    return training_flops_per_token(replace(SIZES["tiny"], layers=layers), CONTEXT, adapter) * CONTEXT * SEQUENCES


@pytest.mark.parametrize("adapter", [None, *(Adapter(rank=4, targets=targets) for targets in TARGETS)], ids=str)
def test_a_block_needs_what_the_formula_says(adapter):
    assert counted(3, adapter) - counted(2, adapter) == formula(3, adapter) - formula(2, adapter)


def test_the_rest_is_the_output_embedding():
    assert counted(2, None) == formula(2, None)


def test_lora_needs_about_two_thirds_of_full_training():
    shape, adapter = SIZES["7b"], Adapter(rank=16, targets=("q_proj", "v_proj"))
    full, lora = training_flops_per_token(shape, 2048), training_flops_per_token(shape, 2048, adapter)
    assert 0.66 < lora / full < 0.72
