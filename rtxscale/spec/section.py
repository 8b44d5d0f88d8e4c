"""The base of every part of a sweep: frozen, strict, unknown keys refused, words instead of booleans.

Validation looks at nothing outside the file: no cluster, no GPU, no environment.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

PositiveInt = Annotated[int, Field(ge=1, le=1_000_000_000)]
MOST_MIB = 1_048_576
"""A TiB, which no buffer of a GPU comes near; much larger numbers no longer count bytes."""
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
SizeMib = Annotated[float, Field(gt=0, le=MOST_MIB, allow_inf_nan=False)]

T = TypeVar("T")
Several = Annotated[tuple[T, ...], Field(strict=False)]
"""A YAML list, kept as a tuple; its items stay strict."""


class Section(BaseModel):
    """One mapping of the sweep file. `12` is accepted where a float is meant, nothing else is converted."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
