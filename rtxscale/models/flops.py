"""Model FLOPs of a step: what the mathematics of a model needs, whatever is recomputed or skipped.

Pure numbers, no torch. For MFU, which compares throughput times these with a documented peak. Called by
`workloads.networks.flops`.
"""

from __future__ import annotations

from rtxscale.models.shapes import Adapter, DecoderShape


def training_flops_per_token(shape: DecoderShape, context: int, adapter: Adapter | None = None) -> float:
    """FLOPs to train a decoder on one token of a sequence of `context` tokens, forward and backward.

    All weights trained: 6 N + 12 L H Q T, N the weights that multiply (blocks and output embedding; the input embedding
    is looked up), L layers, H heads of size Q, T tokens of context. Of the 6, 2 are forward, 2 the gradients of a
    matrix's inputs and 2 those of its weights. With an adapter of A weights, frozen weights have no gradient of their
    own but pass one on: 4 N + 12 L H Q T + 6 A. As in the source, attention is counted in full: a kernel that skips the
    masked half gets credit for it, and recomputation gets none. The first block's matrices, below which nothing is
    trained, are counted like all others.

    Source: A. Chowdhery et al., "PaLM: scaling language modeling with pathways" (2022), arXiv:2204.02311, appendix B;
    for frozen weights E. J. Hu et al., "LoRA" (2021), arXiv:2106.09685, section 4.2.

    >>> from rtxscale.models.shapes import SIZES
    >>> round(training_flops_per_token(SIZES["7b"], 4096) / 1e9, 1)
    46.1
    >>> round(training_flops_per_token(SIZES["7b"], 4096, Adapter(rank=16, targets=("q_proj", "v_proj"))) / 1e9, 1)
    32.9
    """
    weights = shape.layers * shape.block_matrices + shape.vocab * shape.hidden
    attention = 12 * shape.layers * shape.heads * shape.head_size * context
    if adapter is None:
        return float(6 * weights + attention)
    return float(4 * weights + attention + 6 * adapter.parameters(shape))
