"""A whole sweep file as data: the question, the fixed part of the cell, the axes and how often to visit.

Validated by pydantic here; read from YAML with line numbers in `spec.load`; expanded in `plan`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from rtxscale.spec.cell import (
    Cell,
    Ddp,
    Isolation,
    Launcher,
    Measure,
    Nccl,
    Placing,
    Planted,
    Target,
    canonical_json,
    content_id,
)
from rtxscale.spec.section import PositiveFloat, PositiveInt, Section, Several
from rtxscale.spec.wall_power import WallPower
from rtxscale.spec.workload import CollectivesProbe, Workload

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Study = Literal["weak", "strong", "both"]
Order = Literal["interleaved", "random", "as_written"]
Scalar = bool | int | float | str

NOT_MEASURED = {"question", "visits", "repeats", "max_hours", "sentinels", "notify", "wall_power"}
"""Fields that do not change what a trial measures: another value is the same sweep."""

COMMUNICATION_AXES = ("nccl.", "ddp.")
"""Axes under these prefixes are settings of the communication; they collapse at one GPU."""
SUBJECT_AXES = ("workload.kind", "workload.model", "workload.size", "workload.path", "workload.entry")
"""Axes that say what is trained: from one of their values to the other, work per second says nothing of a setting."""


class Hardware(Section):
    """What the sweep needs of the machine."""

    device: Literal["auto", "cuda", "cpu"] = Field("auto", description="auto uses GPUs where there are some.")
    min_gpus: PositiveInt | None = Field(None, description="Refuse to start with fewer GPUs than this.")
    gpu: str = Field(
        "auto", min_length=1, max_length=200, description="Model to run on where nodes differ; auto: most GPUs alike."
    )
    mixed_generations: Literal["refuse", "allow"] = Field(
        "refuse", description="GPUs of several generations in one node: refused, unless allowed here."
    )


class Notify(Section):
    """Who is told when the sweep ends."""

    command: Annotated[Several[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=100)] = Field(
        description="Program and its arguments, a list; run without a shell, told in RTXSCALE_* variables."
    )


class Sweep(Section):
    """One sweep file."""

    name: Name = Field(description="1 to 64 letters, digits, dots, underscores or hyphens, a letter or digit first.")
    question: str = Field(
        min_length=1, max_length=1000, pattern=r"\S", description="What the sweep asks, one sentence, not blank."
    )
    study: Study = Field(description="Work per GPU constant, global work constant, or both.")
    workload: Workload
    collectives: CollectivesProbe | None = None
    gpus: PositiveInt = 1
    nodes: PositiveInt | None = None
    gpus_per_node: PositiveInt | None = None
    placement: Placing = "packed"
    nccl: Nccl = Nccl()
    ddp: Ddp = Ddp()
    measure: Measure = Measure()
    target: Target | None = None
    isolation: Isolation = "warm"
    launcher: Launcher = "ray"
    planted: Planted = Planted()
    axes: dict[str, Several[Scalar]] = Field(description="Dotted path of a field -> its values.")
    zip: Several[Several[str]] = Field((), description="Groups of axes that move together.")
    exclude: Several[dict[str, Scalar]] = Field((), description="Points left out: all given values match.")
    visits: PositiveInt = Field(2, description="Sessions per session key, in mirrored order.")
    repeats: PositiveInt = Field(1, description="Trials of a cell within one visit.")
    order: Order = Field("interleaved", description="Order of the trials within a session.")
    max_hours: PositiveFloat | None = Field(
        None, description="Hours that the run may take in all, over every call that continues it."
    )
    sentinels: Literal["auto", "off"] = Field(
        "auto", description="Trials of the default cell at start, middle and end of each session, to see it drift."
    )
    notify: Notify | None = None
    wall_power: WallPower | None = None
    hardware: Hardware = Hardware()

    @property
    def base(self) -> dict[str, Any]:
        """The fixed part of every cell, as plain data ready for axis values to be put in."""
        fields = self.model_dump(mode="python")
        return {name: fields[name] for name in Cell.model_fields}

    @property
    def subjects(self) -> str:
        """What is trained, in words, such as `workload vision/resnet50` or `workloads language/1b, language/7b`."""
        varied = [f"{self.workload.kind}/{value}" for axis in SUBJECT_AXES for value in self.axes.get(axis, ())]
        names = varied or [self.workload.label]
        return f"workload{'s' * (len(names) > 1)} {', '.join(names)}"

    @property
    def sweep_id(self) -> str:
        """Content hash of what is measured; more visits, repeats, hours or another question are the same sweep.

        The order of keys does not count, and defaults are left out so that a field added later keeps old ids.
        """
        declared = self.model_dump(mode="json", exclude_defaults=True, exclude=NOT_MEASURED)
        return content_id(canonical_json(declared))
