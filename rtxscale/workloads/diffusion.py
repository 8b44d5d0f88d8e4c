"""Training of the SDXL UNet with AdamW, on random latents that stay or on precomputed ones: the DDPM objective.

Not a quality benchmark: every trial starts from the same random weights. No augmentation: latents are made before; the
noise schedule is SDXL's. Rows are training, never inference. Caller: `registry`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from rtxscale.models.unets import UNETS
from rtxscale.nccl.attest import Attested
from rtxscale.spec.workload import DiffusionWorkload
from rtxscale.workloads.data.latents import attest_augmentations, latent_sets
from rtxscale.workloads.data.loading import OnDevice, attest_data
from rtxscale.workloads.inputs import attest_directory
from rtxscale.workloads.model_training import ModelTraining, batch_of, make_ready
from rtxscale.workloads.networks.noise import TIMESTEPS, noised, signal_shares
from rtxscale.workloads.networks.unet import draw_batch
from rtxscale.workloads.networks.unet_model import is_sharded, refill, sharded_model, whole_model
from rtxscale.workloads.protocol import Context
from rtxscale.workloads.training.compilation import attest_compile
from rtxscale.workloads.training.evaluation import Evaluation
from rtxscale.workloads.training.parallel import attest_parallel
from rtxscale.workloads.training.precision import attest_precision, autocast
from rtxscale.workloads.training.schedule import rate_of

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
        make_ready(workload)
        make = sharded_model if is_sharded(workload, context) else whole_model
        return DiffusionTraining(workload, context, make(workload, context).train())


class DiffusionTraining(ModelTraining[DiffusionWorkload]):
    """A UNet in training."""

    unit = "sample"
    HELD_OUT = "latents"

    def __init__(self, workload: DiffusionWorkload, context: Context, model: Any) -> None:
        """Wrap the model and draw this rank's batch."""
        samples = float(batch_of(workload, context))
        sets = None if workload.data == "resident" else latent_sets(workload)
        sharded = is_sharded(workload, context)
        super().__init__(workload, context, model, sets, work_per_step=samples, sharded=sharded)
        self._signal = signal_shares(self._device)

    def _optimizer(self, context: Context, *, fused: bool) -> torch.optim.Optimizer:
        rate = rate_of(self._workload, LEARNING_RATE)
        return torch.optim.AdamW(self._bare.parameters(), lr=rate, weight_decay=WEIGHT_DECAY, fused=fused)

    def _resident(self, context: Context) -> OnDevice:
        workload, batch = self._workload, batch_of(self._workload, context)
        drawn = draw_batch(UNETS[workload.model], batch, workload.image_size, self._device, _seed(context))
        return OnDevice([drawn])

    def _refill(self, context: Context) -> None:
        refill(self._bare, context)

    def _begin(self, context: Context) -> None:
        """The first noise as well."""
        super()._begin(context)
        self._chance = torch.Generator(self._device).manual_seed(_seed(context))

    def _micro_step(self, batch: Any) -> torch.Tensor:
        """Noise latents to random times, predict the noise, and learn from the error."""
        latents = batch["latents"].float()
        noise = torch.randn(latents.shape, device=self._device, generator=self._chance)
        times = torch.randint(TIMESTEPS, (latents.shape[0],), device=self._device, generator=self._chance)
        output = self._predicted(self._model, batch, noised(latents, noise, self._signal[times]), times)
        loss = functional.mse_loss(output.float(), noise)
        self._output_dtype = output.dtype
        self._backward(loss)
        return loss.detach()

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

    @torch.no_grad()
    def _score(self, batch: Any, weights: torch.Tensor) -> Evaluation:
        """Each sample always with the same noise at the same time."""
        batch = {name: part.to(self._device) for name, part in batch.items()}
        noise, times = batch["noise"], batch["moment"]
        noisy = noised(batch["latents"].float(), noise, self._signal[times])
        output = self._predicted(self._bare, batch, noisy, times)
        each = functional.mse_loss(output.float(), noise, reduction="none").flatten(1).mean(dim=1)
        return Evaluation(samples=float(weights.sum()), loss=float((each * weights).sum()))

    def attest(self) -> tuple[Attested, ...]:
        """Precision, data and their augmentations, schedule, checkpointing, spreading, and compilation if asked for."""
        rows = [
            attest_precision(self._workload.precision, self._output_dtype, self._device),
            attest_data(self._workload, self._sets, self._batches),
            attest_augmentations(self._workload),
            self._updates.schedule.attest(),
            self._attest_checkpointing(),
            *attest_directory(self._workload),
        ]
        if self._bare is not None:
            rows.append(attest_parallel(self._workload.parallel, self._model, self._context.world))
        if self._workload.compile != "off":
            rows.append(attest_compile(self._workload.compile))
        return tuple(rows)


def _seed(context: Context) -> int:
    """Of this rank's latents, noise and times."""
    return SEED + context.rank + RANKS * context.seed
