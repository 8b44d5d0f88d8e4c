"""Training of the SDXL UNet with AdamW on random latents that stay on the device: the DDPM objective.

Not a quality benchmark: latents, prompts and noise are random, every trial starts from the same weights. No
augmentation, since latents are made before; the noise schedule is SDXL's. Rows are training, never inference. Caller:
`registry`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from rtxscale.nccl.attest import Attested, Verdict
from rtxscale.spec.workload import DiffusionWorkload
from rtxscale.workloads.apart import DdpApart, apart
from rtxscale.workloads.compilation import attest_compile, begin_step, forget_compiled
from rtxscale.workloads.parallel import attest_parallel, bucket_layout, data_parallel, fully_sharded
from rtxscale.workloads.precision import AUTOCAST, attest_precision, autocast, set_precision
from rtxscale.workloads.protocol import Bucket, Context
from rtxscale.workloads.resident import Resident, give_up, resident
from rtxscale.workloads.unet import SHAPES, blocks_of, build_unet, draw_batch, fill

SEED = 4321
"""Of latents, noise and times; each rank has its own."""
LEARNING_RATE = 1e-5
WEIGHT_DECAY = 1e-2
TIMESTEPS = 1000
FIRST_BETA, LAST_BETA = 0.00085, 0.012
"""Ends of SDXL's "scaled linear" schedule (scheduler/scheduler_config.json of the same model)."""


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
        batch = workload.batch_per_gpu or (workload.global_batch or context.world) // context.world
        self.work_per_step: float | None = float(batch)
        self._workload, self._device, self._world, self._bare = workload, device, context.world, model
        self._context = context
        sharded = _is_sharded(workload, context)
        wrapped = model if sharded else data_parallel(model, context)
        # Blocks of a sharded model are compiled one by one, inside the hooks that gather them.
        compiled = workload.compile != "off" and not sharded
        self._model: Any = torch.compile(wrapped, mode=workload.compile) if compiled else wrapped
        seed = SEED + context.rank
        self._batch = draw_batch(SHAPES[workload.model], batch, workload.image_size, device, seed)
        self._chance = torch.Generator(device).manual_seed(seed)
        self._signal = signal_shares(device)
        scaled = workload.precision == "fp16"
        # Like SGD's, the fused step is not trusted with gradients that the scaler finds overflowing.
        self._optimizer: Any = torch.optim.AdamW(
            model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=not scaled
        )
        self._scaler = torch.amp.GradScaler(device.type, enabled=scaled)
        self._loss: torch.Tensor | None = None
        self._output_dtype: torch.dtype | None = None

    def step(self) -> float:
        """Noise the latents to random times, predict the noise, update; latents are resident: input takes no time."""
        begin_step(self._workload.compile)
        latents = self._batch["latents"]
        noise = torch.randn(latents.shape, device=self._device, generator=self._chance)
        times = torch.randint(TIMESTEPS, (latents.shape[0],), device=self._device, generator=self._chance)
        noisy = noised(latents, noise, self._signal[times])
        with autocast(self._workload.precision, self._device):
            output = self._model(
                noisy,
                times,
                encoder_hidden_states=self._batch["text"],
                added_cond_kwargs={"text_embeds": self._batch["pooled"], "time_ids": self._batch["times"]},
                return_dict=False,
            )[0]
        loss = functional.mse_loss(output.float(), noise)
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]  # untyped in torch
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._optimizer.zero_grad(set_to_none=True)
        self._loss, self._output_dtype = loss.detach(), output.dtype
        return 0.0

    def loss(self) -> float | None:
        """Mean squared error of the predicted noise in the latest step."""
        return None if self._loss is None else float(self._loss)

    def buckets(self) -> tuple[Bucket, ...]:
        """DDP's bucket layout."""
        return bucket_layout(self._model)

    def attest(self) -> tuple[Attested, ...]:
        """Precision, checkpointing, spreading, and compilation where asked for."""
        rows = [attest_precision(self._workload.precision, self._output_dtype, self._device)]
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
        if self._optimizer is not None:
            self._optimizer.zero_grad(set_to_none=True)
        self._optimizer = self._model = self._bare = self._loss = None
        self._batch = {}
        if self._workload.compile != "off":
            forget_compiled()


def signal_shares(device: torch.device) -> torch.Tensor:
    """Share of the variance that is still signal at each of the times: the running product of 1 - beta, (1000,).

    Source: Ho et al. (2020), arXiv:2006.11239, section 2; betas are the squares of evenly spaced roots.
    """
    ends = (FIRST_BETA**0.5, LAST_BETA**0.5)
    betas = torch.linspace(*ends, TIMESTEPS, dtype=torch.float64) ** 2
    return torch.cumprod(1 - betas, dim=0).float().to(device)


def noised(latents: torch.Tensor, noise: torch.Tensor, signal: torch.Tensor) -> torch.Tensor:
    """Latents with noise of unit variance mixed in; `signal` (batch,) is the share of variance they keep."""
    shares = signal.view(-1, *(1 for _ in latents.shape[1:]))
    return shares.sqrt() * latents + (1 - shares).sqrt() * noise


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
    fill(model, context.device)
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
        for block in blocks:
            block.compile(mode=workload.compile)
    fully_sharded(
        model,
        blocks,
        context.group,
        device=context.device,
        block_dtype=AUTOCAST.get(workload.precision),
        reshard_after_forward=True,
    )
    model.to_empty(device=context.device)
    fill(model, context.device)
    return model


def _bare_model(workload: DiffusionWorkload) -> Any:
    """The architecture without memory."""
    with torch.device("meta"):
        return build_unet(SHAPES[workload.model])


def _set_checkpointing(model: Any, workload: DiffusionWorkload) -> None:
    if workload.checkpointing == "on":
        model.enable_gradient_checkpointing()
    else:
        model.disable_gradient_checkpointing()
