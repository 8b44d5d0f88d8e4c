"""Training of a decoder, or of LoRA's adapters on one, with AdamW: on random tokens that stay, or on a loader's.

Not a quality benchmark: every trial starts from the same weights. A model that is whole on each
rank is built once per session and filled anew for each trial; a sharded one is built anew. Caller: `registry`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from rtxscale.models.memory import SHARDED, reshards
from rtxscale.models.shapes import SIZES
from rtxscale.nccl.attest import Attested
from rtxscale.spec.workload import LanguageWorkload
from rtxscale.workloads import decoder
from rtxscale.workloads.adapters import add_adapters, attest_tuning
from rtxscale.workloads.apart import DdpApart, apart
from rtxscale.workloads.attention import attention_kernel, attest_attention, kernels_in
from rtxscale.workloads.compilation import attest_compile, begin_step, forget_compiled
from rtxscale.workloads.datasets import token_sets
from rtxscale.workloads.evaluation import Evaluation, evaluated
from rtxscale.workloads.float8 import attest_float8, multiply_in_float8
from rtxscale.workloads.loading import Batches, Loaded, OnDevice, attest_data
from rtxscale.workloads.parallel import (
    attest_parallel,
    bucket_layout,
    data_parallel,
    fully_sharded,
    is_gathered,
    zero_redundancy,
)
from rtxscale.workloads.precision import AUTOCAST, attest_precision, autocast, set_precision
from rtxscale.workloads.protocol import Bucket, Context
from rtxscale.workloads.resident import Resident, give_up, resident
from rtxscale.workloads.updates import Updates

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
        model = _sharded_model(workload, context) if _is_sharded(workload, context) else _whole_model(workload, context)
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
        batch = batch_of(workload, context)
        self.work_per_step: float | None = float(batch * workload.context * self._micro_steps)
        self._sets = None if workload.data == "resident" else token_sets(workload)
        self._batches: Batches = (
            OnDevice(draw_tokens(workload, context))
            if self._sets is None
            else Loaded(self._sets.training, workload, context, batch)
        )
        sharded = _is_sharded(workload, context)
        self._wrapped = model if sharded else data_parallel(model, context)
        # Blocks of a sharded model are compiled one by one, inside the hooks that gather them.
        compiled = workload.compile != "off" and not sharded
        self._model: Any = torch.compile(self._wrapped, mode=workload.compile) if compiled else self._wrapped
        scaled = workload.precision == "fp16"
        self._optimizer: Any = _optimizer(workload, context, model, fused=not scaled)
        self._updates = Updates(self._optimizer)
        self._scaler = torch.amp.GradScaler(context.device.type, enabled=scaled)
        self._loss: torch.Tensor | None = None
        self._output_dtype: torch.dtype | None = None
        self._kernels: tuple[str, ...] | None = None
        self._first_block: Any = model.model.layers[0] if sharded else None
        self._kept_whole: bool | None = None
        self._counter = None if workload.compile != "off" else decoder.ForwardCounter(model)

    def step(self) -> float:
        """All micro-steps and one update; the seconds waited for the loader, which resident tokens do without."""
        begin_step(self._workload.compile)
        losses = []
        with attention_kernel(self._workload.attention):
            for place in range(1, self._micro_steps + 1):
                tokens = self._batches.take()
                with self._reduction(last=place == self._micro_steps):
                    losses.append(self._micro_step(tokens))
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._updates.step()
        self._optimizer.zero_grad(set_to_none=True)
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
        bare = getattr(self._wrapped, "module", self._wrapped)
        with attention_kernel(self._workload.attention), autocast(self._workload.precision, self._device):
            logits = bare(input_ids=tokens, use_cache=False).logits
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
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]  # untyped in torch
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
        """Precision, attention kernel, checkpointing, what is trained, spreading and compilation."""
        passes = None if self._counter is None else self._counter.passes
        in_float8 = self._workload.precision == "fp8" and self._model is not None
        rows = [
            attest_float8(self._wrapped)
            if in_float8
            else attest_precision(self._workload.precision, self._output_dtype, self._device),
            attest_attention(self._workload.attention, self._kernels or (), stepped=self._loss is not None),
            decoder.attest_checkpointing(self._workload.checkpointing, passes, self._micro_steps),
            attest_data(self._workload, self._sets, self._batches),
        ]
        if self._model is not None:
            rows.append(attest_tuning(self._workload, self._wrapped))
            rows.append(
                attest_parallel(
                    self._workload.parallel,
                    self._model,
                    self._world,
                    optimizer=self._optimizer,
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
        if self._optimizer is not None:
            self._optimizer.zero_grad(set_to_none=True)
        if self._counter is not None:
            self._counter.stop()
        self._optimizer = self._model = self._wrapped = self._first_block = self._loss = None
        self._batches.close()
        if self._workload.compile != "off":
            forget_compiled()


def _is_sharded(workload: LanguageWorkload, context: Context) -> bool:
    """Whether there is anybody to share with; one worker trains the whole model."""
    return workload.parallel in SHARDED and context.group is not None


def _optimizer(workload: LanguageWorkload, context: Context, model: Any, *, fused: bool) -> torch.optim.Optimizer:
    """AdamW for what is trained; under zero1 each rank keeps the states of its share of it."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    # Like SGD's, the fused step is not trusted with gradients that the scaler finds overflowing.
    settings: dict[str, Any] = {"lr": LEARNING_RATE, "betas": BETAS, "weight_decay": WEIGHT_DECAY, "fused": fused}
    if workload.parallel == "zero1" and context.group is not None:
        return zero_redundancy(trained, context.group, torch.optim.AdamW, **settings)
    return torch.optim.AdamW(trained, **settings)


def _bare_model(workload: LanguageWorkload, device: torch.device) -> Any:
    """The architecture without memory, with its adapters where only they are trained."""
    with torch.device("meta"):
        model = decoder.build_decoder(SIZES[workload.size])
        if workload.tuning != "full":
            add_adapters(model, workload)
        if workload.precision == "fp8":
            multiply_in_float8(model, device)
    return model


def _form(workload: LanguageWorkload) -> tuple[str, ...]:
    """What the kept model is: beside its size, which adapters it has and how its base is kept."""
    if workload.tuning == "full":
        return (*workload.identity, "fp8") if workload.precision == "fp8" else workload.identity
    adapters = (workload.lora_rank, workload.lora_alpha, *sorted(workload.lora_targets))
    return (*workload.identity, workload.tuning, *map(str, adapters), str(AUTOCAST.get(workload.precision)))


def _whole_model(workload: LanguageWorkload, context: Context) -> Any:
    """The session's model with its first weights."""

    def build() -> Resident:
        bare = _bare_model(workload, context.device)
        decoder.materialise(bare, context.device)
        return Resident(identity=_form(workload), model=bare)

    model = resident(context, _form(workload), build).model
    model.zero_grad(set_to_none=True)
    decoder.set_checkpointing(model, workload.checkpointing == "on")
    decoder.set_attention(model, workload.attention)
    decoder.fill(model, context.device, seed=context.seed)
    return model


def _sharded_model(workload: LanguageWorkload, context: Context) -> Any:
    """A new model, sharded before it takes up memory; a whole one that the session kept is given up for it.

    Raises:
        ValueError: there is only one worker.
    """
    if context.group is None:
        raise ValueError(f"found {context.world} worker; FSDP shards over at least 2 workers")
    give_up(context)
    model = _bare_model(workload, context.device)
    decoder.set_checkpointing(model, workload.checkpointing == "on")
    decoder.set_attention(model, workload.attention)
    blocks = list(model.model.layers)
    if workload.compile != "off":
        for block in blocks:
            block.compile(mode=workload.compile)
    fully_sharded(
        model,
        blocks,
        context.group,
        device=context.device,
        block_dtype=AUTOCAST.get(workload.precision),
        reshard_after_forward=reshards(workload.parallel, reshard_after_forward=workload.reshard_after_forward),
    )
    decoder.materialise(model, context.device)
    decoder.fill(model, context.device, seed=context.seed)
    return model


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
    vocab, shape = SIZES[workload.size].vocab, (context.world * own, workload.context)
    tokens = torch.randint(vocab, shape, device=context.device, generator=generator)
    mine = tokens[context.rank * own : (context.rank + 1) * own].clone()
    return torch.split(mine, batch)
