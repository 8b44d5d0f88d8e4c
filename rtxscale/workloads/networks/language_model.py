"""The decoder that a language workload trains: whole on each rank, or sharded before it takes up memory.

A model that is whole on each rank is built once per session and filled anew for each trial; a sharded one is built
anew. Not its architecture, which is `networks.decoder`. Caller: `workloads.language`.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch

from rtxscale.models.decoder_settings import SHARDED, reshards
from rtxscale.spec.workload import LanguageWorkload
from rtxscale.workloads.networks import decoder, local_decoder
from rtxscale.workloads.networks.adapters import add_adapters
from rtxscale.workloads.networks.float8 import multiply_in_float8
from rtxscale.workloads.protocol import Context
from rtxscale.workloads.training.parallel import fully_sharded, let_go
from rtxscale.workloads.training.precision import AUTOCAST
from rtxscale.workloads.training.resident import Resident, give_up, resident


def is_sharded(workload: LanguageWorkload, context: Context) -> bool:
    """Whether there is anybody to share with; one worker trains the whole model."""
    return workload.parallel in SHARDED and context.group is not None


def _bare_model(workload: LanguageWorkload, device: torch.device) -> Any:
    """The architecture without memory, with its adapters where only they are trained."""
    with torch.device("meta"):
        model = local_decoder.build(workload)
        if workload.tuning != "full":
            add_adapters(model, workload)
        if workload.precision == "fp8":
            multiply_in_float8(model, device, workload.fp8_library)
    return model


def _form(workload: LanguageWorkload) -> tuple[str, ...]:
    """What the kept model is: beside its size, which adapters it has and how its base is kept."""
    if workload.tuning == "full":
        return (*workload.identity, "fp8", workload.fp8_library) if workload.precision == "fp8" else workload.identity
    adapters = (workload.lora_rank, workload.lora_alpha, *sorted(workload.lora_targets))
    return (*workload.identity, workload.tuning, *map(str, adapters), str(AUTOCAST.get(workload.precision)))


def refill(model: Any, workload: LanguageWorkload, context: Context) -> None:
    """Give a model, whole or in shards, its first weights: of its own files, else drawn from the context's seed."""
    let_go(model)
    given = local_decoder.weights_of(workload)
    with nullcontext() if given is None else given:
        decoder.fill(model, context.device, seed=context.seed, given=given)


def whole_model(workload: LanguageWorkload, context: Context) -> Any:
    """The session's model with its first weights."""

    def build() -> Resident:
        bare = _bare_model(workload, context.device)
        decoder.materialise(bare, context.device)
        return Resident(identity=_form(workload), model=bare)

    model = resident(context, _form(workload), build).model
    model.zero_grad(set_to_none=True)
    decoder.set_checkpointing(model, workload.checkpointing == "on")
    decoder.set_attention(model, workload.attention)
    refill(model, workload, context)
    return model


def sharded_model(workload: LanguageWorkload, context: Context) -> Any:
    """A new model, sharded before it takes up memory; a whole one that the session kept is given up for it.

    Raises:
        ValueError: there is only one worker.
    """
    give_up(context)
    model = _bare_model(workload, context.device)
    decoder.set_checkpointing(model, workload.checkpointing == "on")
    decoder.set_attention(model, workload.attention)
    fully_sharded(
        model,
        list(model.model.layers),
        context,
        compiled=workload.compile,
        block_dtype=AUTOCAST.get(workload.precision),
        reshard_after_forward=reshards(workload.parallel, reshard_after_forward=workload.reshard_after_forward),
    )
    decoder.materialise(model, context.device)
    refill(model, workload, context)
    return model
