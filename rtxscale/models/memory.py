"""GPU memory that training a decoder needs, in bytes, from its shape and settings alone.

A lower figure: what PyTorch holds in tensors, without the CUDA context, NCCL's buffers, fragmentation and the kernels'
scratch space. Callers: `plan.feasibility`; `plan` and `workloads` for what is sharded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rtxscale.models.activations import activations, block_activations
from rtxscale.models.decoder_settings import FULL, LOW, DecoderSettings

GIB = 1024**3
ADAM_STATES = 2
"""AdamW keeps two numbers per parameter (Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2)."""
GATHERED_BLOCKS = 2
"""Blocks that FSDP holds whole at a time: the one at work and the one fetched ahead (FSDP2, implicit prefetch)."""
LOGITS_COPIES = 3
"""fp32 numbers per logit when backward starts: log-softmax, its gradient, the logits' gradient."""
LOGITS_IN_FORWARD = 2
"""fp32 numbers per logit when the loss is computed: the logit and its log-softmax; beside the logit as it came."""


@dataclass(frozen=True, kw_only=True)
class DecoderTraining(DecoderSettings):
    """A decoder in training, as `models.training.Training` asks for it."""

    @property
    def batch(self) -> int:
        """Sequences per GPU and micro-step; with what follows, this is a `models.training.Training`."""
        return self.sequences

    @property
    def spread(self) -> bool:
        """Whether weights, gradients and states lie in shards, and weights are let go between the passes."""
        return self.sharded and self.resharded

    @property
    def peak(self) -> float:
        """The most bytes at any moment of a step."""
        return memory_of(self).peak

    @property
    def least(self) -> float:
        """Bytes that it needs for sure."""
        return self.peak

    def at(self, *, batch: int | None = None, checkpointing: bool | None = None) -> DecoderTraining:
        """The same with other settings."""
        changed = self.checkpointing if checkpointing is None else checkpointing
        return replace(self, sequences=self.sequences if batch is None else batch, checkpointing=changed)

    def in_shards(self, world: int) -> DecoderTraining:
        """The same with all weights, gradients and states in shards over so many GPUs."""
        return replace(self, parallel="fsdp", reshard_after_forward=True, world=world)


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes on one GPU, by what they are for."""

    weights: float
    gradients: float
    optimizer: float
    buckets: float
    copies: float
    """Weights in low precision, and weights that FSDP has gathered, when forward ends."""
    copies_kept: float
    """Those of them that are there still when backward starts."""
    activations: float
    recomputed: float
    """What one checkpointed block has of its own while it runs once more, copies included; 0 without checkpointing."""
    logits_in_forward: float
    logits: float
    gradients_at_loss: float
    """Gradients that are there when backward starts: those of earlier micro-steps."""

    @property
    def at_loss(self) -> float:
        """Bytes around the loss, with all that forward has kept and no new gradients, at the worst of three moments.

        When forward ends, when backward starts, and when the last block is recomputed.
        """
        states = self.weights + self.optimizer + self.buckets + self.gradients_at_loss
        forward, backward = self.copies + self.logits_in_forward, self.copies_kept + self.logits
        return states + self.activations + max(forward, backward, self.copies_kept + self.recomputed)

    @property
    def at_update(self) -> float:
        """Bytes when the optimizer runs: all gradients and no activations."""
        return self.weights + self.optimizer + self.buckets + self.gradients

    @property
    def peak(self) -> float:
        """The larger of the two; in between, activations go as gradients come."""
        return max(self.at_loss, self.at_update)


def memory_of(training: DecoderTraining) -> Memory:
    """Bytes on one GPU.

    Source: 4 + 4 + 8 bytes per trained parameter: Rajbhandari et al., ZeRO (2020), arXiv:1910.02054, sections 3.1 and
    5, with gradients in fp32. zero1 divides the optimizer's by the world, fsdp, zero2 and zero3 all of them and the
    frozen weights, which have neither gradients nor states. DDP's buckets are a second copy of the gradients unless
    `gradient_as_bucket_view` is set (torch, DistributedDataParallel).
    """
    shares = training.world if training.sharded else 1
    state = FULL * training.trained / shares
    replicated = training.world > 1 and not training.sharded
    split = training.world if training.parallel == "zero1" else 1
    return Memory(
        weights=state + training.frozen_bytes / shares,
        gradients=state,
        optimizer=ADAM_STATES * state / split,
        buckets=state if replicated else 0.0,
        copies=weight_copies(training),
        copies_kept=_copies_kept(training),
        activations=activations(training),
        recomputed=_recomputed(training),
        logits_in_forward=training.tokens * training.shape.vocab * (LOGITS_IN_FORWARD * FULL + LOW * training.low),
        logits=LOGITS_COPIES * FULL * training.tokens * training.shape.vocab,
        gradients_at_loss=state if training.accumulation > 1 else 0.0,
    )


def weight_copies(training: DecoderTraining) -> float:
    """Bytes of weights beside those kept: autocast's cache of fp32 matrices, or what FSDP gathers.

    FSDP gathers blocks in the precision they compute in and everything else as it is kept
    (`workloads.training.parallel`).
    """
    shape, item = training.shape, LOW if training.low else FULL
    added = 0 if training.adapter is None else training.adapter.block_parameters(shape)
    cached = training.low and training.adapter is None
    head = _head_copy(training)
    if not training.sharded:
        matrices = (shape.block_matrices if cached else 0) + added
        return head + (LOW * shape.layers * matrices if training.low else 0)
    blocks = min(GATHERED_BLOCKS, shape.layers) if training.resharded else shape.layers
    return head + training.base_bytes * shape.outer_parameters + blocks * item * (shape.block_parameters + added)


def _copies_kept(training: DecoderTraining) -> float:
    """Bytes of weight copies between the passes: checkpointed blocks hold on to none, and autocast forgets its own."""
    if training.sharded or not training.checkpointing:
        return weight_copies(training)
    return float(_head_copy(training))


def _recomputed(training: DecoderTraining) -> float:
    """Bytes that a checkpointed block has of its own while it runs once more."""
    if not training.checkpointing:
        return 0.0
    cast = training.low and training.adapter is None and not training.sharded
    return block_activations(training) + (LOW * training.shape.block_matrices if cast else 0)


def _head_copy(training: DecoderTraining) -> int:
    """Bytes of the output embedding in low precision, which its own gradient needs."""
    cast = training.low and training.adapter is None
    return LOW * training.shape.vocab * training.shape.hidden if cast else 0
