"""Model FLOPs of a step: what the mathematics of a model needs, whatever is recomputed or skipped.

Pure numbers, no torch. For MFU, which compares throughput times these with a documented peak. Called by `rank.trial`.
"""

from __future__ import annotations

from rtxscale.models.shapes import DecoderShape


def training_flops_per_token(shape: DecoderShape, context: int) -> float:
    """FLOPs to train all weights of a decoder on one token of a sequence of `context` tokens, forward and backward.

    6 N + 12 L H Q T: N the weights that multiply (blocks and output embedding; the input embedding is looked up), L
    layers, H heads of size Q, T tokens of context. As in the source, attention is counted in full: a kernel that skips
    the masked half gets credit for it, and recomputation gets none.

    Source: A. Chowdhery et al., "PaLM: scaling language modeling with pathways" (2022), arXiv:2204.02311, appendix B.

    >>> from rtxscale.models.shapes import SIZES
    >>> round(training_flops_per_token(SIZES["7b"], 4096) / 1e9, 1)
    46.1
    """
    weights = shape.layers * shape.block_matrices + shape.vocab * shape.hidden
    attention = 12 * shape.layers * shape.heads * shape.head_size * context
    return float(6 * weights + attention)
