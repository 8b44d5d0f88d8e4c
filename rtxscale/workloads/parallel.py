"""How a model is spread over ranks, and what that really built: DDP and its bucket layout.

Not a training loop. Callers: the workloads that train a model. FSDP and ZeRO will stand beside DDP here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

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
