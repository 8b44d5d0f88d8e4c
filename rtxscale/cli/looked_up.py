"""What only libraries know of a planned workload, asked in a process of its own, which alone loads torch.

Names of models that come with rtxscale's own counts are known to be right, and cost nothing. Called by `cli.plan` and
`cli.fit`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rtxscale.spec.workload import Workload

PROGRAM = "rtxscale.workloads.registry"
PATIENCE_S = 120.0
"""Importing the libraries takes seconds, on a busy machine more."""


def unknown_names(workloads: Iterable[Workload]) -> list[str]:
    """What is wrong with timm models that these workloads want, on whatever machine: their names, checkpointing."""
    from rtxscale.models.counted import shipped
    from rtxscale.models.shapes import SIZES
    from rtxscale.models.unets import UNETS
    from rtxscale.spec.workload import CollectivesWorkload, VisionWorkload

    wanted: dict[tuple[str, bool], dict[str, Any]] = {}
    for one in workloads:
        if isinstance(one, VisionWorkload):
            fields = {"kind": one.kind, "model": one.model, "checkpointing": one.checkpointing}
            wanted[one.model, one.checkpointing == "on"] = fields
        elif isinstance(one, CollectivesWorkload) and one.buckets_of not in ("", *SIZES, *UNETS):
            wanted[one.buckets_of, False] = {"kind": one.kind, "buckets_of": one.buckets_of}
    counted = shipped().counts if wanted else {}
    right = {(subject.model, checkpointing) for subject in counted for checkpointing in {False, subject.checkpointing}}
    return _asked([fields for asked, fields in wanted.items() if asked not in right], Path())


def untrainable(workloads: Iterable[Workload], directory: Path) -> list[str]:
    """What is wrong with the models of one's own that lie beside the sweep file, in `directory`."""
    own = dict.fromkeys(one for one in workloads if one.kind == "language" and one.path)
    return _asked([one.model_dump(mode="json") for one in own], directory)


def _asked(workloads: list[dict[str, Any]], directory: Path) -> list[str]:
    """Complaints of the libraries; none where they cannot be asked: the sweep asks again before anything runs."""
    if not workloads:
        return []
    asked = json.dumps({"workloads": workloads, "directory": str(directory)})
    try:
        done = subprocess.run(  # noqa: S603  # our own program, by the Python that runs this one
            [sys.executable, "-m", PROGRAM],
            input=asked,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
        found = json.loads(done.stdout.splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return []
    return [str(text) for text in found]
