"""Training of a decoder, or of LoRA's adapters on one, with AdamW: on random tokens that stay, or on a loader's.

Not a quality benchmark: every trial starts from the same weights. Caller: `registry`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.nn import functional

from rtxscale.nccl.attest import Attested
from rtxscale.spec.workload import LanguageWorkload
from rtxscale.workloads.data.loading import OnDevice, attest_data
from rtxscale.workloads.data.sets import token_sets
from rtxscale.workloads.files.model import vocab_of
from rtxscale.workloads.inputs import attest_directory
from rtxscale.workloads.model_training import ModelTraining, batch_of, make_ready
from rtxscale.workloads.networks import decoder
from rtxscale.workloads.networks.adapters import attest_tuning
from rtxscale.workloads.networks.attention import attention_kernel, attest_attention, kernels_in
from rtxscale.workloads.networks.float8 import attest_float8
from rtxscale.workloads.networks.language_model import is_sharded, refill, sharded_model, whole_model
from rtxscale.workloads.networks.local_decoder import attest_model
from rtxscale.workloads.protocol import Context
from rtxscale.workloads.training.apart import DdpApart, apart
from rtxscale.workloads.training.compilation import attest_compile
from rtxscale.workloads.training.evaluation import Evaluation
from rtxscale.workloads.training.parallel import (
    attest_parallel,
    is_gathered,
    zero_redundancy,
)
from rtxscale.workloads.training.precision import attest_precision, autocast
from rtxscale.workloads.training.schedule import rate_of

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
        make_ready(workload)
        model = sharded_model(workload, context) if is_sharded(workload, context) else whole_model(workload, context)
        return LanguageTraining(workload, context, model.train())


class LanguageTraining(ModelTraining[LanguageWorkload]):
    """A decoder in training."""

    unit = "token"
    HELD_OUT = "text or tokens"

    def __init__(self, workload: LanguageWorkload, context: Context, model: Any) -> None:
        """Wrap the model and draw this rank's tokens."""
        tokens = batch_of(workload, context) * workload.context * workload.accumulation
        sets = None if workload.data == "resident" else token_sets(workload)
        sharded = is_sharded(workload, context)
        super().__init__(workload, context, model, sets, work_per_step=float(tokens), sharded=sharded)
        self._kernels: tuple[str, ...] | None = None
        self._first_block: Any = model.model.layers[0] if sharded else None
        self._kept_whole: bool | None = None

    def _optimizer(self, context: Context, *, fused: bool) -> torch.optim.Optimizer:
        """AdamW for what is trained; under zero1 each rank keeps the states of its share of it."""
        trained = [parameter for parameter in self._bare.parameters() if parameter.requires_grad]
        rate = rate_of(self._workload, LEARNING_RATE)
        settings: dict[str, Any] = {"lr": rate, "betas": BETAS, "weight_decay": WEIGHT_DECAY, "fused": fused}
        if self._workload.parallel == "zero1" and context.group is not None:
            return zero_redundancy(trained, context.group, torch.optim.AdamW, **settings)
        return torch.optim.AdamW(trained, **settings)

    def _resident(self, context: Context) -> OnDevice:
        return OnDevice(draw_tokens(self._workload, context))

    def _refill(self, context: Context) -> None:
        refill(self._bare, self._workload, context)

    def _around_step(self) -> AbstractContextManager[Any]:
        return attention_kernel(self._workload.attention)

    @torch.no_grad()
    def _score(self, batch: Any, weights: torch.Tensor) -> Evaluation:
        tokens = batch.to(self._device)
        with attention_kernel(self._workload.attention), autocast(self._workload.precision, self._device):
            logits = self._bare(input_ids=tokens, use_cache=False).logits
        per_token = functional.cross_entropy(logits[:, :-1].float().transpose(1, 2), tokens[:, 1:], reduction="none")
        return Evaluation(samples=float(weights.sum()), loss=float((per_token.mean(dim=1) * weights).sum()))

    def _micro_step(self, batch: Any) -> torch.Tensor:
        loss = self._part_of_loss(batch)
        if self._kernels is None:
            self._kernels = kernels_in(loss)
        self._backward(loss)
        return loss.detach()

    def _part_of_loss(self, tokens: torch.Tensor) -> torch.Tensor:
        """Cross entropy of the next token over the number of micro-steps; the logits are let go before backward."""
        with autocast(self._workload.precision, self._device):
            output = self._model(input_ids=tokens, labels=tokens, use_cache=False)
        self._output_dtype = output.logits.dtype
        if self._first_block is not None and self._kept_whole is None:
            self._kept_whole = is_gathered(self._first_block)
        return self._part(output.loss)

    def attest(self) -> tuple[Attested, ...]:
        """Precision, attention kernel, checkpointing, data, schedule, what is trained, spreading and compilation."""
        in_float8 = self._workload.precision == "fp8" and self._model is not None
        rows = [
            attest_float8(self._wrapped, self._workload.fp8_library)
            if in_float8
            else attest_precision(self._workload.precision, self._output_dtype, self._device),
            self._attest_attention(),
            self._attest_checkpointing(),
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
                    self._context.world,
                    optimizer=self._updates.optimizer,
                    kept_whole=self._kept_whole,
                )
            )
        if self._workload.compile != "off":
            rows.append(attest_compile(self._workload.compile))
        return tuple(rows)

    def _attest_attention(self) -> Attested:
        """The kernel in the first micro-step's graph, or else among a compiled step's calls."""
        return attest_attention(self._workload.attention, self._kernels or (), self._operators.calls)

    def apart(self) -> DdpApart | None:
        """DDP's steps without synchronisation; whatever shards the model or the optimizer has none."""
        return apart(self._wrapped, self._context) if self._workload.parallel == "ddp" else None

    def close(self) -> None:
        """Let go of the block that was watched, too."""
        super().close()
        self._first_block = None


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
