"""rtxscale measures how well training scales over several NVIDIA GPUs, and why not better.

`rtxscale.open` is the one way in for a notebook; everything else is the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from rtxscale.report.notebook import OpenedRun

__version__ = "0.1.0"


def open(run: str | Path = "latest", results: str | Path | None = None) -> OpenedRun:  # noqa: A001  reads as rtxscale.open
    """A run for a notebook: its tables as lazy polars frames, what it says, and its charts as objects.

    `run` is a run's directory, its name, or `latest`; `results` is where runs are kept, by default
    `$RTXSCALE_RESULTS`, else `~/rtxscale-results`. Nothing heavy is loaded before the first call.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import rtxscale
    >>> from rtxscale.results.write import RunWriter
    >>> from rtxscale.spec.sweep import Sweep
    >>> folder = tempfile.TemporaryDirectory()
    >>> parts = {"workload": {"kind": "vision", "batch_per_gpu": 8}, "axes": {"gpus": [1, 2]}}
    >>> sweep = Sweep.model_validate({"name": "demo", "question": "How well?", "study": "weak", **parts})
    >>> RunWriter.open(Path(folder.name), sweep, "name: demo").close()
    >>> run = rtxscale.open("latest", results=folder.name)
    >>> run.trials.select("trial_id", "throughput_per_s").collect().height
    0
    >>> folder.cleanup()

    Raises:
        BadInput: there is no such run.
        ResultsError: it cannot be read, or is damaged.
    """
    from rtxscale.report.notebook import open_run

    return open_run(str(run), None if results is None else str(results))
