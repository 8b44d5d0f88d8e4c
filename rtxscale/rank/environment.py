"""Which software a rank runs on, as read from the libraries themselves; unknown is written out.

Not the host or the GPUs: those are `telemetry.facts`. Caller: `run`, once per node, for the environment table.
"""

from __future__ import annotations

import platform
from importlib.metadata import distributions, version

import numpy
import timm
import torch

import rtxscale

UNKNOWN = "unknown"


def describe_software(device: str) -> list[dict[str, str]]:
    """Rows of subject, name and value.

    Versions are under `software`, defaults that change numbers under `setting`, all that is installed under `package`.
    """
    versions = {
        "python": platform.python_version(),
        "rtxscale": rtxscale.__version__,
        "torch": torch.__version__,
        "torch commit": torch.version.git_version,
        "timm": timm.__version__,
        "transformers": version("transformers"),  # importing it takes seconds
        "numpy": numpy.__version__,
        "CUDA of torch": torch.version.cuda or UNKNOWN,
    }
    settings = {
        "float32 matmul precision": torch.get_float32_matmul_precision(),
        "deterministic algorithms": _word(torch.are_deterministic_algorithms_enabled()),
    }
    if device == "cuda":
        versions |= _cuda_versions()
        settings["cudnn enabled"] = _word(torch.backends.cudnn.enabled)
        settings["cudnn deterministic"] = _word(torch.backends.cudnn.deterministic)
    else:
        settings["mkldnn"] = _word(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]  # untyped in torch
    return [
        {"subject": subject, "name": name, "value": str(value)}
        for subject, values in (("software", versions), ("setting", settings), ("package", _packages()))
        for name, value in values.items()
    ]


def _cuda_versions() -> dict[str, str]:
    """Versions of the libraries that torch loaded, and the architectures it was built for."""
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]  # untyped in torch
    nccl = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]  # untyped in torch
    return {
        "cudnn": UNKNOWN if cudnn is None else str(cudnn),
        "nccl": ".".join(map(str, nccl)),
        "architectures of torch": " ".join(torch.cuda.get_arch_list()) or UNKNOWN,
    }


def _packages() -> dict[str, str]:
    """Version of every installed distribution by name, the one that imports find where a name is there twice."""
    found: dict[str, str] = {}
    for distribution in distributions():
        name = distribution.metadata["Name"]
        if name:
            found.setdefault(name.lower().replace("_", "-"), distribution.version or UNKNOWN)
    return dict(sorted(found.items()))


def _word(value: bool) -> str:
    return "yes" if value else "no"
