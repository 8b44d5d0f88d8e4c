"""Training of the SDXL UNet with AdamW, on random latents that stay or on precomputed ones: the DDPM objective.

Not a quality benchmark: every trial starts from the same random weights. No augmentation: latents are made before; the
noise schedule is SDXL's. Rows are training, never inference. Caller: `registry`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.nn import functional

from rtxscale.models.unets import UNETS
from rtxscale.nccl.attest import Attested, Verdict
from rtxscale.spec.workload import DiffusionWorkload
from rtxscale.workloads.data.latents import attest_augmentations, latent_sets
from rtxscale.workloads.data.loading import Batches, Loaded, OnDevice, attest_data
from rtxscale.workloads.inputs import attest_directory
from rtxscale.workloads.networks.noise import TIMESTEPS, noised, signal_shares
from rtxscale.workloads.networks.unet import blocks_of, build_unet, draw_batch, fill
from rtxscale.workloads.protocol import Bucket, Context
from rtxscale.workloads.training.apart import DdpApart, apart
from rtxscale.workloads.training.compilation import attest_compile, begin_step, compile_blocks, forget_compiled
from rtxscale.workloads.training.evaluation import Evaluation, evaluated
from rtxscale.workloads.training.parallel import attest_parallel, bucket_layout, data_parallel, fully_sharded, let_go
from rtxscale.workloads.training.precision import AUTOCAST, attest_precision, autocast, set_precision
from rtxscale.workloads.training.resident import Resident, give_up, resident
from rtxscale.workloads.training.schedule import rate_of
from rtxscale.workloads.training.updates import Updates

SEED = 4321
"""Of latents, noise and times; each rank has its own."""
RANKS = 4096
"""Seeds of ranks that lie between those of two trials."""
LEARNING_RATE = 1e-5
WEIGHT_DECAY = 1e-2


class Diffusion:
    """Implements `kind: diffusion`."""

    def prepare(self, context: Context) -> DiffusionTraining:
        """Build or reuse the model, fill, spread and compile it, and put the latents on the device."""
        workload = context.workload
        if not isinstance(workload, DiffusionWorkload):
            raise TypeError(f"found workload {workload.kind}, expected diffusion")
        set_precision(workload.precision)
        if workload.compile != "off":
            forget_compiled()
        make = _sharded_model if _is_sharded(workload, context) else _whole_model
        return DiffusionTraining(workload, context, make(workload, context).train())


class DiffusionTraining:
    """A UNet in training; see `protocol.Running`."""

    unit = "sample"

    def __init__(self, workload: DiffusionWorkload, context: Context, model: Any) -> None:
        """Wrap the model and draw this rank's batch."""
        device = context.device
        self.work_per_step: float | None = float(batch_of(workload, context))
        self._workload, self._device, self._world, self._bare = workload, device, context.world, model
        self._context = context
        sharded = _is_sharded(workload, context)
        wrapped = model if sharded else data_parallel(model, context)
        # Blocks of a sharded model are compiled one by one, inside the hooks that gather them.
        compiled = workload.compile != "off" and not sharded
        self._model: Any = torch.compile(wrapped, mode=workload.compile) if compiled else wrapped
        self._sets = None if workload.data == "resident" else latent_sets(workload)
        self._signal = signal_shares(device)
        self._output_dtype: torch.dtype | None = None
        self._begin(context)

    def _begin(self, context: Context) -> None:
        """The first batch, noise and update, for weights that are the first ones already."""
        workload, device = self._workload, self._device
        batch, seed = batch_of(workload, context), SEED + context.rank + RANKS * context.seed
        self._batches: Batches = (
            OnDevice([draw_batch(UNETS[workload.model], batch, workload.image_size, device, seed)])
            if self._sets is None
            else Loaded(self._sets.training, workload, context, batch)
        )
        self._chance = torch.Generator(device).manual_seed(seed)
        scaled = workload.precision == "fp16"
        # Like SGD's, the fused step is not trusted with gradients that the scaler finds overflowing.
        optimizer = torch.optim.AdamW(
            self._bare.parameters(), lr=rate_of(workload, LEARNING_RATE), weight_decay=WEIGHT_DECAY, fused=not scaled
        )
        self._updates = Updates(optimizer, workload, device, scaled=scaled)
        self._loss: torch.Tensor | None = None

    def restart(self, seed: int) -> None:
        """Begin again from this seed's weights, order of samples and noise; see `protocol.Restartable`."""
        self._updates.close()
        self._batches.close()
        let_go(self._bare)
        fill(self._bare, self._device, seed=seed)
        self._begin(replace(self._context, seed=seed))

    def step(self) -> float:
        """Noise latents to random times, predict the noise, update; the seconds waited for the loader."""
        begin_step(self._workload.compile)
        batch = self._batches.take()
        latents = batch["latents"].float()
        noise = torch.randn(latents.shape, device=self._device, generator=self._chance)
        times = torch.randint(TIMESTEPS, (latents.shape[0],), device=self._device, generator=self._chance)
        output = self._predicted(self._model, batch, noised(latents, noise, self._signal[times]), times)
        loss = functional.mse_loss(output.float(), noise)
        self._updates.backward(loss)
        self._updates.step()
        self._loss, self._output_dtype = loss.detach(), output.dtype
        return self._batches.waited_s()

    def _predicted(self, model: Any, batch: dict[str, Any], noisy: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        """The noise (sample, channel, side, side) that the model sees in noisy latents."""
        with autocast(self._workload.precision, self._device):
            output: torch.Tensor = model(
                noisy,
                times,
                encoder_hidden_states=batch["text"].float(),
                added_cond_kwargs={"text_embeds": batch["pooled"].float(), "time_ids": batch["times"].float()},
                return_dict=False,
            )[0]
        return output

    def evaluate(self, samples: int) -> Evaluation:
        """This rank's part of the held-out samples, each always with the same noise at the same time.

        Raises:
            ValueError: nothing is held out.
        """
        if self._sets is None or self._sets.held_out is None:
            raise ValueError(f"found data {self._workload.data}, of which nothing is held out; expected latents")
        batch = batch_of(self._workload, self._context)
        return evaluated(self._sets.held_out, self._context, samples=samples, batch=batch, score=self._score)

    @torch.no_grad()
    def _score(self, batch: Any, weights: torch.Tensor) -> Evaluation:
        batch = {name: part.to(self._device) for name, part in batch.items()}
        noise, times = batch["noise"], batch["moment"]
        noisy = noised(batch["latents"].float(), noise, self._signal[times])
        output = self._predicted(self._bare, batch, noisy, times)
        each = functional.mse_loss(output.float(), noise, reduction="none").flatten(1).mean(dim=1)
        return Evaluation(samples=float(weights.sum()), loss=float((each * weights).sum()))

    @property
    def skipped_steps(self) -> int:
        """Steps so far whose update gradient scaling skipped."""
        return self._updates.skipped

    def loss(self) -> float | None:
        """Mean squared error of the predicted noise in the latest step."""
        return None if self._loss is None else float(self._loss)

    def buckets(self) -> tuple[Bucket, ...]:
        """DDP's bucket layout."""
        return bucket_layout(self._model)

    def attest(self) -> tuple[Attested, ...]:
        """Precision, data and their augmentations, schedule, checkpointing, spreading, and compilation if asked for."""
        rows = [
            attest_precision(self._workload.precision, self._output_dtype, self._device),
            attest_data(self._workload, self._sets, self._batches),
            attest_augmentations(self._workload),
            self._updates.schedule.attest(),
            *attest_directory(self._workload),
        ]
        if self._bare is not None:
            rows.append(attest_blocks(self._workload.checkpointing, self._bare))
            rows.append(attest_parallel(self._workload.parallel, self._model, self._world))
        if self._workload.compile != "off":
            rows.append(attest_compile(self._workload.compile))
        return tuple(rows)

    def apart(self) -> DdpApart | None:
        """DDP's steps without synchronisation; FSDP has none."""
        return apart(self._model, self._context)

    def close(self) -> None:
        """Drop wrap, batch, gradients, optimizer and compiled code; the bare model stays with the session."""
        self._updates.close()
        self._model = self._bare = self._loss = None
        self._batches.close()
        if self._workload.compile != "off":
            forget_compiled()


def attest_blocks(requested: str, model: Any) -> Attested:
    """Which of the UNet's blocks are set to recompute their activations."""
    blocks = [module for module in model.modules() if hasattr(module, "gradient_checkpointing")]
    on = sum(bool(block.gradient_checkpointing) for block in blocks)
    observed = {0: "off", len(blocks): "on"}.get(on, f"{on} of {len(blocks)} blocks")
    return Attested(
        subject="workload.checkpointing",
        requested=requested,
        observed=observed,
        verdict=Verdict.HONOURED if observed == requested else Verdict.REFUTED,
        evidence="gradient_checkpointing of the UNet's blocks",
    )


def batch_of(workload: DiffusionWorkload, context: Context) -> int:
    """Samples of this rank in a step."""
    return workload.batch_per_gpu or (workload.global_batch or context.world) // context.world


def _is_sharded(workload: DiffusionWorkload, context: Context) -> bool:
    """Whether there is anybody to share with; one worker trains the whole model."""
    return workload.parallel == "fsdp" and context.group is not None


def _whole_model(workload: DiffusionWorkload, context: Context) -> Any:
    """The session's model with its first weights."""

    def build() -> Resident:
        bare = _bare_model(workload)
        return Resident(identity=workload.identity, model=bare.to_empty(device=context.device))

    model = resident(context, workload.identity, build).model
    model.zero_grad(set_to_none=True)
    layout = torch.channels_last if workload.channels_last else torch.contiguous_format
    model.to(memory_format=layout)
    _set_checkpointing(model, workload)
    fill(model, context.device, seed=context.seed)
    return model


def _sharded_model(workload: DiffusionWorkload, context: Context) -> Any:
    """A new model, sharded before it takes up memory; a whole one that the session kept is given up for it.

    Raises:
        ValueError: there is only one worker.
    """
    if context.group is None:
        raise ValueError(f"found {context.world} worker; FSDP shards over at least 2 workers")
    give_up(context)
    model = _bare_model(workload)
    _set_checkpointing(model, workload)
    blocks = blocks_of(model)
    if workload.compile != "off":
        compile_blocks(blocks, workload.compile)
    fully_sharded(
        model,
        blocks,
        context.group,
        device=context.device,
        block_dtype=AUTOCAST.get(workload.precision),
        reshard_after_forward=True,
    )
    model.to_empty(device=context.device)
    fill(model, context.device, seed=context.seed)
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
