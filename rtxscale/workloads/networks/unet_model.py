"""The UNet that a diffusion workload trains: whole on each rank, or sharded before it takes up memory.

A model that is whole on each rank is built once per session and filled anew for each trial; a sharded one is built
anew. Not its architecture, which is `networks.unet`. Caller: `workloads.diffusion`.
"""

from __future__ import annotations

from typing import Any

import torch

from rtxscale.models.unets import UNETS
from rtxscale.spec.workload import DiffusionWorkload
from rtxscale.workloads.networks.unet import blocks_of, build_unet, fill
from rtxscale.workloads.protocol import Context
from rtxscale.workloads.training.parallel import fully_sharded, let_go
from rtxscale.workloads.training.precision import AUTOCAST
from rtxscale.workloads.training.resident import Resident, give_up, resident


def is_sharded(workload: DiffusionWorkload, context: Context) -> bool:
    """Whether there is anybody to share with; one worker trains the whole model."""
    return workload.parallel == "fsdp" and context.group is not None


def refill(model: Any, context: Context) -> None:
    """Give a model, whole or in shards, its first weights, drawn from the context's seed."""
    let_go(model)
    fill(model, context.device, seed=context.seed)


def whole_model(workload: DiffusionWorkload, context: Context) -> Any:
    """The session's model with its first weights."""

    def build() -> Resident:
        bare = _bare_model(workload)
        return Resident(identity=workload.identity, model=bare.to_empty(device=context.device))

    model = resident(context, workload.identity, build).model
    model.zero_grad(set_to_none=True)
    layout = torch.channels_last if workload.channels_last else torch.contiguous_format
    model.to(memory_format=layout)
    _set_checkpointing(model, workload)
    refill(model, context)
    return model


def sharded_model(workload: DiffusionWorkload, context: Context) -> Any:
    """A new model, sharded before it takes up memory; a whole one that the session kept is given up for it.

    Raises:
        ValueError: there is only one worker.
    """
    give_up(context)
    model = _bare_model(workload)
    _set_checkpointing(model, workload)
    fully_sharded(
        model,
        blocks_of(model),
        context,
        compiled=workload.compile,
        block_dtype=AUTOCAST.get(workload.precision),
        reshard_after_forward=True,
    )
    model.to_empty(device=context.device)
    refill(model, context)
    return model


def _bare_model(workload: DiffusionWorkload) -> Any:
    """The architecture without memory."""
    with torch.device("meta"):
        return build_unet(UNETS[workload.model])


def _set_checkpointing(model: Any, workload: DiffusionWorkload) -> None:
    if workload.checkpointing == "on":
        model.enable_gradient_checkpointing()
    else:
        model.disable_gradient_checkpointing()
