"""A trial's own process group: NCCL with the cell's settings on GPUs, Gloo on CPUs, none at one worker.

Variables that NCCL reads when it creates a communicator exist only while it does; those it caches per process must have
been there from the start and are checked. Not the control group, which is always Gloo. Caller: `rank.trial`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from rtxscale.errors import RunError
from rtxscale.nccl.knobs import (
    COMMUNICATOR_VARIABLES,
    Knobs,
    communicator_environment,
    config_ctas,
    process_environment,
)
from rtxscale.rank.place import Place
from rtxscale.spec.cell import Cell, Nccl

TIMEOUT = timedelta(minutes=30)
"""Compilation may keep one rank from a collective for long; hangs are the watchdog's business."""

TRAINING = frozenset({"all_reduce", "broadcast", "all_gather"})
"""What DDP needs: gradients, parameters and buffers, and the comparison of shapes at the start."""


def knobs_of(nccl: Nccl) -> Knobs:
    """The cell's NCCL settings in the terms of `nccl`."""
    channels = None if nccl.channels == "auto" else nccl.channels
    return Knobs(algorithm=nccl.algorithm, channels=channels, protocol=nccl.protocol, p2p=nccl.p2p)


@contextmanager
def communicator(cell: Cell, place: Place, device: torch.device) -> Iterator[dist.ProcessGroup | None]:
    """The process group of one trial, gone afterwards.

    Raises:
        RunError: the process lacks a variable that NCCL caches.
    """
    if place.world == 1:
        yield None
        return
    group = _nccl_group(cell, device) if place.device == "cuda" else _group("gloo")
    try:
        yield group
    except BaseException:
        _drop_failed(group, place.device)
        raise
    dist.destroy_process_group(group)


def _nccl_group(cell: Cell, device: torch.device) -> dist.ProcessGroup:
    """A connected NCCL group with the cell's settings."""
    knobs = knobs_of(cell.nccl)
    check_process(knobs, os.environ)
    asked = cell.collectives.operations if cell.collectives else getattr(cell.workload, "operations", ())
    version = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]  # untyped in torch
    with exactly(communicator_environment(knobs, version, TRAINING | frozenset(asked))):
        group = _group("nccl", _options(knobs))
        # The communicator is created by the first collective, and has to be while the variables are there.
        dist.all_reduce(torch.zeros(1, device=device), group=group)
        torch.cuda.synchronize(device)
    return group


def _group(backend: str, options: Any = None) -> dist.ProcessGroup:
    """A process group of all ranks."""
    group = dist.new_group(backend=backend, timeout=TIMEOUT, pg_options=options)
    if not isinstance(group, dist.ProcessGroup):
        raise RunError(f"found no {backend} process group on this rank; expected one of all ranks")
    return group


def _options(knobs: Knobs) -> dist.ProcessGroupNCCL.Options:
    """Process group options with the channel count as both bounds of the CTAs."""
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = TIMEOUT
    ctas = config_ctas(knobs)
    if ctas is not None:
        options.config.min_ctas = ctas
        options.config.max_ctas = ctas
    return options


def _drop_failed(group: dist.ProcessGroup, device: str) -> None:
    """Leave a group in which collectives may be stuck."""
    if device == "cuda":
        dist.distributed_c10d._abort_process_group(group)
    else:
        dist.destroy_process_group(group)


@contextmanager
def exactly(variables: Mapping[str, str]) -> Iterator[None]:
    """The communicator variables as given and no others, for as long as the block runs; then the process's own again.

    Raises:
        ValueError: a variable that is not read when a communicator is created.
    """
    unknown = set(variables) - set(COMMUNICATOR_VARIABLES)
    if unknown:
        raise ValueError(f"found {', '.join(sorted(unknown))}; expected only {', '.join(COMMUNICATOR_VARIABLES)}")
    before = {name: os.environ.pop(name) for name in COMMUNICATOR_VARIABLES if name in os.environ}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)
        os.environ.update(before)


def check_process(knobs: Knobs, environment: Mapping[str, str]) -> None:
    """Make sure that the process was started with the variables NCCL caches.

    Raises:
        RunError: one is missing or different.
    """
    for name, value in process_environment(knobs).items():
        found = environment.get(name)
        if found != value:
            raise RunError(
                f"found {name}={found or 'unset'} in this process; the cell needs {name}={value} from its start: "
                f"begin a new session with rank_environment()"
            )
