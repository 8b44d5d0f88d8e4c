"""SDXL's noise schedule: how much of a latent is left at each time, and latents with that much noise.

Source: Ho et al., denoising diffusion probabilistic models (2020), arXiv:2006.11239. Callers: `workloads.diffusion`,
`workloads.data.latents`.
"""

from __future__ import annotations

import torch

TIMESTEPS = 1000
FIRST_BETA, LAST_BETA = 0.00085, 0.012
"""Ends of SDXL's "scaled linear" schedule (scheduler/scheduler_config.json of stable-diffusion-xl-base-1.0)."""


def signal_shares(device: torch.device) -> torch.Tensor:
    """Share of the variance that is still signal at each of the times: the running product of 1 - beta, (1000,).

    Source: Ho et al., section 2; betas are the squares of evenly spaced roots.
    """
    ends = (FIRST_BETA**0.5, LAST_BETA**0.5)
    betas = torch.linspace(*ends, TIMESTEPS, dtype=torch.float64) ** 2
    return torch.cumprod(1 - betas, dim=0).float().to(device)


def noised(latents: torch.Tensor, noise: torch.Tensor, signal: torch.Tensor) -> torch.Tensor:
    """Latents with noise of unit variance mixed in; `signal` (batch,) is the share of variance they keep."""
    shares = signal.view(-1, *(1 for _ in latents.shape[1:]))
    return shares.sqrt() * latents + (1 - shares).sqrt() * noise
