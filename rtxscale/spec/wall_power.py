"""A meter of the power at the wall, as a sweep names it: plain data; `telemetry.meters` reads it.

Secrets are never in a sweep file: users and passwords of management controllers come from the environment.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rtxscale.spec.section import PositiveFloat, Section, Several

Source = Literal["ipmi", "redfish", "csv", "command"]

FIELDS_OF = {
    "ipmi": ((), ("address",)),
    "redfish": (("address",), ()),
    "csv": (("path",), ("time_column", "power_column")),
    "command": (("command",), ()),
}
"""By source: the fields that it needs beside `period_s`, and those that it may have."""


class WallPower(Section):
    """Where power at the wall is read while a sweep runs. It is kept apart from GPU power and never added to it."""

    source: Source = Field(
        description="ipmi: DCMI power of the machine's controller; redfish: its web interface; csv: a file that a "
        "meter's logger appends to; command: words that print watts."
    )
    period_s: PositiveFloat = Field(1.0, description="Seconds between two readings.")
    address: Annotated[str, Field(pattern=r"^(https?://)?[A-Za-z0-9\[][A-Za-z0-9.:\[\]_/-]{0,200}$")] | None = Field(
        None, description="Of the controller: a host for ipmi (else in-band), an https:// address for redfish."
    )
    path: Annotated[str, Field(min_length=1, max_length=1000)] | None = Field(
        None, description="The logger's file, relative to the sweep file."
    )
    time_column: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="Its column of times, Unix seconds or ISO 8601; else time."
    )
    power_column: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="Its column of watts; else power_w."
    )
    command: Several[Annotated[str, Field(min_length=1, max_length=1000)]] = Field(
        (), description="A program and its arguments, started without a shell in the sweep file's directory."
    )

    @property
    def asks_others(self) -> bool:
        """Whether reading it starts a named program, or shows credentials to a named address."""
        return self.source == "command" or self.address is not None
