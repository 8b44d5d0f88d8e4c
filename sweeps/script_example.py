"""Training of one's own for script-example.yaml: a function that builds one training step.

rtxscale calls `build` once in each worker and the step that it returns as often as the measurement needs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

import rtxscale


def build(job: rtxscale.Job) -> Callable[[], torch.Tensor]:
    """A multilayer perceptron on random data, trained with SGD."""
    torch.manual_seed(1)
    width, depth = int(job.options["width"]), int(job.options["depth"])
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
    model = job.wrap(nn.Sequential(*layers, nn.Linear(width, 1)).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    inputs = torch.randn(job.batch_per_gpu, width, device=job.device)

    def step() -> torch.Tensor:
        with job.autocast():
            loss = (model(inputs) - 1).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step
