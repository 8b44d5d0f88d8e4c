"""How a model is spread over ranks, and what that really built: DDP's buckets, FSDP's shards, ZeRO's share of states.

Not a training loop. Callers: the workloads that train a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from rtxscale.nccl.attest import Attested, Verdict
from rtxscale.workloads.protocol import Bucket, Context
from rtxscale.workloads.training.compilation import compile_blocks


def data_parallel(model: nn.Module, context: Context, **options: Any) -> nn.Module:
    """The model under DDP on the context's process group; the bare model at one worker.

    `bucket_cap_mb` counts in MiB in spite of its name. `options` are DDP's further ones.
    """
    if context.group is None:
        return model
    device_ids = None if context.device.index is None else [context.device.index]
    return DistributedDataParallel(
        model, device_ids=device_ids, process_group=context.group, bucket_cap_mb=context.bucket_mib, **options
    )


def fully_sharded(
    model: nn.Module,
    blocks: Sequence[nn.Module],
    context: Context,
    *,
    compiled: str,
    block_dtype: torch.dtype | None,
    reshard_after_forward: bool,
) -> None:
    """Shard the model in place with FSDP2: each block by itself, the rest as one group. Once in a model's life.

    Unless `compiled` is off, each block is compiled by itself in this mode, inside the hooks that gather it.
    Blocks are gathered in `block_dtype`, everything else and all gradients in fp32, and inputs are left as they are, so
    that a step computes what it does under DDP and autocast.

    Raises:
        ValueError: there is only one worker.
    """
    if context.group is None:
        raise ValueError(f"found {context.world} worker; FSDP shards over at least 2 workers")
    if compiled != "off":
        compile_blocks(blocks, compiled)
    mesh = DeviceMesh.from_group(context.group, context.device.type)
    policy = MixedPrecisionPolicy(param_dtype=block_dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
    for block in blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard_after_forward)
    fully_shard(model, mesh=mesh)


def zero_redundancy(
    parameters: Iterable[nn.Parameter], group: dist.ProcessGroup, kind: type[torch.optim.Optimizer], **settings: Any
) -> torch.optim.Optimizer:
    """An optimizer of this kind whose states are spread over the group's ranks, beside a model under DDP.

    Each parameter belongs to one rank, which updates it and broadcasts it by itself: ZeRO's first stage, Rajbhandari et
    al. (2020), arXiv:1910.02054, section 5.1, save that DDP reduces all gradients onto every rank.
    """
    return ZeroRedundancyOptimizer(list(parameters), kind, process_group=group, **settings)


def let_go(model: nn.Module) -> None:
    """Let go of weights that a forward pass without a backward pass has left gathered; nothing for a whole model."""
    for part in model.modules():
        if isinstance(part, FSDPModule):
            part.reshard()


def is_gathered(block: nn.Module) -> bool:
    """Whether a sharded block's weights lie whole on this rank at this moment."""
    return not any(isinstance(parameter, DTensor) for parameter in block.parameters())


@torch.no_grad()
def assign(parameter: nn.Parameter, whole: torch.Tensor) -> None:
    """Give a parameter its values from the whole tensor: all of them, or this rank's shard."""
    if isinstance(parameter, DTensor):
        own = distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)
        parameter.to_local().copy_(own.to_local())
    else:
        parameter.copy_(whole)


def attest_parallel(
    requested: str, model: nn.Module, world: int, *, optimizer: Any = None, kept_whole: bool | None = None
) -> Attested:
    """How the model is spread, seen from its wrap, from where its parameters lie and from the optimizer's states.

    `kept_whole`: whether a sharded block's weights were still gathered after its forward pass; None before one.
    """
    wrapped = getattr(model, "_orig_mod", model)
    if isinstance(wrapped, DistributedDataParallel):
        seen, observed = _seen_under_ddp(optimizer)
    elif any(isinstance(parameter, DTensor) for parameter in wrapped.parameters()):
        seen, observed = _seen_in_shards(wrapped, kept_whole)
    else:
        seen, observed = {}, "one whole model"
    verdict = {True: Verdict.HONOURED, False: Verdict.REFUTED, None: Verdict.NOT_ATTESTED}[seen.get(requested, False)]
    return Attested(
        subject="workload.parallel",
        requested=requested,
        observed=observed,
        verdict=verdict if world > 1 else Verdict.NOT_APPLICABLE,
        evidence="type of the wrap and of the parameters; the optimizer's states; weights after the first forward pass",
    )


Seen = tuple[dict[str, bool | None], str]
"""Whether a model is spread in each of these ways, None where that is not seen yet; and what is seen, in words."""


def _seen_under_ddp(optimizer: Any) -> Seen:
    """A model under DDP: with all of the optimizer's states on this rank, or with a share of them."""
    if not isinstance(optimizer, ZeroRedundancyOptimizer):
        return {"ddp": True}, "ddp"
    every = sum(parameter.numel() for group in optimizer.param_groups for parameter in group["params"])
    own = sum(parameter.numel() for parameter in optimizer.optim.state)  # none before the first step
    said = f"ddp, this rank's optimizer with the states of {own:,} of {every:,} trained parameters"
    return {"zero1": own < every if own else None}, said


def _seen_in_shards(model: nn.Module, kept_whole: bool | None) -> Seen:
    """A model under FSDP2: every parameter in parts, whose weights stay gathered between the passes or do not."""
    parameters = list(model.parameters())
    sharded = sum(isinstance(parameter, DTensor) and _in_parts(parameter) for parameter in parameters)
    every = sharded == len(parameters)
    said = f"{'fsdp' if every else 'partly sharded'}, {sharded} of {len(parameters)} parameters sharded"
    if kept_whole is None:
        return {"fsdp": every, "zero2": None, "zero3": None}, said
    between = "weights whole between the passes" if kept_whole else "weights let go between the passes"
    return {"fsdp": every, "zero2": every and kept_whole, "zero3": every and not kept_whole}, f"{said}, {between}"


def _in_parts(parameter: DTensor) -> bool:
    return any(placement.is_shard() for placement in parameter.placements)


def bucket_layout(model: nn.Module) -> tuple[Bucket, ...]:
    """Buckets of a DDP model in order of reduction, as its reducer reports them; empty without DDP.

    The reducer lays its buckets out anew after the first backward pass, in the order in which gradients became ready.
    """
    wrapped = getattr(model, "_orig_mod", model)
    if not isinstance(wrapped, DistributedDataParallel):
        return ()
    return parse_layout(wrapped._get_ddp_logging_data())  # type: ignore[no-untyped-call]  # untyped in torch


def parse_layout(logging_data: Mapping[str, Any]) -> tuple[Bucket, ...]:
    """Buckets named in DDP's logging data.

    >>> parse_layout({"rebuilt_bucket_sizes": "400, 80", "rebuilt_per_bucket_param_indices": "3 2, 1"})
    (Bucket(size_bytes=400, parameters=2), Bucket(size_bytes=80, parameters=1))
    """
    rebuilt = str(logging_data.get("rebuilt_bucket_sizes", ""))
    if not rebuilt:
        return ()
    members = str(logging_data["rebuilt_per_bucket_param_indices"]).split(",")
    return tuple(
        Bucket(size_bytes=int(size), parameters=len(indices.split()))
        for size, indices in zip(rebuilt.split(","), members, strict=True)
    )
