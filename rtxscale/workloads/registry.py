"""Which implementation runs which `workload.kind`.

Callers: `rank.trial`, and `run.host` for what only the libraries know, such as model names. A kind that the spec knows
must have a line here; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable

from rtxscale.spec.workload import DiffusionWorkload, VisionWorkload
from rtxscale.spec.workload import Workload as Declared
from rtxscale.workloads.collectives import Collectives
from rtxscale.workloads.diffusion import Diffusion
from rtxscale.workloads.language import Language
from rtxscale.workloads.protocol import Workload
from rtxscale.workloads.unet import missing_library
from rtxscale.workloads.vision import Vision, unknown_model

IMPLEMENTATIONS: dict[str, Workload] = {
    "vision": Vision(),
    "language": Language(),
    "diffusion": Diffusion(),
    "collectives": Collectives(),
}


def complaints(workloads: Iterable[Declared]) -> list[str]:
    """What the libraries know to be wrong with these workloads, one sentence each; empty when all can be built."""
    asked = list(workloads)
    models = dict.fromkeys(workload.model for workload in asked if isinstance(workload, VisionWorkload))
    found = [complaint for model in models if (complaint := unknown_model(model))]
    if any(isinstance(workload, DiffusionWorkload) for workload in asked) and (missing := missing_library()):
        found.append(missing)
    return found
