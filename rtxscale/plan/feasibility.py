"""Whether a cell fits into a GPU's memory, by the memory models in `models`, and what would.

Only what clearly does not fit is refused: the models leave out what they cannot know, and a trial that runs out of
memory tells more. Pure; called by `plan.rules` before a trial, and by `run.foreman` after one that ran out of memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from rtxscale.models.counted import Catalogue, shipped
from rtxscale.models.decoder_settings import LOW_PRECISIONS
from rtxscale.models.footprint import Subject
from rtxscale.models.memory import GIB, DecoderTraining
from rtxscale.models.shapes import SIZES, DecoderShape
from rtxscale.models.training import CountedTraining, Training, smallest_world
from rtxscale.spec.cell import Cell
from rtxscale.spec.script import ScriptWorkload
from rtxscale.spec.workload import CollectivesWorkload, DiffusionWorkload, LanguageWorkload, VisionWorkload, Workload

MARGIN = 1.04
"""A cell is refused when it needs more than this many times the GPU's memory. What is predicted is a lower figure: of
44 peaks that an H200 has measured it is 0.95 to 1.00 times the peak, and 1.03 times the one that a compiler lowered. So
a cell of more than this cannot fit; from the whole memory up to here, a trial tells."""
MOST_GPUS = 1024
"""Advice looks no further."""
USABLE = 0.9
"""Share of the memory that advice fills: the CUDA context, NCCL's buffers and fragmentation take the rest."""
MIB = 1024**2


def memory_shortage(cell: Cell, memory_mib: int) -> str | None:
    """What the cell needs, what a GPU has, and what would fit; None where it may fit, or where that is not known."""
    has, training = memory_mib * MIB, training_of(cell.workload, cell.gpus)
    needs = 0.0 if training is None else training.least
    if training is None or needs <= MARGIN * has:
        return None
    digits = 0 if round(needs / GIB) > round(has / GIB) else 1
    return f"needs about {needs / GIB:.{digits}f} GiB per GPU, has {has / GIB:.{digits}f}; {advice(training, has)}"


def what_would_fit(
    cell: Cell, memory_mib: int | None, measured: Mapping[int, float], catalogue: Catalogue | None = None
) -> str:
    """What to change about a cell that ran out of memory, the smallest change first; what is not known is said.

    `memory_mib` is the GPU's, None on CPUs. `measured` holds the peaks in MiB of smaller batches per GPU that ended
    well with otherwise the same workload: they count for more than the memory models. `catalogue` as in `training_of`.
    """
    workload = cell.workload
    if isinstance(workload, CollectivesWorkload):
        return f"not known what would fit; try sizes_mib up to {max(workload.sizes_mib) / 2:g}"
    batch = workload.batch_per_gpu or 1
    known = _batch_by_measurement(batch, memory_mib, measured)
    if known:
        return known
    training = training_of(workload, cell.gpus, catalogue)
    if training is not None and memory_mib is not None:
        return _by_model(training, memory_mib * MIB)
    return _halved(workload, batch)


def _batch_by_measurement(batch: int, memory_mib: int | None, measured: Mapping[int, float]) -> str:
    """The largest batch that must fit after what a smaller one needed; nothing without such a one.

    Of p MiB at batch b, weights and states do not grow: c times the batch needs at most c times p.
    """
    smaller = [size for size in measured if size < batch]
    if not smaller:
        return ""
    base = max(smaller)
    told = f"{base} took {measured[base]:,.0f} MiB"
    if memory_mib is None or measured[base] <= 0:
        return f"batch_per_gpu {base} fits"
    most = min(batch - 1, max(base, int(base * USABLE * memory_mib / measured[base])))
    return f"batch_per_gpu {most} would fit ({told} of {memory_mib:,})"


def _by_model(training: Training, has: float) -> str:
    """What the memory model says would fit into `has` bytes.

    The model leaves things out, so it may find room for what has just run out of it: then what would fit must need
    clearly less than that by the model, whatever the GPU has.
    """
    needs = training.peak
    limit = USABLE * min(has, needs)
    options = [
        _batch_option(training, limit),
        _checkpointing_option(training, limit),
        _sharding_option(training, limit),
    ]
    given = [option for option in options if option]
    said = f"would fit with {', or '.join(given)}" if given else advice(training, limit)
    return f"by the memory model it needs at least {needs / GIB:.1f} GiB and {said}"


def largest_batch(training: Training, limit: float, most: int) -> int:
    """The largest batch per GPU, up to `most`, whose peak stays within `limit` bytes; 0 where not even one does."""
    return bisect_right(range(1, most + 1), limit, key=lambda batch: _peak(training.at(batch=batch)))


def _peak(training: Training | None) -> float:
    return float("inf") if training is None else training.peak


def _batch_option(training: Training, limit: float) -> str:
    most = largest_batch(training, limit, training.batch - 1)
    return f"batch_per_gpu {most} instead of {training.batch}" if most else ""


def _checkpointing_option(training: Training, limit: float) -> str:
    if training.checkpointing or _peak(training.at(checkpointing=True)) > limit:
        return ""
    return "checkpointing"


def _sharding_option(training: Training, limit: float) -> str:
    world = smallest_world(training, limit, MOST_GPUS)
    if world is None or (training.spread and world <= training.world):
        return ""
    if world <= training.world and training.world > 1:
        return "parallel fsdp"
    return _option(world, training, limit)


def _halved(workload: Workload, batch: int) -> str:
    if batch > 1:
        return f"not known what would fit; try batch_per_gpu {batch // 2}: activations scale with it"
    if isinstance(workload, ScriptWorkload):
        return "not known what would fit: the batch is one already, and the code is the sweep's own"
    smaller = "context" if isinstance(workload, LanguageWorkload) else "image_size"
    return f"not known what would fit: the batch is one already; try a smaller {smaller} or model"


def training_of(workload: Workload, gpus: int, catalogue: Catalogue | None = None) -> Training | None:
    """The cell in the terms of the memory models; None where there is none for it.

    `catalogue` holds what has been counted: what comes with rtxscale where none is given.
    """
    catalogue = shipped() if catalogue is None else catalogue
    if isinstance(workload, LanguageWorkload):
        shape = catalogue.shapes.get(workload.path) if workload.path else SIZES[workload.size]
        if shape is None or (workload.adapter is not None and not shape.has(workload.adapter)):
            return None
        return decoder_training(workload, shape, gpus)
    if not isinstance(workload, VisionWorkload | DiffusionWorkload):
        return None
    subject = subject_of(workload, gpus)
    footprint = catalogue.find(subject)
    if footprint is None:
        return None
    vision = isinstance(workload, VisionWorkload)
    optimizer = workload.optimizer if isinstance(workload, VisionWorkload) else "adamw"
    return CountedTraining(
        subject=subject,
        catalogue=catalogue,
        footprint=footprint,
        batch=workload.batch_per_gpu or 1,
        accumulation=workload.accumulation if isinstance(workload, VisionWorkload) else 1,
        optimizer=optimizer,
        fused=workload.precision != "fp16" or optimizer == "sgd",
        first_weights_kept=vision,
        shardable=not vision,
        compiled=workload.compile != "off",
        world=gpus,
    )


def subject_of(workload: VisionWorkload | DiffusionWorkload, gpus: int) -> Subject:
    """What of the workload has to be counted."""
    return Subject(
        kind=workload.kind,
        model=workload.model,
        image_size=workload.image_size,
        low=workload.precision in LOW_PRECISIONS,
        checkpointing=workload.checkpointing == "on",
        gathered=isinstance(workload, DiffusionWorkload) and workload.parallel == "fsdp" and gpus > 1,
    )


def decoder_training(workload: LanguageWorkload, shape: DecoderShape, gpus: int) -> DecoderTraining:
    """The cell in the terms of the decoders' memory model."""
    return DecoderTraining(
        shape=shape,
        context=workload.context,
        sequences=workload.batch_per_gpu or 1,
        accumulation=workload.accumulation,
        checkpointing=workload.checkpointing == "on",
        attention=workload.attention,
        precision=workload.precision,
        parallel=workload.parallel,
        reshard_after_forward=workload.reshard_after_forward,
        world=gpus,
        adapter=workload.adapter,
        quantised=workload.tuning == "qlora",
    )


def advice(training: Training, has: float) -> str:
    """The fewest GPUs on which it fits in shards, as it is and with checkpointing; unsharded, the batch that fits."""
    if training.in_shards(1) is None:
        options = [_batch_option(training, USABLE * has), _checkpointing_option(training, USABLE * has)]
        given = [option for option in options if option]
        return f"would fit with {', or '.join(given)}" if given else "does not fit, whatever the batch"
    world = smallest_world(training, has, MOST_GPUS)
    options = [] if world is None else [_option(world, training, has)]
    recomputing = None if training.checkpointing else training.at(checkpointing=True)
    if recomputing is not None:
        fewer = smallest_world(recomputing, has, MOST_GPUS)
        if fewer is not None and (world is None or fewer < world):
            options.append(_option(fewer, recomputing, has, "checkpointing"))
    return f"fits from {' or '.join(options)}" if options else "does not fit at this batch, however sharded"


def _option(world: int, training: Training, has: float, *more: str) -> str:
    """GPU count and what it takes there; sharding begins with two, and is not asked for where it changes nothing."""
    sharding = max(world, training.world) > 1 and not (world == 1 and training.peak <= has)
    takes = ["fsdp"] * sharding + list(more)
    return f"{world} GPU{'s' * (world > 1)}" + (f" with {' and '.join(takes)}" if takes else "")
