"""Which implementation runs which `workload.kind`.

Callers: `rank.trial`, and `run.host` for what only the libraries know, such as model names. A kind that the spec knows
must have a line here; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable

from rtxscale.spec.workload import VisionWorkload
from rtxscale.spec.workload import Workload as Declared
from rtxscale.workloads.collectives import Collectives
from rtxscale.workloads.language import Language
from rtxscale.workloads.protocol import Workload
from rtxscale.workloads.vision import Vision, unknown_model

IMPLEMENTATIONS: dict[str, Workload] = {
    "vision": Vision(),
    "language": Language(),
    "collectives": Collectives(),
}


def complaints(workloads: Iterable[Declared]) -> list[str]:
    """What the libraries know to be wrong with these workloads, one sentence each; empty when all can be built."""
    models = dict.fromkeys(workload.model for workload in workloads if isinstance(workload, VisionWorkload))
    return [complaint for model in models if (complaint := unknown_model(model))]
