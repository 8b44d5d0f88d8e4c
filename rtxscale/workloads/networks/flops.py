"""Model FLOPs of a unit of work of every workload that trains a known model, for MFU.

Of decoders by formula; of timm's models and the UNets by counting the operations of one forward pass on tensors without
memory, once a process. Nothing is computed. Called by `rank.trial`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from rtxscale.models.flops import training_flops_per_token
from rtxscale.models.unets import LATENT_CHANNELS, LATENT_SCALE, TIME_IDS, UNETS
from rtxscale.spec.workload import DiffusionWorkload, LanguageWorkload, VisionWorkload, Workload
from rtxscale.workloads.files.model import shape_of
from rtxscale.workloads.networks.timm_models import created_model
from rtxscale.workloads.networks.unet import build_unet

PASSES = 3
"""Training over forward: a matrix or kernel costs the same again for the gradients of its inputs, and of its weights.

Source: A. Chowdhery et al., "PaLM" (2022), arXiv:2204.02311, appendix B. The first layer's inputs, which have no
gradient, are counted like all others.
"""
META = torch.device("meta")


def training_flops(workload: Workload) -> float | None:
    """FLOPs to train on one token, image or sample, without recomputation; None where the model is not known."""
    if isinstance(workload, LanguageWorkload):
        shape = shape_of(workload)
        return None if shape is None else training_flops_per_token(shape, workload.context, workload.adapter)
    if isinstance(workload, VisionWorkload):
        return _vision(workload.model, workload.image_size, workload.classes)
    if isinstance(workload, DiffusionWorkload):
        return _diffusion(workload.model, workload.image_size)
    return None


@lru_cache(maxsize=64)
def _vision(model: str, image_size: int, classes: int) -> float | None:
    workload = VisionWorkload(kind="vision", model=model, image_size=image_size, classes=classes)
    return _counted(lambda: created_model(workload), lambda whole: whole(torch.empty(1, 3, image_size, image_size)))


@lru_cache(maxsize=64)
def _diffusion(model: str, image_size: int) -> float | None:
    shape, side = UNETS[model], image_size // LATENT_SCALE

    def forward(unet: nn.Module) -> None:
        conditions = {"text_embeds": torch.empty(1, shape.pooled), "time_ids": torch.empty(1, TIME_IDS)}
        latents, moment = torch.empty(1, LATENT_CHANNELS, side, side), torch.zeros(1, dtype=torch.long)
        unet(latents, moment, encoder_hidden_states=torch.empty(1, *shape.text), added_cond_kwargs=conditions)

    return _counted(lambda: build_unet(shape), forward)


def _counted(build: Callable[[], nn.Module], forward: Callable[[nn.Module], object]) -> float | None:
    """FLOPs of training, from those of one forward pass: matrix products, convolutions and attention, 2 per product."""
    try:
        with META, torch.no_grad():
            model = build().eval()
            with FlopCounterMode(display=False) as counter:
                forward(model)
    except Exception:
        return None
    return float(PASSES * counter.get_total_flops())
