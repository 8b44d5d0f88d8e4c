"""Whether a cell fits into a GPU's memory, by `models.memory`, and what would.

Only what clearly does not fit is refused: the model leaves out what it cannot know, and a trial that runs out of memory
tells more. Pure; called by `plan.rules`.
"""

from __future__ import annotations

from dataclasses import replace

from rtxscale.models.memory import GIB, DecoderTraining, memory_of, smallest_world
from rtxscale.models.shapes import SIZES
from rtxscale.spec.cell import Cell
from rtxscale.spec.workload import LanguageWorkload

MARGIN = 1.15
"""A cell is refused when it needs more than this many times the GPU's memory."""
MOST_GPUS = 1024
"""Advice looks no further."""


def memory_shortage(cell: Cell, memory_mib: int) -> str | None:
    """What the cell needs, what a GPU has, and from how many GPUs on it would fit; None where it may fit."""
    if not isinstance(cell.workload, LanguageWorkload):
        return None
    training = training_of(cell.workload, cell.gpus)
    has = memory_mib * 1024**2
    needs = memory_of(training).peak
    if needs <= MARGIN * has:
        return None
    return f"needs about {needs / GIB:.0f} GiB per GPU, has {has / GIB:.0f}; {_advice(training, has)}"


def training_of(workload: LanguageWorkload, gpus: int) -> DecoderTraining:
    """The cell in the terms of the memory model."""
    return DecoderTraining(
        shape=SIZES[workload.size],
        context=workload.context,
        sequences=workload.batch_per_gpu or 1,
        accumulation=workload.accumulation,
        checkpointing=workload.checkpointing == "on",
        attention=workload.attention,
        precision=workload.precision,
        parallel=workload.parallel,
        reshard_after_forward=workload.reshard_after_forward,
        world=gpus,
    )


def _advice(training: DecoderTraining, has: float) -> str:
    """The fewest GPUs on which it fits when it is sharded, as it is and with checkpointing too."""
    sharded = replace(training, parallel="fsdp")
    world = smallest_world(sharded, has, MOST_GPUS)
    options = [] if world is None else [_option(world, training, checkpointing=False)]
    if not training.checkpointing:
        fewer = smallest_world(replace(sharded, checkpointing=True), has, MOST_GPUS)
        if fewer is not None and (world is None or fewer < world):
            options.append(_option(fewer, training, checkpointing=True))
    return f"fits from {' or '.join(options)}" if options else "does not fit at this batch and context, however sharded"


def _option(world: int, training: DecoderTraining, *, checkpointing: bool) -> str:
    """GPU count and what it takes there; sharding begins with two."""
    takes = ["fsdp"] * (max(world, training.world) > 1) + ["checkpointing"] * checkpointing
    return f"{world} GPU{'s' * (world > 1)}" + (f" with {' and '.join(takes)}" if takes else "")
