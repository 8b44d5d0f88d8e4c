"""What decides the memory that training a decoder needs: its shape, its settings, and what follows from them alone.

Called by `models.activations` and `models.memory`.
"""

from __future__ import annotations

from dataclasses import dataclass

from rtxscale.models.shapes import Adapter, DecoderShape

FULL = 4
"""Bytes of an fp32 number: whatever is trained, its gradients and optimizer states are kept in it."""
LOW = 2
"""Bytes of an fp16 or bf16 number: frozen weights are kept in what they compute in."""
FOUR_BITS = (4 + 8 / 64 + 32 / (64 * 256)) / 8
"""Bytes of a weight in NF4 with scales that are quantised once more (QLoRA, arXiv:2305.14314, section 3)."""
LOW_PRECISIONS = frozenset({"fp16", "bf16", "fp8"})
"""Precisions that compute in two bytes; fp8 does outside its matrices, whose FP8 copies are not counted."""
SHARDED = ("fsdp", "zero2", "zero3")
"""Values of `parallel` under which each GPU keeps a shard of everything (FSDP2)."""


@dataclass(frozen=True, kw_only=True)
class DecoderSettings:
    """What decides the memory; `sequences` per GPU and micro-step, `context` in tokens."""

    shape: DecoderShape
    context: int
    sequences: int
    accumulation: int = 1
    checkpointing: bool = False
    attention: str = "auto"
    precision: str = "bf16"
    parallel: str = "ddp"
    reshard_after_forward: bool = True
    world: int = 1
    adapter: Adapter | None = None
    """What LoRA trains; None: all weights are trained."""
    quantised: bool = False
    """Whether the frozen matrices of the blocks are kept in four bits, as by QLoRA."""

    @property
    def tokens(self) -> int:
        """Tokens per GPU and micro-step."""
        return self.sequences * self.context

    @property
    def low(self) -> bool:
        """Whether matrices are multiplied in fp16 or bf16."""
        return self.precision in LOW_PRECISIONS

    @property
    def sharded(self) -> bool:
        """Whether weights, gradients and optimizer states are spread over the GPUs."""
        return self.parallel in SHARDED and self.world > 1

    @property
    def resharded(self) -> bool:
        """Whether gathered weights are let go between forward and backward."""
        return reshards(self.parallel, reshard_after_forward=self.reshard_after_forward)

    @property
    def trained(self) -> int:
        """Parameters that are trained."""
        return self.shape.parameters if self.adapter is None else self.adapter.parameters(self.shape)

    @property
    def frozen(self) -> int:
        """Parameters that are not trained: the base of an adapter."""
        return 0 if self.adapter is None else self.shape.parameters

    @property
    def frozen_bytes(self) -> float:
        """Bytes of all weights that are not trained."""
        if not self.quantised:
            return float(self.base_bytes * self.frozen)
        matrices = self.shape.layers * self.shape.block_matrices
        return FOUR_BITS * matrices + self.base_bytes * (self.frozen - matrices)

    @property
    def base_bytes(self) -> int:
        """Bytes of one of the model's own numbers, adapters left out."""
        return LOW if self.adapter is not None and self.low else FULL


def reshards(parallel: str, *, reshard_after_forward: bool) -> bool:
    """Whether a sharded model lets go of gathered weights between forward and backward; the flag counts for fsdp alone.

    >>> reshards("zero3", reshard_after_forward=False), reshards("zero2", reshard_after_forward=True)
    (True, False)
    """
    return parallel == "zero3" or (parallel == "fsdp" and reshard_after_forward)
