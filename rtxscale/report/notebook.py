"""A run in a notebook: lazy frames with documented columns, conclusions, and the report's charts as objects.

Nothing is redacted and nothing written. The way in is `rtxscale.open`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

from rtxscale.analysis.conclude import conclude
from rtxscale.analysis.conclusions import Conclusions
from rtxscale.errors import BadInput
from rtxscale.report.charts.figure import Figure
from rtxscale.report.charts.figures import figures
from rtxscale.results.location import find_run, results_root
from rtxscale.results.read import Run, open_verified
from rtxscale.results.schema import TABLES


def open_run(text: str, results: str | None) -> OpenedRun:
    """The run that the user named, every committed byte of it checked.

    Raises:
        BadInput: there is none.
        ResultsError: it cannot be read, or is damaged.
    """
    return OpenedRun(run=open_verified(find_run(text, results_root(None if results is None else Path(results)))))


@dataclass(frozen=True, kw_only=True)
class OpenedRun:
    """A run as it was when opened; open it anew to see what a running sweep has added.

    >>> import tempfile
    >>> from rtxscale.results.write import RunWriter
    >>> from rtxscale.spec.sweep import Sweep
    >>> folder = tempfile.TemporaryDirectory()
    >>> parts = {"workload": {"kind": "vision", "batch_per_gpu": 8}, "axes": {"gpus": [1, 2]}}
    >>> sweep = Sweep.model_validate({"name": "demo", "question": "How well?", "study": "weak", **parts})
    >>> RunWriter.open(Path(folder.name), sweep, "name: demo").close()
    >>> run = open_run("latest", folder.name)
    >>> run.trials.select("trial_id", "throughput_per_s").collect().shape
    (0, 2)
    >>> run.columns("trials").filter(pl.col("name") == "throughput_per_s")["meaning"].item()
    'work / window_s'
    >>> run.conclusions.headline, run.conclusions.efficiency.height, run.charts
    ('Nothing has been measured yet; run the sweep.', 0, {})
    >>> folder.cleanup()
    """

    run: Run

    @property
    def trials(self) -> pl.LazyFrame:
        """One row per attempt at a trial: settings, outcome, throughput, power."""
        return self.table("trials")

    @property
    def steps(self) -> pl.LazyFrame:
        """Times of single steps, by trial and rank."""
        return self.table("steps")

    @property
    def collectives(self) -> pl.LazyFrame:
        """Times and bandwidths of collectives, by trial, operation and size."""
        return self.table("collectives")

    @property
    def telemetry(self) -> pl.LazyFrame:
        """Samples of power, temperature, clocks and load, by GPU and host."""
        return self.table("telemetry")

    @property
    def buckets(self) -> pl.LazyFrame:
        """DDP's gradient buckets, by trial."""
        return self.table("buckets")

    @property
    def attestation(self) -> pl.LazyFrame:
        """What was asked of NCCL and PyTorch against what they did, by trial."""
        return self.table("attestation")

    @property
    def environment(self) -> pl.LazyFrame:
        """Software and hardware, a fact a row."""
        return self.table("environment")

    @property
    def logs(self) -> pl.LazyFrame:
        """What NCCL, failing ranks and the sweep itself wrote, line by line, by trial."""
        return self.table("logs")

    def table(self, name: str) -> pl.LazyFrame:
        """A table by its name, with its full schema; nothing is read before `collect`.

        Raises:
            BadInput: there is no such table.
        """
        return self.run.frame(_known(name))

    def columns(self, name: str) -> pl.DataFrame:
        """What the columns of a table mean: name, kind, unit, meaning, writer, reduction.

        Raises:
            BadInput: there is no such table.
        """
        return pl.DataFrame([asdict(column) for column in TABLES[_known(name)]])

    @cached_property
    def conclusions(self) -> Conclusions:
        """What the run says: headline, remarks, and the frames of `analysis.tables`."""
        return conclude(self.run)

    @cached_property
    def charts(self) -> dict[str, Figure]:
        """The report's charts by key, in its order; each shows itself where a notebook draws Vega-Lite."""
        return Charts({figure.key: figure for figure in figures(self.run, self.conclusions)})

    def __repr__(self) -> str:
        """Its name and its answer."""
        return f"{self.run.run_id}: {self.conclusions.headline}"


class Charts(dict[str, Figure]):
    """The charts of a run by key; a key that is not there is answered with those that are."""

    def __missing__(self, key: str) -> Figure:
        """Say what there is.

        Raises:
            BadInput: always.
        """
        there = f"expected one of {', '.join(self)}" if self else "this run has no data for any"
        raise BadInput(f"found no chart {key!r}; {there}")


def _known(name: str) -> str:
    if name not in TABLES:
        raise BadInput(f"found no table {name!r}; expected one of {', '.join(TABLES)}")
    return name
