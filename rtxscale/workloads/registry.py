"""Which implementation runs which `workload.kind`.

Caller: `rank.trial`. A kind that the spec knows must have a line here; a test compares the two.
"""

from __future__ import annotations

from rtxscale.workloads.collectives import Collectives
from rtxscale.workloads.language import Language
from rtxscale.workloads.protocol import Workload
from rtxscale.workloads.vision import Vision

IMPLEMENTATIONS: dict[str, Workload] = {
    "vision": Vision(),
    "language": Language(),
    "collectives": Collectives(),
}
