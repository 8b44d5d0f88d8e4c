"""The UNets of latent diffusion in named sizes: what they are built from, and what a sample must look like.

Pure numbers, no torch: `workloads.networks.unet` builds them, `workloads.files.latents` holds data against them. `sdxl`
has the shapes of stabilityai/stable-diffusion-xl-base-1.0 (unet/config.json), Podell et al. (2023), arXiv:2307.01952;
`tiny` is the same architecture in small, for tests.
"""

from __future__ import annotations

from dataclasses import dataclass

LATENT_SCALE = 8
"""Pixels of an image per latent, in each direction: SDXL's autoencoder halves three times."""
LATENT_CHANNELS = 4
TIME_IDS = 6
"""Numbers that condition on size and crop: original height and width, crop top and left, target height and width."""


@dataclass(frozen=True, kw_only=True)
class UNetShape:
    """What the architecture is built from. `text` is (tokens, width) of the prompt's embedding, `pooled` its width."""

    blocks: tuple[int, ...]
    heads: tuple[int, ...]
    transformers: tuple[int, ...]
    text: tuple[int, int]
    pooled: int
    time_width: int


UNETS = {
    "sdxl": UNetShape(
        blocks=(320, 640, 1280),
        heads=(5, 10, 20),
        transformers=(1, 2, 10),
        text=(77, 2048),
        pooled=1280,
        time_width=256,
    ),
    "tiny": UNetShape(
        blocks=(32, 64, 64), heads=(2, 4, 4), transformers=(1, 1, 1), text=(8, 32), pooled=32, time_width=8
    ),
}
