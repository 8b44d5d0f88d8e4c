"""Training with somebody's own code, as a sweep names it: where the code is, and what it is told.

Pure data: `workloads.scripts.script` finds and runs the code. Part of the union in `spec.workload`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from rtxscale.spec.section import PositiveFloat, PositiveInt, Section, Several
from rtxscale.spec.training import Precision

UNIT = r"^[A-Za-z][A-Za-z0-9_-]{0,31}$"
"""One unit of work: it is part of words such as `images/s`, in tables and pictures."""
UNIT_WORDS = "up to 32 letters or digits"


class Options(Section):
    """Values for somebody's own training: any names, each a single value; read as `workload.options.NAME`."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)
    __pydantic_extra__: dict[str, bool | int | float | str] = Field(init=False)

    def __eq__(self, other: object) -> bool:
        """Equal names with equal values of equal types: 1 and true are equal in Python, and are two options."""
        return isinstance(other, Options) and self._typed() == other._typed()

    def __hash__(self) -> int:
        """As `__eq__`."""
        return hash(self._typed())

    def _typed(self) -> frozenset[tuple[str, bool, bool | int | float | str]]:
        return frozenset((name, isinstance(value, bool), value) for name, value in self.__pydantic_extra__.items())


class ScriptWorkload(Section):
    """Train with somebody's own code: a function that builds a training step, or a script with a loop of its own.

    Not data, as everything else in a sweep is: this code runs. `path` and `directory` are relative to the sweep file.
    """

    kind: Literal["script"]
    entry: str = Field(
        "",
        pattern=r"^$|^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$",
        description="A function as package.module:function, which builds the training step.",
    )
    path: str = Field(
        "",
        pattern=r"^$|^[^/~\x00][^\x00]*\.py$",
        description="A script (.py) with its own loop, relative to directory.",
    )
    arguments: Several[str] = Field((), description="What the script finds in sys.argv behind its name.")
    directory: str = Field(
        ".", pattern=r"^[^/~\x00][^\x00]*$", description="Where modules are looked for, relative to the sweep file."
    )
    options: Options = Field(Options(), description="Values for the code: any names, each text, a number or a truth.")
    batch_per_gpu: PositiveInt | None = Field(None, description="Samples per GPU and step; the weak study's constant.")
    global_batch: PositiveInt | None = Field(None, description="Samples of all GPUs per step; the strong study's.")
    precision: Precision = Field("fp32", description="What the code is asked to compute in; it has to do so itself.")
    unit: str = Field("sample", pattern=UNIT, description=f"One unit of work: {UNIT_WORDS}.")
    work_per_step: PositiveFloat | None = Field(
        None, description="Units of work of one rank in a step; else what the code says, else its batch per GPU."
    )

    @property
    def identity(self) -> tuple[str, ...]:
        """The code; every trial of it has processes of its own."""
        return (self.kind, self.entry or self.path)

    @property
    def label(self) -> str:
        """How tables name it, such as `script/train:build`."""
        return f"{self.kind}/{self.entry or self.path}"
