"""rtxscale measures how well training scales over several NVIDIA GPUs, and why not better.

`rtxscale.open` is the way in for a notebook. `measure`, `job` and `group` are for a training script that a sweep
measures, `Job` is what its function gets; without a sweep around it they change nothing. Everything else is the command
line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from torch.distributed import ProcessGroup

    from rtxscale.report.notebook import OpenedRun
    from rtxscale.workloads.scripts.job import Job
    from rtxscale.workloads.scripts.loop import Measuring

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


def measure() -> Measuring:
    """The context manager around the training loop of a script that a sweep names as `workload.path`.

    The loop goes on until it is stopped; `step` says that one training step is done. Outside a sweep neither does
    anything, and the script runs as ever.

    >>> import rtxscale
    >>> with rtxscale.measure() as measured:
    ...     for batch in ([1, 2], [3, 4]):
    ...         measured.step(work=len(batch))
    """
    from rtxscale.workloads.scripts.loop import measure

    return measure()


def job() -> Job | None:
    """What the sweep asks of the script that runs in this process; None outside a sweep.

    >>> import rtxscale
    >>> rtxscale.job() is None
    True
    """
    from rtxscale.workloads.scripts.loop import current_job

    return current_job()


def group() -> ProcessGroup | None:
    """The process group that a script in a sweep trains on; None at one worker and outside a sweep."""
    found = job()
    return None if found is None else found.group


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """`rtxscale.Job`, which needs torch, is loaded when it is asked for."""
        if name != "Job":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from rtxscale.workloads.scripts.job import Job

        return Job
