"""Training of a decoder, or of LoRA's adapters on one, with AdamW: on random tokens that stay, or on a loader's.

Not a quality benchmark: every trial starts from the same weights. Caller: `registry`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from rtxscale.nccl.attest import Attested
from rtxscale.spec.workload import LanguageWorkload
from rtxscale.workloads.data.loading import Batches, Loaded, OnDevice, attest_data
from rtxscale.workloads.data.sets import token_sets
from rtxscale.workloads.files.model import vocab_of
from rtxscale.workloads.inputs import attest_directory
from rtxscale.workloads.networks import decoder
from rtxscale.workloads.networks.adapters import attest_tuning
from rtxscale.workloads.networks.attention import attention_kernel, attest_attention, kernels_in
from rtxscale.workloads.networks.float8 import attest_float8
from rtxscale.workloads.networks.language_model import is_sharded, refill, sharded_model, whole_model
from rtxscale.workloads.networks.local_decoder import attest_model
from rtxscale.workloads.protocol import Bucket, Context
from rtxscale.workloads.training.apart import DdpApart, apart
from rtxscale.workloads.training.compilation import attest_compile, begin_step, forget_compiled
from rtxscale.workloads.training.evaluation import Evaluation, evaluated
from rtxscale.workloads.training.parallel import (
    attest_parallel,
    bucket_layout,
    data_parallel,
    is_gathered,
    zero_redundancy,
)
from rtxscale.workloads.training.precision import attest_precision, autocast, set_precision
from rtxscale.workloads.training.schedule import rate_of
from rtxscale.workloads.training.updates import Updates

LEARNING_RATE = 3e-4
BETAS = (0.9, 0.95)
WEIGHT_DECAY = 0.1


class Language:
    """Implements `kind: language`."""

    def prepare(self, context: Context) -> LanguageTraining:
        """Build or reuse the model, fill, spread and compile it, and put the tokens on the device."""
        workload = context.workload
        if not isinstance(workload, LanguageWorkload):
            raise TypeError(f"found workload {workload.kind}, expected language")
        set_precision(workload.precision)
        if workload.compile != "off":
            forget_compiled()
        model = sharded_model(workload, context) if is_sharded(workload, context) else whole_model(workload, context)
        return LanguageTraining(workload, context, model.train())


class LanguageTraining:
    """A decoder in training; see `protocol.Running`."""

    unit = "token"

    def __init__(self, workload: LanguageWorkload, context: Context, model: Any) -> None:
        """Wrap the model and draw this rank's tokens."""
        self._workload = workload
        self._device = context.device
        self._world = context.world
        self._context = context
        self._micro_steps = workload.accumulation
        self.work_per_step: float | None = float(batch_of(workload, context) * workload.context * self._micro_steps)
        self._sets = None if workload.data == "resident" else token_sets(workload)
        sharded = is_sharded(workload, context)
        self._bare = model
        self._wrapped = model if sharded else data_parallel(model, context)
        # Blocks of a sharded model are compiled one by one, inside the hooks that gather them.
        compiled = workload.compile != "off" and not sharded
        self._model: Any = torch.compile(self._wrapped, mode=workload.compile) if compiled else self._wrapped
        self._output_dtype: torch.dtype | None = None
        self._kernels: tuple[str, ...] | None = None
        self._first_block: Any = model.model.layers[0] if sharded else None
        self._kept_whole: bool | None = None
        self._counter = None if workload.compile != "off" else decoder.ForwardCounter(model)
        self._begin(context)

    def _begin(self, context: Context) -> None:
        """The first batch and the first update, for weights that are the first ones already."""
        workload = self._workload
        self._batches: Batches = (
            OnDevice(draw_tokens(workload, context))
            if self._sets is None
            else Loaded(self._sets.training, workload, context, batch_of(workload, context))
        )
        scaled = workload.precision == "fp16"
        optimizer = _optimizer(workload, context, self._bare, fused=not scaled)
        self._updates = Updates(optimizer, workload, self._device, scaled=scaled)
        self._loss: torch.Tensor | None = None

    def restart(self, seed: int) -> None:
        """Begin again from this seed's weights and order of tokens; see `protocol.Restartable`."""
        self._updates.close()
        self._batches.close()
        context = replace(self._context, seed=seed)
        refill(self._bare, self._workload, context)
        self._begin(context)

    def step(self) -> float:
        """All micro-steps and one update; the seconds waited for the loader, which resident tokens do without."""
        begin_step(self._workload.compile)
        losses = []
        with attention_kernel(self._workload.attention):
            for place in range(1, self._micro_steps + 1):
                tokens = self._batches.take()
                with self._reduction(last=place == self._micro_steps):
                    losses.append(self._micro_step(tokens))
        self._updates.step()
        self._loss = losses[0] if len(losses) == 1 else torch.stack(losses).sum()
        if self._counter is not None:
            self._counter.stop()
        return self._batches.waited_s()

    @property
    def skipped_steps(self) -> int:
        """Steps so far whose update gradient scaling skipped."""
        return self._updates.skipped

    def evaluate(self, samples: int) -> Evaluation:
        """This rank's part of the held-out sequences; ranks of a sharded model gather its weights together.

        Raises:
            ValueError: nothing is held out.
        """
        if self._sets is None or self._sets.held_out is None:
            raise ValueError(f"found data {self._workload.data}, of which nothing is held out; expected text or tokens")
        batch = batch_of(self._workload, self._context)
        return evaluated(self._sets.held_out, self._context, samples=samples, batch=batch, score=self._score)

    @torch.no_grad()
    def _score(self, tokens: torch.Tensor, weights: torch.Tensor) -> Evaluation:
        tokens = tokens.to(self._device)
        with attention_kernel(self._workload.attention), autocast(self._workload.precision, self._device):
            logits = self._bare(input_ids=tokens, use_cache=False).logits
        per_token = functional.cross_entropy(logits[:, :-1].float().transpose(1, 2), tokens[:, 1:], reduction="none")
        return Evaluation(samples=float(weights.sum()), loss=float((per_token.mean(dim=1) * weights).sum()))

    def _reduction(self, *, last: bool) -> AbstractContextManager[Any]:
        """DDP adds gradients up locally until the last micro-step.

        FSDP reduces after each one: between micro-steps it would otherwise keep the gradients of the whole model.
        """
        if last or not isinstance(self._wrapped, DistributedDataParallel):
            return nullcontext()
        silent: Callable[[], AbstractContextManager[Any]] = self._wrapped.no_sync
        return silent()

    def _micro_step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Forward and backward; this micro-batch's part of the step's loss."""
        loss = self._part_of_loss(tokens)
        if self._kernels is None:
            self._kernels = kernels_in(loss)
        self._updates.backward(loss)
        return loss.detach()

    def _part_of_loss(self, tokens: torch.Tensor) -> torch.Tensor:
        """Cross entropy of the next token over the number of micro-steps; the logits are let go before backward."""
        with autocast(self._workload.precision, self._device):
            output = self._model(input_ids=tokens, labels=tokens, use_cache=False)
        self._output_dtype = output.logits.dtype
        if self._first_block is not None and self._kept_whole is None:
            self._kept_whole = is_gathered(self._first_block)
        loss: torch.Tensor = output.loss
        return loss / self._micro_steps if self._micro_steps > 1 else loss

    def loss(self) -> float | None:
        """Mean cross entropy over the micro-steps of the latest step."""
        return None if self._loss is None else float(self._loss)

    def buckets(self) -> tuple[Bucket, ...]:
        """DDP's bucket layout; none under FSDP."""
        return bucket_layout(self._model)

    def attest(self) -> tuple[Attested, ...]:
        """Precision, attention kernel, checkpointing, data, schedule, what is trained, spreading and compilation."""
        passes = None if self._counter is None else self._counter.passes
        in_float8 = self._workload.precision == "fp8" and self._model is not None
        rows = [
            attest_float8(self._wrapped, self._workload.fp8_library)
            if in_float8
            else attest_precision(self._workload.precision, self._output_dtype, self._device),
            attest_attention(self._workload.attention, self._kernels or (), stepped=self._loss is not None),
            decoder.attest_checkpointing(self._workload.checkpointing, passes, self._micro_steps),
            attest_data(self._workload, self._sets, self._batches),
            self._updates.schedule.attest(),
            *attest_model(self._workload),
            *attest_directory(self._workload),
        ]
        if self._model is not None:
            rows.append(attest_tuning(self._workload, self._wrapped))
            rows.append(
                attest_parallel(
                    self._workload.parallel,
                    self._model,
                    self._world,
                    optimizer=self._updates.optimizer,
                    kept_whole=self._kept_whole,
                )
            )
        if self._workload.compile != "off":
            rows.append(attest_compile(self._workload.compile))
        return tuple(rows)

    def apart(self) -> DdpApart | None:
        """DDP's steps without synchronisation; whatever shards the model or the optimizer has none."""
        return apart(self._wrapped, self._context) if self._workload.parallel == "ddp" else None

    def close(self) -> None:
        """Drop wrap, tokens, gradients, optimizer and compiled code; a whole bare model stays with the session."""
        self._updates.close()
        if self._counter is not None:
            self._counter.stop()
        self._model = self._wrapped = self._bare = self._first_block = self._loss = None
        self._batches.close()
        if self._workload.compile != "off":
            forget_compiled()


def _optimizer(workload: LanguageWorkload, context: Context, model: Any, *, fused: bool) -> torch.optim.Optimizer:
    """AdamW for what is trained; under zero1 each rank keeps the states of its share of it."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    # Like SGD's, the fused step is not trusted with gradients that the scaler finds overflowing.
    rate = rate_of(workload, LEARNING_RATE)
    settings: dict[str, Any] = {"lr": rate, "betas": BETAS, "weight_decay": WEIGHT_DECAY, "fused": fused}
    if workload.parallel == "zero1" and context.group is not None:
        return zero_redundancy(trained, context.group, torch.optim.AdamW, **settings)
    return torch.optim.AdamW(trained, **settings)


def batch_of(workload: LanguageWorkload, context: Context) -> int:
    """Sequences of this rank in a micro-step."""
    return workload.batch_per_gpu or (workload.global_batch or context.world) // context.world


def draw_tokens(workload: LanguageWorkload, context: Context) -> tuple[torch.Tensor, ...]:
    """This rank's random tokens, one (sequence, token) tensor per micro-step.

    The sequences of a step depend on their number alone, not on the ranks or micro-steps that share them.
    """
    batch = batch_of(workload, context)
    own = batch * workload.accumulation
    generator = torch.Generator(context.device).manual_seed(decoder.SEED)
    vocab, shape = vocab_of(workload), (context.world * own, workload.context)
    tokens = torch.randint(vocab, shape, device=context.device, generator=generator)
    mine = tokens[context.rank * own : (context.rank + 1) * own].clone()
    return torch.split(mine, batch)
