"""Trainings whose memory is known before they run, and what they have in common; counted models among them.

A lower figure: what PyTorch holds in tensors, without libraries' workspaces, the CUDA context, NCCL's buffers and
fragmentation. Pure; callers: `plan.feasibility`, `plan.fit`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

from rtxscale.models.counted import Catalogue
from rtxscale.models.decoder_settings import FULL, LOW
from rtxscale.models.footprint import Footprint, Subject

STATES_OF_OPTIMIZER = {"sgd": 1, "adamw": 2}
"""Numbers per parameter: SGD's momentum; AdamW's two moments."""


class Training(Protocol):
    """One GPU's part of a training, and the same with other settings."""

    @property
    def batch(self) -> int:
        """Samples per GPU and micro-step."""

    @property
    def world(self) -> int:
        """Number of GPUs."""

    @property
    def checkpointing(self) -> bool:
        """Whether activations are recomputed in backward."""

    @property
    def spread(self) -> bool:
        """Whether weights, gradients and states lie in shards, and weights are let go between the passes."""

    @property
    def peak(self) -> float:
        """The most bytes at any moment of a step."""

    @property
    def least(self) -> float:
        """Bytes that it needs for sure: the peak, unless that is of another way of running."""

    def at(self, *, batch: int | None = None, checkpointing: bool | None = None) -> Training | None:
        """The same with other settings; None where there is no such training, or its memory is not known."""

    def in_shards(self, world: int) -> Training | None:
        """The same with all weights, gradients and states in shards over so many GPUs; None where they cannot be."""


@dataclass(frozen=True, kw_only=True)
class CountedTraining:
    """A training of a counted model; see `Training`. `batch` is per GPU and micro-step."""

    subject: Subject
    catalogue: Catalogue = field(repr=False, compare=False)
    footprint: Footprint = field(repr=False)
    batch: int
    accumulation: int = 1
    optimizer: str = "adamw"
    fused: bool = True
    """Whether the optimizer updates number by number; else it holds one number per parameter more meanwhile."""
    first_weights_kept: bool = False
    """Whether the session keeps a copy of weights and buffers, which every trial begins from."""
    shardable: bool = False
    compiled: bool = False
    """Counts are of eager mode: a compiler keeps fewer activations, by how many is not known beforehand."""
    world: int = 1

    @property
    def checkpointing(self) -> bool:
        """Whether activations are recomputed in backward."""
        return self.subject.checkpointing

    @property
    def spread(self) -> bool:
        """Whether weights, gradients and states lie in shards."""
        return self.subject.gathered

    @property
    def states(self) -> float:
        """Bytes that count throughout: weights, optimizer states, DDP's buckets, blocks that FSDP gathers, inputs."""
        counts, state = self.footprint, self._every
        kept = (1 + self.first_weights_kept) * (state + counts.buffers)
        buckets = state if self.world > 1 and not self.spread else 0.0
        inputs = counts.sample * self.batch * self.accumulation
        whole = (LOW if self.subject.low else FULL) * counts.gathered
        return kept + STATES_OF_OPTIMIZER[self.optimizer] * state + buckets + inputs + whole

    @property
    def peak(self) -> float:
        """The most bytes at any moment of a step: what is there throughout, and the worst moment's activations.

        Source: states, gradients and buckets are those of `models.memory.memory_of`.
        """
        shares = self.world if self.spread else 1
        at_work = max(
            moment.fixed
            + moment.per_sample * self.batch
            + (self._every if self.accumulation > 1 else FULL * moment.gradients / shares)
            for moment in self.footprint.moments
        )
        return self.states + max(at_work, self._at_update)

    @property
    def least(self) -> float:
        """Bytes that it needs for sure: of a compiled model what is there without activations."""
        return self.states + self._at_update if self.compiled else self.peak

    def at(self, *, batch: int | None = None, checkpointing: bool | None = None) -> CountedTraining | None:
        """The same with other settings; None where that has not been counted."""
        changed = self.checkpointing if checkpointing is None else checkpointing
        found = self._of(replace(self.subject, checkpointing=changed))
        return None if found is None else replace(found, batch=self.batch if batch is None else batch)

    def in_shards(self, world: int) -> CountedTraining | None:
        """The same under FSDP, where there is anybody to share with."""
        if not self.shardable:
            return None
        found = self._of(replace(self.subject, gathered=world > 1))
        return None if found is None else replace(found, world=world)

    def _of(self, subject: Subject) -> CountedTraining | None:
        if subject == self.subject:
            return self
        footprint = self.catalogue.find(subject)
        return None if footprint is None else replace(self, subject=subject, footprint=footprint)

    @property
    def _at_update(self) -> float:
        """Bytes beside the states while the optimizer runs."""
        return self._every if self.fused else 2 * self._every

    @property
    def _every(self) -> float:
        """Bytes of one fp32 number for each parameter of this GPU's part."""
        return FULL * self.footprint.parameters / (self.world if self.spread else 1)


def smallest_world(training: Training, limit: float, most: int) -> int | None:
    """The fewest GPUs, up to `most`, on which it fits into `limit` bytes in shards; None when it never does."""
    for world in range(1, most + 1):
        shared = training.in_shards(world)
        if shared is None:
            return None
        if shared.peak <= limit:
            return world
    return None
