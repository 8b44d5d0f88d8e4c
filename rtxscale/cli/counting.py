"""Has models counted whose memory does not come with rtxscale, in a process of its own, which alone loads torch.

Called by `cli.fit`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rtxscale.models.counted import Catalogue
    from rtxscale.models.footprint import Subject

PROGRAM = "rtxscale.workloads.counting.footprint"
PATIENCE_S = 120.0
"""For one subject: a model takes seconds, on a busy machine more."""


def counted(subjects: Sequence[Subject]) -> Catalogue:
    """What comes with rtxscale and these; those that cannot be counted are among the problems, with why."""
    from rtxscale.models.counted import Catalogue, read_catalogue, shipped

    if not subjects:
        return shipped()
    asked = json.dumps([asdict(subject) for subject in subjects])
    try:
        done = subprocess.run(  # noqa: S603  # our own program, by the Python that runs this one
            [sys.executable, "-m", PROGRAM],
            input=asked,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S * len(subjects),
            check=True,
        )
        found = read_catalogue(done.stdout.splitlines())
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        last = (str(getattr(error, "stderr", "") or "").strip() or str(error)).splitlines()[-1]
        found = Catalogue(problems=dict.fromkeys(subjects, f"could not be counted ({last})"))
    return shipped().joined(found)
