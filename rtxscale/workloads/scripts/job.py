"""What a rank hands to somebody's own training code: where it runs, what is under test, and how to communicate.

Small on purpose: it is an interface that other people's code is written against. Made by `scripts.script`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from rtxscale.nccl.attest import Attested, Verdict
from rtxscale.spec.script import ScriptWorkload
from rtxscale.workloads.files.script import ScriptError
from rtxscale.workloads.protocol import Bucket, Context
from rtxscale.workloads.training.parallel import bucket_layout, data_parallel
from rtxscale.workloads.training.precision import autocast


class Job:
    """One trial, as training code sees it.

    `device` is this rank's; `rank` counts from 0 to `world` - 1. `batch_per_gpu` is the batch that the study asks of
    each rank, `precision` and `options` are the sweep file's, `bucket_mib` is DDP's bucket under test (None: its own).
    """

    def __init__(self, context: Context, workload: ScriptWorkload) -> None:
        """See the trial through its context."""
        self.device: torch.device = context.device
        self.rank: int = context.rank
        self.world: int = context.world
        self.batch_per_gpu: int = batch_of(workload, context.world)
        self.precision: str = workload.precision
        self.bucket_mib: float | None = context.bucket_mib
        self.options: Mapping[str, bool | int | float | str] = MappingProxyType(workload.options.model_dump())
        self._context = context
        self._wrapped: list[nn.Module] = []
        self._handed_out = False

    @property
    def group(self) -> dist.ProcessGroup | None:
        """The trial's process group, which has the NCCL settings under test; None at one worker.

        The default group is rtxscale's own, for its control, and always Gloo.
        """
        self._handed_out = True
        return self._context.group

    def wrap(self, model: nn.Module, **options: Any) -> nn.Module:
        """The model under DDP on the trial's group with the bucket under test; the model itself at one worker.

        `options` are DDP's own, such as `find_unused_parameters=True`.

        Raises:
            ScriptError: where weights are not on the job's kind of device.
        """
        elsewhere = {
            str(parameter.device) for parameter in model.parameters() if parameter.device.type != self.device.type
        }
        if elsewhere:
            raise ScriptError(
                f"job.wrap was given weights on {', '.join(sorted(elsewhere))}, the job's device is {self.device}: "
                "call model.to(job.device) before job.wrap(model)"
            )
        wrapped = data_parallel(model, self._context, **options)
        self._wrapped.append(wrapped)
        return wrapped

    def autocast(self) -> torch.autocast:
        """The autocast region of the precision asked for; without effect for fp32 and tf32."""
        return autocast(self.precision, self.device)

    def buckets(self) -> tuple[Bucket, ...]:
        """Gradient buckets of every model that was wrapped."""
        return tuple(bucket for model in self._wrapped for bucket in bucket_layout(model))

    def attest_group(self) -> Attested:
        """Whether the code can have communicated over the trial's own group; over another, no setting is under test."""
        if self.world < 2:
            observed, verdict = "one rank: there is none", Verdict.NOT_APPLICABLE
        elif self._wrapped:
            observed, verdict = f"DDP on it, models wrapped: {len(self._wrapped)}", Verdict.HONOURED
        elif self._handed_out:
            observed, verdict = "handed to the code", Verdict.NOT_ATTESTED
        else:
            observed, verdict = "neither job.wrap nor job.group was used", Verdict.REFUTED
        return Attested(
            subject="workload.group",
            requested="the trial's process group",
            observed=observed,
            verdict=verdict,
            evidence="what the code asked its job for",
        )


def batch_of(workload: ScriptWorkload, world: int) -> int:
    """Samples per rank and step."""
    return workload.batch_per_gpu or (workload.global_batch or world) // world
