"""Decoder language models in named sizes: their shape and how many parameters that makes.

Pure numbers, no torch: `workloads.networks.decoder` builds these shapes, `models.memory` counts their bytes. Every one
is a Llama: RMSNorm, rotary positions, gated feed-forward, no biases; of the named ones none ties its two embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

LLAMA_2 = "Touvron et al., Llama 2 (2023), arXiv:2307.09288; configuration of Llama-2-hf"
GPT_3 = "Brown et al., GPT-3 (2020), arXiv:2005.14165, table 2.1: layers, width, heads; feed-forward 8/3 of the width"


@dataclass(frozen=True, kw_only=True)
class DecoderShape:
    """A Llama's shape; `kv_heads` below `heads` is grouped-query attention."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    source: str
    tied: bool = False
    """Whether the output embedding is the input's."""

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden // self.heads

    @property
    def kv_hidden(self) -> int:
        """Width of all key heads together; the value heads' is the same."""
        return self.kv_heads * self.head_size

    @cached_property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """Inputs and outputs of one block's matrices, by their names in transformers."""
        return {
            "q_proj": (self.hidden, self.hidden),
            "k_proj": (self.hidden, self.kv_hidden),
            "v_proj": (self.hidden, self.kv_hidden),
            "o_proj": (self.hidden, self.hidden),
            "gate_proj": (self.hidden, self.ffn),
            "up_proj": (self.hidden, self.ffn),
            "down_proj": (self.ffn, self.hidden),
        }

    def has(self, adapter: Adapter) -> bool:
        """Whether its blocks have every matrix beside which the adapter is to stand."""
        return self.matrices.keys() >= set(adapter.targets)

    @property
    def block_matrices(self) -> int:
        """Weights of one block's matrices."""
        return sum(inputs * outputs for inputs, outputs in self.matrices.values())

    @property
    def block_parameters(self) -> int:
        """Parameters of one block, its two norms included."""
        return self.block_matrices + 2 * self.hidden

    @property
    def outer_parameters(self) -> int:
        """Parameters outside the blocks: input embedding, final norm, output embedding unless it is the same."""
        return (1 if self.tied else 2) * self.vocab * self.hidden + self.hidden

    @property
    def parameters(self) -> int:
        """All parameters.

        >>> SIZES["7b"].parameters
        6738415616
        """
        return self.layers * self.block_parameters + self.outer_parameters


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """LoRA's adapter of every block: two matrices of this rank beside each target (arXiv:2106.09685, section 4.1)."""

    rank: int
    targets: tuple[str, ...]

    def block_parameters(self, shape: DecoderShape) -> int:
        """Weights that it adds to one block: (inputs + outputs) x rank for each target."""
        return sum(self.rank * sum(shape.matrices[name]) for name in set(self.targets))

    def parameters(self, shape: DecoderShape) -> int:
        """Weights that it adds to the model: all that is trained.

        >>> Adapter(rank=16, targets=("q_proj", "v_proj")).parameters(SIZES["7b"])
        8388608
        """
        return shape.layers * self.block_parameters(shape)


SIZES = {
    "tiny": DecoderShape(layers=2, hidden=64, heads=4, kv_heads=2, ffn=176, vocab=256, source="made up, for tests"),
    "125m": DecoderShape(layers=12, hidden=768, heads=12, kv_heads=12, ffn=2048, vocab=32000, source=GPT_3),
    "350m": DecoderShape(layers=24, hidden=1024, heads=16, kv_heads=16, ffn=2816, vocab=32000, source=GPT_3),
    "1b": DecoderShape(
        layers=22,
        hidden=2048,
        heads=32,
        kv_heads=4,
        ffn=5632,
        vocab=32000,
        source="Zhang et al., TinyLlama (2024), arXiv:2401.02385",
    ),
    "7b": DecoderShape(layers=32, hidden=4096, heads=32, kv_heads=32, ffn=11008, vocab=32000, source=LLAMA_2),
    "13b": DecoderShape(layers=40, hidden=5120, heads=40, kv_heads=40, ffn=13824, vocab=32000, source=LLAMA_2),
}
"""Shapes by name. Names are those of the classes: 125m and 350m hold a little more, as the embeddings are not tied."""

UNET_PARAMETERS = {"sdxl": 2_567_463_684, "tiny": 2_512_132}
"""Parameters of the diffusion UNets by name (`workloads.networks.unet` builds them; a test counts)."""
