"""How a model is spread over ranks, and what that really built: DDP and its bucket layout, FSDP and its shards.

Not a training loop. Callers: the workloads that train a model. ZeRO will stand beside them here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from rtxscale.nccl.attest import Attested, Verdict
from rtxscale.workloads.protocol import Bucket, Context


def data_parallel(model: nn.Module, context: Context) -> nn.Module:
    """The model under DDP on the context's process group; the bare model at one worker.

    `bucket_cap_mb` counts in MiB in spite of its name.
    """
    if context.group is None:
        return model
    device_ids = None if context.device.index is None else [context.device.index]
    return DistributedDataParallel(
        model, device_ids=device_ids, process_group=context.group, bucket_cap_mb=context.bucket_mib
    )


def fully_sharded(
    model: nn.Module,
    blocks: Iterable[nn.Module],
    group: dist.ProcessGroup,
    *,
    device: torch.device,
    block_dtype: torch.dtype | None,
    reshard_after_forward: bool,
) -> None:
    """Shard the model in place with FSDP2: each block by itself, the rest as one group. Once in a model's life.

    Blocks are gathered in `block_dtype`, everything else and all gradients in fp32, and inputs are left as they are, so
    that a step computes what it does under DDP and autocast.
    """
    mesh = DeviceMesh.from_group(group, device.type)
    policy = MixedPrecisionPolicy(param_dtype=block_dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
    for block in blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard_after_forward)
    fully_shard(model, mesh=mesh)


@torch.no_grad()
def assign(parameter: nn.Parameter, whole: torch.Tensor) -> None:
    """Give a parameter its values from the whole tensor: all of them, or this rank's shard."""
    if isinstance(parameter, DTensor):
        own = distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)
        parameter.to_local().copy_(own.to_local())
    else:
        parameter.copy_(whole)


def attest_parallel(requested: str, model: nn.Module, world: int) -> Attested:
    """How the model is spread, seen from its wrap and from where its parameters lie."""
    wrapped = getattr(model, "_orig_mod", model)
    parameters = list(wrapped.parameters())
    sharded = sum(isinstance(parameter, DTensor) for parameter in parameters)
    if isinstance(wrapped, DistributedDataParallel):
        kind, observed = "ddp", "ddp"
    elif sharded:
        kind = "fsdp" if sharded == len(parameters) else "partly sharded"
        observed = f"{kind}, {sharded} of {len(parameters)} parameters sharded"
    else:
        kind, observed = "none", "one whole model"
    verdict = Verdict.HONOURED if kind == requested else Verdict.REFUTED
    return Attested(
        subject="workload.parallel",
        requested=requested,
        observed=observed,
        verdict=verdict if world > 1 else Verdict.NOT_APPLICABLE,
        evidence="type of the wrap and of the parameters",
    )


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
