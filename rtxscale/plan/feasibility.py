"""Whether a cell fits into a GPU's memory, by `models.memory`, and what would.

Only what clearly does not fit is refused: the model leaves out what it cannot know, and a trial that runs out of memory
tells more. Pure; called by `plan.rules` before a trial, and by `run.foreman` after one that ran out of memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace

from rtxscale.models.memory import GIB, DecoderTraining, memory_of, smallest_world, training_states
from rtxscale.models.shapes import SIZES, UNET_PARAMETERS
from rtxscale.spec.cell import Cell
from rtxscale.spec.workload import CollectivesWorkload, DiffusionWorkload, LanguageWorkload, ScriptWorkload, Workload

MARGIN = 1.15
"""A cell is refused when it needs more than this many times the GPU's memory."""
MOST_GPUS = 1024
"""Advice looks no further."""
USABLE = 0.9
"""Share of the memory that advice fills: the CUDA context, NCCL's buffers and fragmentation take the rest."""
MIB = 1024**2


def memory_shortage(cell: Cell, memory_mib: int) -> str | None:
    """What the cell needs, what a GPU has, and from how many GPUs on it would fit; None where it may fit."""
    has = memory_mib * MIB
    if isinstance(cell.workload, DiffusionWorkload):
        return _shortage_of_states(cell.workload, cell.gpus, has)
    if not isinstance(cell.workload, LanguageWorkload):
        return None
    training = training_of(cell.workload, cell.gpus)
    needs = memory_of(training).peak
    if needs <= MARGIN * has:
        return None
    return f"needs about {needs / GIB:.0f} GiB per GPU, has {has / GIB:.0f}; {_advice(training, has)}"


def _shortage_of_states(workload: DiffusionWorkload, gpus: int, has: float) -> str | None:
    """The same for a UNet, from its states alone: its activations are not modelled."""
    parameters = UNET_PARAMETERS[workload.model]
    needs = training_states(parameters, gpus, sharded=workload.parallel == "fsdp")
    if needs <= MARGIN * has:
        return None
    worlds = range(max(2, gpus), MOST_GPUS)
    world = next((count for count in worlds if training_states(parameters, count, sharded=True) <= USABLE * has), None)
    advice = f"sharded they fit from {world} GPUs with fsdp" if world else "they do not fit, however sharded"
    return f"needs {needs / GIB:.0f} GiB per GPU for its states alone, has {has / GIB:.0f}; {advice}"


def what_would_fit(cell: Cell, memory_mib: int | None, measured: Mapping[int, float]) -> str:
    """What to change about a cell that ran out of memory, the smallest change first; what is not known is said.

    `memory_mib` is the GPU's, None on CPUs. `measured` holds the peaks in MiB of smaller batches per GPU that ended
    well with otherwise the same workload: they count for more than the model of a language model's memory.
    """
    workload = cell.workload
    if isinstance(workload, CollectivesWorkload):
        return f"not known what would fit; try sizes_mib up to {max(workload.sizes_mib) / 2:g}"
    batch = workload.batch_per_gpu or 1
    known = _batch_by_measurement(batch, memory_mib, measured)
    if known:
        return known
    if isinstance(workload, LanguageWorkload) and memory_mib is not None:
        return _by_model(training_of(workload, cell.gpus), memory_mib * MIB)
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


def _by_model(training: DecoderTraining, has: float) -> str:
    """What the memory model says would fit into `has` bytes.

    The model leaves things out, so it may find room for what has just run out of it: then what would fit must need
    clearly less than that by the model, whatever the GPU has.
    """
    needs = memory_of(training).peak
    limit = USABLE * min(has, needs)
    options = [
        _batch_option(training, limit),
        _checkpointing_option(training, limit),
        _sharding_option(training, limit),
    ]
    given = [option for option in options if option]
    said = f"would fit with {', or '.join(given)}" if given else _advice(training, limit)
    return f"by the memory model it needs at least {needs / GIB:.1f} GiB and {said}"


def _batch_option(training: DecoderTraining, limit: float) -> str:
    sizes = range(1, training.sequences)
    most = bisect_right(sizes, limit, key=lambda size: memory_of(replace(training, sequences=size)).peak)
    return f"batch_per_gpu {most} instead of {training.sequences}" if most else ""


def _checkpointing_option(training: DecoderTraining, limit: float) -> str:
    if training.checkpointing or memory_of(replace(training, checkpointing=True)).peak > limit:
        return ""
    return "checkpointing"


def _sharding_option(training: DecoderTraining, limit: float) -> str:
    world = smallest_world(replace(training, parallel="fsdp", reshard_after_forward=True), limit, MOST_GPUS)
    if world is None or (training.sharded and training.resharded and world <= training.world):
        return ""
    if world <= training.world and training.world > 1:
        return "parallel fsdp"
    return _option(world, training, limit, checkpointing=False)


def _halved(workload: Workload, batch: int) -> str:
    if batch > 1:
        return f"not known what would fit; try batch_per_gpu {batch // 2}: activations scale with it"
    if isinstance(workload, ScriptWorkload):
        return "not known what would fit: the batch is one already, and the code is the sweep's own"
    smaller = "context" if isinstance(workload, LanguageWorkload) else "image_size"
    return f"not known what would fit: the batch is one already; try a smaller {smaller} or model"


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
        adapter=workload.adapter,
        quantised=workload.tuning == "qlora",
    )


def _advice(training: DecoderTraining, has: float) -> str:
    """The fewest GPUs on which it fits when it is sharded, as it is and with checkpointing too."""
    sharded = replace(training, parallel="fsdp", reshard_after_forward=True)
    world = smallest_world(sharded, has, MOST_GPUS)
    options = [] if world is None else [_option(world, training, has, checkpointing=False)]
    if not training.checkpointing:
        fewer = smallest_world(replace(sharded, checkpointing=True), has, MOST_GPUS)
        if fewer is not None and (world is None or fewer < world):
            options.append(_option(fewer, training, has, checkpointing=True))
    return f"fits from {' or '.join(options)}" if options else "does not fit at this batch and context, however sharded"


def _option(world: int, training: DecoderTraining, has: float, *, checkpointing: bool) -> str:
    """GPU count and what it takes there; sharding begins with two, and is not asked for where it changes nothing."""
    unsharded = replace(training, checkpointing=training.checkpointing or checkpointing)
    sharding = max(world, training.world) > 1 and not (world == 1 and memory_of(unsharded).peak <= has)
    takes = ["fsdp"] * sharding + ["checkpointing"] * checkpointing
    return f"{world} GPU{'s' * (world > 1)}" + (f" with {' and '.join(takes)}" if takes else "")
