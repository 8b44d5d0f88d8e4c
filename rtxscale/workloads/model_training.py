"""A model of rtxscale's own in training, whatever the model: batches, micro-steps, updates, evaluation, restart.

What is particular to a kind of workload stays with it: `workloads.vision`, `language` and `diffusion` derive from
`ModelTraining` and say how a micro-batch becomes a loss, and what its first weights, batches and optimizer are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch.nn.parallel import DistributedDataParallel

from rtxscale.nccl.attest import Attested
from rtxscale.spec.workload import DiffusionWorkload, LanguageWorkload, VisionWorkload
from rtxscale.workloads.data.loading import Batches, Loaded
from rtxscale.workloads.data.sets import DataSets
from rtxscale.workloads.protocol import Bucket, Context
from rtxscale.workloads.training.apart import DdpApart, apart
from rtxscale.workloads.training.compilation import begin_step, forget_compiled, tell_caches
from rtxscale.workloads.training.evaluation import Evaluation, evaluated
from rtxscale.workloads.training.operators import Operators, repeated_calls
from rtxscale.workloads.training.parallel import bucket_layout, data_parallel
from rtxscale.workloads.training.precision import set_precision
from rtxscale.workloads.training.recomputation import Recomputation, attest_checkpointing
from rtxscale.workloads.training.updates import Updates

W = TypeVar("W", VisionWorkload, LanguageWorkload, DiffusionWorkload)


def make_ready(workload: VisionWorkload | LanguageWorkload | DiffusionWorkload) -> None:
    """What has to be so before a model is built: PyTorch's precision switches, and nothing left of older graphs."""
    set_precision(workload.precision)
    if workload.compile != "off":
        forget_compiled()
        tell_caches(f"attention={getattr(workload, 'attention', 'auto')}")


def batch_of(workload: VisionWorkload | LanguageWorkload | DiffusionWorkload, context: Context) -> int:
    """Samples of this rank in a micro-step."""
    return workload.batch_per_gpu or (workload.global_batch or context.world) // context.world


class ModelTraining(ABC, Generic[W]):
    """A model in training; see `protocol.Running`, `protocol.Restartable` and `evaluation.Evaluated`."""

    unit: str
    HELD_OUT: ClassVar[str]
    """Data of which something is held out, in words."""

    def __init__(
        self, workload: W, context: Context, model: Any, sets: DataSets | None, *, work_per_step: float, sharded: bool
    ) -> None:
        """Wrap and compile a model that has its first weights; `sharded`: it is spread, and compiled, already."""
        self._workload: W = workload
        self._context, self._device = context, context.device
        self.work_per_step: float | None = work_per_step
        self._bare: Any = model
        self._sets = sets
        self._micro_steps: int = getattr(workload, "accumulation", 1)
        self._wrapped: Any = model if sharded else data_parallel(model, context)
        compiled = workload.compile != "off"
        whole = compiled and not sharded
        self._model: Any = torch.compile(self._wrapped, mode=workload.compile) if whole else self._wrapped
        self._operators = Operators(compiled=compiled)
        self._recomputation = Recomputation(model)
        if compiled:
            self._recomputation.stop()
        self._output_dtype: torch.dtype | None = None
        self._begin(context)

    @abstractmethod
    def _optimizer(self, context: Context, *, fused: bool) -> torch.optim.Optimizer:
        """A new optimizer of what is trained."""

    @abstractmethod
    def _resident(self, context: Context) -> Batches:
        """Random batches that stay on the device."""

    @abstractmethod
    def _refill(self, context: Context) -> None:
        """Give the model its first weights, of the context's seed, and its buffers anew."""

    @abstractmethod
    def _micro_step(self, batch: Any) -> torch.Tensor:
        """Forward and backward; this micro-batch's part of the step's loss."""

    @abstractmethod
    def _score(self, batch: Any, weights: torch.Tensor) -> Evaluation:
        """How good the bare model is on a batch from the CPU, each sample with its weight (sample,); no gradients."""

    @abstractmethod
    def attest(self) -> tuple[Attested, ...]:
        """What was asked of the workload against what is really active."""

    def _around_step(self) -> AbstractContextManager[Any]:
        """What the forward and backward passes of a step run in."""
        return nullcontext()

    def _begin(self, context: Context) -> None:
        """The first batch and the first update, for weights that are the first ones already."""
        self._batches: Batches = (
            self._resident(context)
            if self._sets is None
            else Loaded(self._sets.training, self._workload, context, batch_of(self._workload, context))
        )
        scaled = self._workload.precision == "fp16"
        # The fused step is not trusted with gradients that the scaler finds overflowing: SGD's writes them into its
        # momentum when the scaler wants the step skipped (torch 2.14).
        optimizer = self._optimizer(context, fused=not scaled)
        self._updates = Updates(optimizer, self._workload, self._device, scaled=scaled)
        self._loss: torch.Tensor | None = None

    def restart(self, seed: int) -> None:
        """Begin again from this seed's weights and order of data."""
        self._updates.close()
        self._batches.close()
        context = replace(self._context, seed=seed)
        self._refill(context)
        self._begin(context)

    def step(self) -> float:
        """All micro-steps and one update; the seconds waited for the loader, which resident batches do without."""
        begin_step(self._workload.compile)
        losses = []
        with self._around_step(), self._operators.step():
            for place in range(1, self._micro_steps + 1):
                batch = self._batches.take()
                with self._reduction(last=place == self._micro_steps):
                    losses.append(self._micro_step(batch))
        self._updates.step()
        self._loss = losses[0] if len(losses) == 1 else torch.stack(losses).sum()
        self._recomputation.stop()
        return self._batches.waited_s()

    def _reduction(self, *, last: bool) -> AbstractContextManager[Any]:
        """DDP adds gradients up locally until the last micro-step.

        FSDP reduces after each one: between micro-steps it would otherwise keep the gradients of the whole model.
        """
        if last or not isinstance(self._wrapped, DistributedDataParallel):
            return nullcontext()
        silent: Callable[[], AbstractContextManager[Any]] = self._wrapped.no_sync
        return silent()

    def _backward(self, loss: torch.Tensor) -> None:
        """Gradients of a micro-batch's part of the loss."""
        with self._recomputation.backward(), self._operators.backward():
            self._updates.backward(loss)

    def _part(self, loss: torch.Tensor) -> torch.Tensor:
        """What a micro-batch's mean loss adds to the step's."""
        return loss / self._micro_steps if self._micro_steps > 1 else loss

    @property
    def skipped_steps(self) -> int:
        """Steps so far whose update gradient scaling skipped."""
        return self._updates.skipped

    def loss(self) -> float | None:
        """Mean loss over the micro-steps of the latest step."""
        return None if self._loss is None else float(self._loss)

    def evaluate(self, samples: int) -> Evaluation:
        """This rank's part of the held-out samples, by the bare model with this rank's buffers.

        Ranks of a sharded model gather its weights together.

        Raises:
            ValueError: nothing is held out.
        """
        if self._sets is None or self._sets.held_out is None:
            raise ValueError(
                f"found data {self._workload.data}, of which nothing is held out; expected {self.HELD_OUT}"
            )
        batch = batch_of(self._workload, self._context)
        self._bare.eval()
        found = evaluated(self._sets.held_out, self._context, samples=samples, batch=batch, score=self._score)
        self._bare.train()
        return found

    def _attest_checkpointing(self) -> Attested:
        """Whether the step that was watched recomputed activations."""
        calls = repeated_calls(self._operators.calls, self._operators.in_backward)
        return attest_checkpointing(self._workload.checkpointing, self._recomputation.repeated(), calls)

    def buckets(self) -> tuple[Bucket, ...]:
        """DDP's bucket layout; none under FSDP."""
        return bucket_layout(self._model)

    def apart(self) -> DdpApart | None:
        """DDP's steps without synchronisation; FSDP has none."""
        return apart(self._wrapped, self._context)

    def close(self) -> None:
        """Drop wrap, batches, gradients, optimizer and compiled code; a whole bare model stays with the session."""
        self._updates.close()
        self._recomputation.stop()
        self._model = self._wrapped = self._bare = self._loss = None
        self._batches.close()
        if self._workload.compile != "off":
            forget_compiled()
