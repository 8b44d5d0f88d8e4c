"""Bytes that autograd keeps from a decoder's forward pass for its backward pass.

Those of transformers' Llama under autocast; a test counts the same tensors on a real model. Pure; caller:
`models.memory`.
"""

from __future__ import annotations

from rtxscale.models.decoder_settings import FULL, LOW, DecoderSettings
from rtxscale.models.shapes import Adapter

READERS = {
    "q_proj": "q_proj",
    "k_proj": "q_proj",
    "v_proj": "q_proj",
    "o_proj": "o_proj",
    "gate_proj": "gate_proj",
    "up_proj": "gate_proj",
    "down_proj": "down_proj",
}
"""The first of the matrices that read the same tensor as this one."""


def activations(training: DecoderSettings) -> float:
    """Bytes that autograd keeps from forward to backward, logits left out.

    With checkpointing a block keeps its input only (Chen et al. 2016, arXiv:1604.06174).
    """
    shape = training.shape
    norm_and_head = FULL if training.adapter else 2 * FULL + (LOW if training.low else FULL)
    outer = training.tokens * shape.hidden * norm_and_head
    if not training.checkpointing:
        return outer + shape.layers * block_activations(training)
    return outer + shape.layers * training.base_bytes * shape.hidden * training.tokens


def block_activations(training: DecoderSettings) -> float:
    """Bytes that one block keeps.

    Source: the operations of transformers' LlamaDecoderLayer, counted as in Korthikanti et al. (2022),
    arXiv:2205.05198, section 4.1. In fp32: input and normalised input of both norms. In the matrices' precision: the
    inputs of all matrices, of SiLU and of the gate's product; autocast converts an input anew for each of its readers.
    """
    if training.adapter is not None:
        return training.tokens * _block_beside_adapter(training, training.adapter)
    shape, item = training.shape, LOW if training.low else FULL
    norms = 4 * FULL * shape.hidden + 2 * FULL
    matrix_inputs = (6 if training.low else 3) * item * shape.hidden
    feed_forward = 4 * item * shape.ffn
    return training.tokens * (norms + matrix_inputs + feed_forward + attention_activations(training))


def _block_beside_adapter(training: DecoderSettings, adapter: Adapter) -> float:
    """Bytes per token that a frozen block keeps: nothing for the gradients of its own weights.

    Norms keep their input in fp32, SiLU and the gate's product their inputs, attention its own and its output. Each
    adapter keeps the inputs of its two matrices: an input is converted for each where weights in fp32 meet autocast,
    and is otherwise one tensor for all its readers.
    """
    shape, item, targets = training.shape, LOW if training.low else FULL, set(adapter.targets)
    fused = training.attention != "math"
    norms = 2 * FULL * shape.hidden + 2 * FULL
    feed_forward = 3 * item * shape.ffn
    attended = item * shape.hidden if fused else 0
    if training.low and not training.sharded:
        inputs = sum(shape.matrices[name][0] for name in targets)
    else:
        readers = [READERS[name] for name in targets if not (name == "o_proj" and fused)]
        inputs = sum(shape.matrices[name][0] for name in set(readers))
    adapters = item * (inputs + adapter.rank * len(targets))
    return norms + feed_forward + attended + attention_activations(training) + adapters


def attention_activations(training: DecoderSettings) -> float:
    """Bytes per token that the attention kernel keeps, its output left out.

    The fused kernels keep query, key, value and one number per head (Dao et al., FlashAttention (2022),
    arXiv:2205.14135, section 3.1); `efficient` takes the keys and values of grouped heads repeated. `math` works in
    fp32 on repeated heads and keeps the whole matrix of scores.
    """
    shape, item = training.shape, LOW if training.low else FULL
    if training.attention == "math":
        return FULL * (3 * shape.hidden + shape.heads * training.context)
    keys = shape.hidden if training.attention == "efficient" else shape.kv_hidden
    return item * (shape.hidden + 2 * keys) + FULL * shape.heads
