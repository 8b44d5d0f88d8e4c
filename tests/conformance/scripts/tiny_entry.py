"""Training functions for the tests of scripts: one that is right, and some that are not."""

import math

import numpy as np
import torch
import torch.distributed as dist
from tiny_helper import make_model


def build(job):
    torch.manual_seed(1)
    model = job.wrap(make_model(int(job.options.get("width", 8))).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(job.batch_per_gpu, int(job.options.get("width", 8)), device=job.device)

    def step():
        with job.autocast():
            loss = (model(inputs) - 3).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def with_work(job):
    return build(job), 640.0


def with_numpy(job):
    step = build(job)
    return lambda: np.float32(step().item()), np.int64(640)


def without_loss(job):
    step = build(job)
    return lambda: (step(), None)[1]


def diverging(job):
    return lambda: torch.tensor(math.nan)


def failing(job):
    def step():
        raise KeyError("no such column")

    return step


def out_of_memory(job):
    def step():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    return step


def leaving(job):
    raise SystemExit(3)


def no_step(job):
    return "ready"


def vector_loss(job):
    return lambda: torch.zeros(3)


def loss_and_work(job):
    return lambda: (torch.zeros(()), 2)


def second_group(job):
    dist.init_process_group("gloo")


def destroying(job):
    dist.destroy_process_group()
    return build(job)


def alone(job):
    return lambda: 1.0
