"""The list of GPUs and MIG instances that `nvidia-smi -L` prints.

Not which of them CUDA shows. A machine without a list is `unavailable`, with what the tool said. Caller: the doctor.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from rtxscale.errors import Problem
from rtxscale.topology.matrix import clean_lines
from rtxscale.topology.smi import Status

LIST_COMMAND = "nvidia-smi -L"
_GPU = re.compile(r"GPU (\d{1,4}): (.{1,200}?) \(UUID: (GPU-[0-9A-Za-z-]{1,60})\)", re.ASCII)
_MIG = re.compile(r"MIG (\S{1,40})\s+Device\s+(\d{1,4}): \(UUID: (MIG-[0-9A-Za-z/-]{1,80})\)", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class MigInstance:
    """A slice of a GPU: its profile, such as `3g.40gb`, its number on that GPU, its UUID."""

    profile: str
    index: int
    uuid: str


@dataclass(frozen=True, kw_only=True)
class ListedGpu:
    """A GPU of the list with its MIG instances, if any."""

    index: int
    name: str
    uuid: str
    instances: tuple[MigInstance, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Listing:
    """All GPUs in nvidia-smi's order; `problems` are lines that were not read."""

    status: Status
    gpus: tuple[ListedGpu, ...] = ()
    problems: tuple[Problem, ...] = ()
    said: str = ""

    @property
    def has_mig(self) -> bool:
        """Whether any GPU is cut into MIG instances: power is then the whole board's, utilisation unknown."""
        return any(gpu.instances for gpu in self.gpus)


def parse_listing(text: str, source: str = LIST_COMMAND) -> Listing:
    """GPUs and MIG instances of the text; never raises.

    >>> parse_listing("GPU 0: NVIDIA GeForce RTX 5090 (UUID: GPU-00000000-0000)").gpus[0].name
    'NVIDIA GeForce RTX 5090'
    """
    gpus: list[ListedGpu] = []
    problems: list[Problem] = []
    for number, line in clean_lines(text):
        body = line.strip()
        if match := _GPU.fullmatch(body):
            gpus.append(ListedGpu(index=int(match[1]), name=match[2], uuid=match[3]))
        elif gpus and (match := _MIG.fullmatch(body)):
            instance = MigInstance(profile=match[1], index=int(match[2]), uuid=match[3])
            gpus[-1] = replace(gpus[-1], instances=(*gpus[-1].instances, instance))
        elif body:
            expected = "a GPU, or a MIG instance below its GPU"
            problems.append(Problem(file=source, line=number, path="", found=repr(body[:200]), expected=expected))
    if not gpus:
        return Listing(status=Status.UNAVAILABLE, problems=tuple(problems), said=text.strip())
    status = Status.INCOMPLETE if problems else Status.READ
    return Listing(status=status, gpus=tuple(gpus), problems=tuple(problems))
