"""The software that a GPU needs, each number with its source, and versions made comparable.

Data and comparison only. Caller: `doctor.software_rules`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Version = tuple[int, ...]
_NUMBERS = re.compile(r"\d{1,6}(?:\.\d{1,6}){0,3}", re.ASCII)
_SM = re.compile(r"(sm|compute)_(\d{1,2})(\d)([af]?)", re.ASCII)

PYTORCH_145949 = "pytorch/pytorch issue 145949 (RTX 5090 needs 2.7 with CUDA 12.8)"
PLAYBOOK = "playbook P1"


@dataclass(frozen=True, kw_only=True)
class Need:
    """The least version of something and who says so."""

    version: Version
    source: str

    @property
    def text(self) -> str:
        """The version as people write it."""
        return version_text(self.version)


TORCH = {
    "Ada": Need(version=(2, 6), source=PLAYBOOK),
    "Blackwell": Need(version=(2, 7), source=f"{PLAYBOOK}; {PYTORCH_145949}"),
}
CUDA_OF_TORCH = {"Blackwell": Need(version=(12, 8), source=PYTORCH_145949)}
NCCL = Need(version=(2, 19), source=PLAYBOOK)
NCCL_BLACKWELL = Need(version=(2, 26, 2), source=f"{PLAYBOOK}; NVIDIA/nccl-tests issue 287")
CUDNN = Need(version=(9,), source=PLAYBOOK)
COMPATIBILITY = "NVIDIA CUDA Compatibility, minor version compatibility, table 1"
DRIVER_FOR_CUDA = {
    11: Need(version=(450,), source=COMPATIBILITY),
    12: Need(version=(525,), source=COMPATIBILITY),
    13: Need(version=(580,), source=COMPATIBILITY),
}
DRIVER_FOR_BLACKWELL = Need(version=(570,), source="CUDA 12.8 release notes; drivers before 570 do not know the card")
RAY = Need(version=(2, 51), source="rtxscale's own requirement")
RAY_TOKEN = Need(version=(2, 52), source="Ray documentation, token authentication")


def read_version(text: str | None) -> Version | None:
    """The numbers at the start of a version; None where there are none.

    >>> read_version("2.14.1+cu130"), read_version("Not Found")
    ((2, 14, 1), None)
    """
    match = _NUMBERS.match(text or "")
    return tuple(int(part) for part in match[0].split(".")) if match else None


def version_text(version: Version) -> str:
    """A version as people write it.

    >>> version_text((2, 26, 2))
    '2.26.2'
    """
    return ".".join(map(str, version))


def is_below(text: str | None, need: Need) -> bool:
    """Whether a version is known and too old; an unknown one is not.

    >>> is_below("2.5.1", Need(version=(2, 6), source="")), is_below(None, Need(version=(2, 6), source=""))
    (True, False)
    """
    version = read_version(text)
    return version is not None and version < need.version


@dataclass(frozen=True, kw_only=True)
class Runs:
    """How a build of PyTorch runs on a GPU: with machine code of its own, compiled from PTX when first used, or not."""

    native: bool
    by_ptx: bool


def runs_on(architectures: tuple[str, ...], capability: tuple[int, int]) -> Runs:
    """Whether code for `architectures` runs on a GPU of compute capability `capability`.

    Machine code runs on the same major version with an equal or higher minor one, code for `sm_XYa` on exactly X.Y;
    PTX is compiled for anything newer.

    Source: CUDA C++ Programming Guide, binary and PTX compatibility.

    >>> runs_on(("sm_80", "sm_90"), (8, 9)).native, runs_on(("sm_50", "sm_90"), (12, 0)).native
    (True, False)
    >>> runs_on(("sm_90", "compute_90"), (12, 0))
    Runs(native=False, by_ptx=True)
    """
    native = by_ptx = False
    for match in filter(None, map(_SM.fullmatch, architectures)):
        built = (int(match[2]), int(match[3]))
        if match[1] == "compute":
            by_ptx |= built <= capability and not match[4]
        elif match[4] == "a":
            native |= built == capability
        else:
            native |= built[0] == capability[0] and built[1] <= capability[1]
    return Runs(native=native, by_ptx=by_ptx)
