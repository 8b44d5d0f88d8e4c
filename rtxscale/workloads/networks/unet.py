"""The SDXL UNet of diffusers, from its published configuration alone: nothing is downloaded, weights are random.

Caller: `workloads.diffusion`.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from torch import nn

from rtxscale.models.unets import LATENT_CHANNELS, LATENT_SCALE, TIME_IDS, UNetShape
from rtxscale.workloads.training.parallel import assign

MISSING = "workload.kind: found diffusion, which needs diffusers; install it with pip install 'rtxscale[diffusion]'"
SEED = 1234
SPREAD = 0.02
"""Standard deviation of new weights: what is trained is noise, it only has to stay finite."""


def missing_library() -> str:
    """What to install, in words; empty when it is there."""
    return "" if importlib.util.find_spec("diffusers") else MISSING


def build_unet(shape: UNetShape) -> Any:
    """A diffusers UNet2DConditionModel; on the meta device inside `torch.device("meta")`.

    Raises:
        RuntimeError: diffusers is not installed.
    """
    if missing := missing_library():
        raise RuntimeError(missing)
    from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel

    return UNet2DConditionModel(
        sample_size=128,
        in_channels=LATENT_CHANNELS,
        out_channels=LATENT_CHANNELS,
        block_out_channels=shape.blocks,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        layers_per_block=2,
        transformer_layers_per_block=shape.transformers,
        attention_head_dim=shape.heads,
        cross_attention_dim=shape.text[1],
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=shape.time_width,
        projection_class_embeddings_input_dim=shape.pooled + TIME_IDS * shape.time_width,
    )


@torch.no_grad()
def fill(model: nn.Module, device: torch.device, *, seed: int = 0) -> None:
    """Draw all weights anew from `SEED` and `seed`: matrices and kernels normal, scales of norms one, biases zero.

    The same weights in every memory format and however they are spread: whole tensors are drawn, in the order of
    indices. One at a time is on the device.
    """
    generator = torch.Generator(device).manual_seed(SEED + seed)
    for name, parameter in model.named_parameters():
        whole = torch.full(parameter.shape, 0.0 if name.endswith("bias") else 1.0, device=device)
        if parameter.ndim > 1:
            whole.normal_(0.0, SPREAD, generator=generator)
        assign(parameter, whole)


def blocks_of(model: Any) -> list[nn.Module]:
    """The parts that are sharded, gathered and compiled each by itself: residual and transformer blocks.

    The three levels of the UNet hold up to half of its weights each, too much to be gathered at once.
    """
    names = ("ResnetBlock2D", "BasicTransformerBlock")
    return [part for part in model.modules() if type(part).__name__ in names]


def draw_batch(shape: UNetShape, batch: int, image_size: int, device: torch.device, seed: int) -> dict[str, Any]:
    """A batch of random latents and what they are conditioned on.

    `latents` (batch, 4, side, side), `text` (batch, tokens, width), `pooled` (batch, width), `times`
    (batch, 6): size and crop as if nothing had been cropped.
    """
    generator = torch.Generator(device).manual_seed(seed)
    side, (tokens, width) = image_size // LATENT_SCALE, shape.text

    def noise(*size: int) -> torch.Tensor:
        return torch.randn(size, device=device, generator=generator)

    return {
        "latents": noise(batch, LATENT_CHANNELS, side, side),
        "text": noise(batch, tokens, width),
        "pooled": noise(batch, shape.pooled),
        "times": uncropped(image_size).to(device).repeat(batch, 1),
    }


def uncropped(image_size: int) -> torch.Tensor:
    """What a whole image of this size is conditioned on, (6,)."""
    return torch.tensor([image_size, image_size, 0, 0, image_size, image_size], dtype=torch.float32)
