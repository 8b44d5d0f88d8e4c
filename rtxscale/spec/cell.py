"""One point of the grid: everything that says what a trial does, and its content hash.

A `Cell` holds the same sections that a sweep file has at top level, so an axis is simply the dotted path of one of its
fields. A planned cell is resolved: both batch fields are filled in. `Trial` is one planned measurement of a cell.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from rtxscale.spec.section import PositiveFloat, PositiveInt, Section, SizeMib
from rtxscale.spec.workload import CollectivesProbe, Workload

Channels = Annotated[int, Field(ge=1, le=64)]
Isolation = Literal["warm", "process"]
Launcher = Literal["ray", "torchrun"]
Stage = Literal["sweep", "sentinel", "confirm"]
LinkClass = Literal["nvlink", "same_switch", "same_root", "same_numa", "cross_socket", "cross_node"]
Placing = Literal["packed", "spread", "by_class"] | LinkClass

LINK_CLASSES: tuple[LinkClass, ...] = get_args(LinkClass)
"""How the GPUs of a trial hang together, by their worst pair, closest first."""
PER_CLASS = "by_class"
"""As a placement of a sweep: one cell for each class that the machine has; never that of a planned cell."""


class Nccl(Section):
    """NCCL settings under test; `auto` leaves the choice to NCCL."""

    algorithm: Literal["auto", "ring", "tree"] = Field("auto", description="All-reduce algorithm.")
    channels: Literal["auto"] | Channels = Field("auto", description="Channels (CTAs), 1 to 64.")
    protocol: Literal["auto", "ll", "ll128", "simple"] = Field("auto", description="Wire protocol.")
    p2p: Literal["auto", "disabled"] = Field("auto", description="Direct GPU-to-GPU transport.")
    unsafe: bool = Field(False, description="Allow settings that can corrupt data (forcing ll128).")


class Ddp(Section):
    """DistributedDataParallel settings under test."""

    bucket_mib: Literal["auto"] | SizeMib = Field(
        "auto", description="Gradient bucket cap in MiB (bucket_cap_mb); auto is DDP's own 25 with a first bucket of 1."
    )


class Target(Section):
    """How good a model is to become: each trial trains until it is, after its window, or until the time is over."""

    metric: Literal["top1", "loss", "val_loss"] = Field(
        description="top1: share of held-out images whose class is named first; val_loss: mean loss of held-out "
        "samples; loss: mean training loss since it was looked at last."
    )
    value: PositiveFloat = Field(description="Reached at this value: from below for top1, from above for a loss.")
    max_time_s: PositiveFloat = Field(600.0, description="Seconds of training after which it counts as not reached.")
    every_steps: PositiveInt = Field(20, description="Steps from one look at the metric to the next.")
    samples: PositiveInt = Field(1024, description="Held-out samples looked at, at most.")


class Planted(Section):
    """What an instrument check plants into a cell; a sweep that asks about a machine leaves it alone."""

    arm: str = Field("", max_length=64, description="A further name of the same cell: two arms differ in nothing else.")
    delay_ms: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.0, description="Milliseconds of the device's time added to every step."
    )
    delay_rank: Annotated[int, Field(ge=0)] | None = Field(None, description="The only rank delayed; else all are.")


SlopeBound = Literal["off"] | PositiveFloat


class Measure(Section):
    """How long a trial warms up and measures.

    A profile fills in what is not spelled out (`resolved`): `quick` is marked not publishable, `published` soaks and
    waits until the GPUs' temperature and clock stand still. What is weaker than `published`, or cannot hold, is found
    out in `spec.method`.
    """

    profile: Literal["quick", "published"] = Field("quick", description="Named set of defaults.")
    warmup_min_s: PositiveFloat | None = Field(None, description="Least warm-up of a trial in seconds.")
    warmup_max_s: PositiveFloat | None = Field(None, description="Longest warm-up in seconds; then `unsteady`.")
    soak_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        None, description="Soak in seconds, once per session, workload and precision."
    )
    window_s: PositiveFloat | None = Field(None, description="Length of the measured window in seconds, aimed at.")
    min_steps: PositiveInt | None = Field(None, description="Least number of steps in the window.")
    tolerance: PositiveFloat | None = Field(
        None, description="Largest relative change of mean step time between two blocks that counts as steady."
    )
    temperature_slope: SlopeBound | None = Field(
        None, description="Largest slope of a GPU's temperature that counts as steady in degC/min; off: not gated."
    )
    clock_slope: SlopeBound | None = Field(
        None, description="Largest relative slope of a GPU's SM clock that counts as steady in 1/min; off: not gated."
    )
    slope_s: Annotated[float, Field(ge=10, allow_inf_nan=False)] | None = Field(
        None, description="Time base of the slopes in seconds under load: the latest of soak and warm-up."
    )
    loss_budget: bool = Field(
        False, description="Also step as often without synchronisation, last in each trial: where the time goes."
    )

    def resolved(self) -> Measure:
        """The same settings with every empty field filled in from the profile."""
        return _resolved(self)


@lru_cache(maxsize=256)
def _resolved(measure: Measure) -> Measure:
    given = {name: value for name in PROFILES[measure.profile] if (value := getattr(measure, name)) is not None}
    full = {**PROFILES[measure.profile], **given}
    return Measure(profile=measure.profile, loss_budget=measure.loss_budget, **full)


PROFILES: dict[str, dict[str, Any]] = {
    "quick": {
        "warmup_min_s": 1.0,
        "warmup_max_s": 20.0,
        "soak_s": 0.0,
        "window_s": 3.0,
        "min_steps": 10,
        "tolerance": 0.05,
        "temperature_slope": "off",
        "clock_slope": "off",
        "slope_s": 60.0,
    },
    "published": {
        "warmup_min_s": 60.0,
        "warmup_max_s": 1200.0,
        "soak_s": 600.0,
        "window_s": 60.0,
        "min_steps": 100,
        "tolerance": 0.02,
        "temperature_slope": 0.5,
        "clock_slope": 0.002,
        "slope_s": 180.0,
    },
}
"""What a profile means. The bounds of the slopes are those simulated in `stats.steady.judge_vitals`."""


class Cell(Section):
    """One point of the grid."""

    gpus: PositiveInt = Field(1, description="Workers: one GPU each, or one CPU worker each without GPUs.")
    nodes: PositiveInt | None = Field(None, description="Machines, each with as many workers; else what is needed.")
    gpus_per_node: PositiveInt | None = Field(None, description="Workers on each machine; times nodes it is gpus.")
    placement: Placing = Field(
        "packed",
        description="packed: first GPUs of the fewest nodes; spread: as many nodes as there are; else the class of "
        "links between the GPUs, or by_class for all that there are.",
    )
    workload: Workload
    collectives: CollectivesProbe | None = Field(None, description="Collectives timed beside the workload.")
    nccl: Nccl = Nccl()
    ddp: Ddp = Ddp()
    measure: Measure = Measure()
    target: Target | None = Field(None, description="What each trial trains on to after its window.")
    isolation: Isolation = Field("warm", description="warm: sessions serve many trials; process: a session a trial.")
    launcher: Launcher = Field("ray", description="Who starts the ranks: Ray Train or torchrun.")
    planted: Planted = Planted()

    def canonical(self) -> str:
        """Canonical JSON of what differs from the defaults: sorted keys, no spaces, `25` and `25.0` alike.

        This is the text that is hashed. Defaults are left out so that a field added later keeps old ids.
        """
        return canonical_json(self.model_dump(mode="json", exclude_defaults=True))

    @property
    def cell_id(self) -> str:
        """Twelve hexadecimal digits of the SHA-256 of `canonical()`."""
        return content_id(self.canonical())

    def at(self, path: str) -> Any:
        """Value at a dotted path, such as `nccl.channels`; None below a section that the cell does without."""
        value: Any = self
        for name in path.split("."):
            if value is None:
                return None
            value = getattr(value, name)
        return value


def make_cell(fields: dict[str, Any]) -> Cell:
    """A cell from plain data that a valid sweep gave; sections that many cells share are made once."""
    made = {name: _section(name, _frozen(fields[name])) for name in SECTIONS if isinstance(fields.get(name), dict)}
    return Cell(**{**fields, **made})


SECTIONS = ("workload", "collectives", "nccl", "ddp", "measure", "target", "planted")


@lru_cache(maxsize=1024)
def _section(name: str, items: tuple[tuple[str, Any], ...]) -> Section:
    plain = {key: {n: v for n, _, v in value} if isinstance(value, frozenset) else value for key, value in items}
    around = {"workload": {"kind": "collectives"}, name: plain}
    section: Section = getattr(Cell.model_validate(around), name)
    return section


def _frozen(fields: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """A section's fields as a key; the only mapping inside one, `workload.options`, becomes a set.

    The set holds types too: 1 and true are equal in Python, and are two options.
    """
    return tuple(
        (name, frozenset((key, type(item), item) for key, item in value.items()) if isinstance(value, dict) else value)
        for name, value in fields.items()
    )


class Trial(Section):
    """One measurement of a cell: which visit and repeat and, for a 1-GPU baseline, which GPU of the pool (`slot`).

    `stage` says what it is measured for: `sweep` for the sweep's question; `sentinel` to see the session drift, where
    `repeat` counts the sentinels of the session; `confirm` to confirm what the sweep has selected.
    """

    cell: Cell
    visit: Annotated[int, Field(ge=1)]
    repeat: Annotated[int, Field(ge=1)] = 1
    slot: Annotated[int, Field(ge=0)] = 0
    stage: Stage = "sweep"

    @property
    def trial_id(self) -> str:
        """Content hash of the cell, visit, repeat, slot and stage; the same on every machine."""
        return trial_id_of(self.cell.canonical(), self.visit, self.repeat, self.slot, self.stage)


def trial_id_of(canonical: str, visit: int, repeat: int, slot: int, stage: Stage = "sweep") -> str:
    """Trial id from the canonical text of a cell, for callers that need many ids of one cell."""
    suffix = "" if stage == "sweep" else f"|{stage}"
    return content_id(f"{canonical}|v{visit}|r{repeat}|s{slot}{suffix}")


def as_text(value: Any) -> str:
    """A scalar of a sweep as text; 25 and 25.0 are alike.

    >>> as_text(25.0), as_text(0.5), as_text(True), as_text("ring")
    ('25', '0.5', 'true', 'ring')
    """
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)


def content_id(text: str) -> str:
    """First twelve hexadecimal digits of the SHA-256 of `text`."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def canonical_json(data: Any) -> str:
    """JSON text that is equal for equal data: sorted keys, no spaces, whole floats as integers.

    >>> canonical_json({"b": 25.0, "a": [1, 0.5]})
    '{"a":[1,0.5],"b":25}'
    """
    return _ENCODER.encode(_plain(data))


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """JSON data with whole floats as integers, so that 25 and 25.0 hash alike."""
    if isinstance(value, str | bool | int):
        return value
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
