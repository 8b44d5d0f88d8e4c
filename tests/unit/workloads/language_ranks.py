"""Two ranks on Gloo that train a tiny decoder in several ways and write down what they saw; started by torchrun."""

import json
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from made_context import made_context
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from rtxscale.spec.workload import LanguageWorkload
from rtxscale.workloads.language import Language

STEPS, MANY_STEPS = 6, 20
TINY = {"kind": "language", "size": "tiny", "context": 32, "precision": "fp32"}
LORA = {"tuning": "lora", "lora_rank": 4}
FOLLOWED_LONG = ("ddp", "fsdp", "zero1", "zero2", "zero3")
CASES = {
    "ddp": {"batch_per_gpu": 2},
    "ddp again": {"batch_per_gpu": 2},
    "fsdp": {"batch_per_gpu": 2, "parallel": "fsdp"},
    "fsdp, weights kept whole": {"batch_per_gpu": 2, "parallel": "fsdp", "reshard_after_forward": False},
    "fsdp, checkpointing": {"batch_per_gpu": 2, "parallel": "fsdp", "checkpointing": "on"},
    "ddp, checkpointing": {"batch_per_gpu": 2, "checkpointing": "on"},
    "ddp, accumulation": {"batch_per_gpu": 1, "accumulation": 2},
    "fsdp, accumulation": {"batch_per_gpu": 1, "accumulation": 2, "parallel": "fsdp"},
    "ddp, bf16": {"batch_per_gpu": 2, "precision": "bf16"},
    "fsdp, bf16": {"batch_per_gpu": 2, "precision": "bf16", "parallel": "fsdp"},
    "ddp, global batch": {"global_batch": 4},
    "zero1": {"batch_per_gpu": 2, "parallel": "zero1"},
    "zero2": {"batch_per_gpu": 2, "parallel": "zero2"},
    "zero3": {"batch_per_gpu": 2, "parallel": "zero3"},
    "zero1, accumulation": {"batch_per_gpu": 1, "accumulation": 2, "parallel": "zero1"},
    "zero2, accumulation": {"batch_per_gpu": 1, "accumulation": 2, "parallel": "zero2"},
    "lora": {"batch_per_gpu": 2, **LORA},
    "lora, zero1": {"batch_per_gpu": 2, "parallel": "zero1", **LORA},
    "lora, zero2": {"batch_per_gpu": 2, "parallel": "zero2", **LORA},
    "lora, zero3": {"batch_per_gpu": 2, "parallel": "zero3", **LORA},
    "lora, bf16": {"batch_per_gpu": 2, **LORA, "precision": "bf16"},
    "lora, bf16, zero3": {"batch_per_gpu": 2, "parallel": "zero3", **LORA, "precision": "bf16"},
}


def count_reductions(running, group):
    """A list that grows by one with every bucket that DDP reduces."""
    seen = []

    def reduce(state, bucket):
        seen.append(bucket.index())
        return allreduce_hook(state, bucket)

    if isinstance(running._wrapped, DistributedDataParallel):
        running._wrapped.register_comm_hook(group, reduce)
    return seen


def states_here(optimizer):
    """Numbers of AdamW's two states that lie on this rank."""
    states = getattr(optimizer, "optim", optimizer).state.values()
    tensors = [state[name] for state in states for name in ("exp_avg", "exp_avg_sq")]
    return sum((t.to_local() if isinstance(t, DTensor) else t).numel() for t in tensors)


def trained(fields, context, steps):
    """Mean losses over the ranks step by step, what was attested, and this rank's share of the parameters."""
    place = context(TINY | fields)
    running = Language().prepare(place)
    reductions = count_reductions(running, place.group)
    losses = []
    for _ in range(steps):
        running.step()
        losses.append(running.loss())
    shares = [None] * dist.get_world_size()
    dist.all_gather_object(shares, losses)
    states = [None] * dist.get_world_size()
    dist.all_gather_object(states, states_here(running._updates.optimizer))
    parameters = list(running._wrapped.parameters())
    own = sum((p.to_local() if isinstance(p, DTensor) else p).numel() for p in parameters)
    seen = {
        "losses": [sum(step) / len(step) for step in zip(*shares, strict=True)],
        "by_rank": shares,
        "attested": {row.subject: [row.observed, str(row.verdict)] for row in running.attest()},
        "work": running.work_per_step,
        "states": states,
        "share": own / sum(p.numel() for p in parameters),
        "buckets": len(running.buckets()),
        "reductions": len(reductions),
    }
    running._score(torch.zeros(1, 8, dtype=torch.long), torch.ones(1))  # under FSDP this leaves weights gathered
    running.restart(0)
    seen["restarted"] = []
    for _ in range(STEPS):
        running.step()
        seen["restarted"].append(running.loss())
    running.close()
    running.close()
    return seen


def main():
    """Run every case in one warm process, as a session does."""
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    group = dist.new_group(backend="gloo")
    kept = {}

    def context(fields):
        return made_context(
            LanguageWorkload.model_validate(fields),
            rank=dist.get_rank(),
            world=dist.get_world_size(),
            group=group,
            kept=kept,
        )

    seen = {
        name: trained(fields, context, MANY_STEPS if name in FOLLOWED_LONG else STEPS) for name, fields in CASES.items()
    }
    if dist.get_rank() == 0:
        Path(sys.argv[1]).write_text(json.dumps(seen))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
