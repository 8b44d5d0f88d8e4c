"""Where a rank sits: its number, its world, its device and its share of the CPU.

Plain data; filled in by whoever starts ranks (`run` under Ray, `rank.__main__` under torchrun).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rtxscale.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class Place:
    """One rank of a world.

    `device` is `cuda` or `cpu`; `local_rank` picks the GPU among those in CUDA_VISIBLE_DEVICES; `threads` is the number
    of CPU threads the rank may use for computing.
    """

    rank: int
    world: int
    local_rank: int
    device: str
    threads: int


def place_from_torchrun(environment: Mapping[str, str], device: str, threads: int) -> Place:
    """The place that torchrun's variables describe.

    Raises:
        BadInput: the process was not started by torchrun.
    """
    try:
        rank, world, local_rank = (int(environment[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    except KeyError as error:
        message = f"found no variable {error.args[0]}; start ranks with torchrun --nproc-per-node N -m rtxscale.rank"
        raise BadInput(message) from error
    return Place(rank=rank, world=world, local_rank=local_rank, device=device, threads=threads)
