"""Power meters at the wall, one small class per source: what each has shown since it was last read.

A reading is (Unix time in ns, W). Readings are of whatever hangs behind the meter, mostly the whole machine. Opened
through `open_meter`; polled by `telemetry.wall_meter`.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rtxscale.errors import BadInput, RunError
from rtxscale.spec.wall_power import WallPower
from rtxscale.telemetry.meter_log import LogColumns, read_log_lines

Reading = tuple[int, float]
TIMEOUT_S = 10.0
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
DCMI = re.compile(r"Instantaneous power reading:\s*(\d+(?:\.\d+)?)\s*Watts", re.IGNORECASE)
IPMI_USER, IPMI_PASSWORD = "RTXSCALE_IPMI_USER", "IPMI_PASSWORD"
REDFISH_USER, REDFISH_PASSWORD = "RTXSCALE_REDFISH_USER", "RTXSCALE_REDFISH_PASSWORD"
CHASSIS = "/redfish/v1/Chassis"
TRIED_LINES = 100
"""Of the lines that a log begins with, so many of the last show whether it can be read."""


class Meter(Protocol):
    """A source of readings. `is_log`: it gives what was written down meanwhile, and is asked in no time."""

    is_log: bool

    def read(self) -> Sequence[Reading]:
        """What it shows now, or has written down since the last read.

        Raises:
            OSError, ValueError: it cannot be read, or shows no power.
        """


class CommandMeter:
    """A program that prints the power in W: its first number."""

    is_log = False

    def __init__(self, words: Sequence[str], directory: Path, pattern: re.Pattern[str] = NUMBER) -> None:
        """`pattern` finds the number; without a group in it, the whole match."""
        self._words, self._directory, self._pattern = tuple(words), directory, pattern

    def read(self) -> Sequence[Reading]:
        """One reading, at the middle of the program's run."""
        began_ns = time.time_ns()
        try:
            done = subprocess.run(  # noqa: S603  named by the user's own sweep, no shell
                self._words, cwd=self._directory, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise ValueError(f"{self._words[0]} did not end in {TIMEOUT_S:.0f} s") from error
        found = self._pattern.search(done.stdout)
        if done.returncode or found is None:
            said = " ".join((done.stderr or done.stdout).split())[:200] or "nothing"
            raise ValueError(f"{self._words[0]} ended with code {done.returncode} and said: {said}")
        return [((began_ns + time.time_ns()) // 2, float(found[found.lastindex or 0]))]


class RedfishMeter:
    """The power of the first chassis that tells any, by a controller's Redfish interface."""

    is_log = False

    def __init__(self, address: str, environment: Mapping[str, str]) -> None:
        """`environment` holds user and password; certificates are verified as Python is set up to (SSL_CERT_FILE)."""
        self._address = address.rstrip("/")
        self._headers = {"Accept": "application/json"}
        if user := environment.get(REDFISH_USER):
            pair = f"{user}:{environment.get(REDFISH_PASSWORD, '')}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        self._place = ""

    def read(self) -> Sequence[Reading]:
        """One reading, at the middle of the request."""
        for place in (self._place,) if self._place else self._places():
            began_ns = time.time_ns()
            try:
                watts = chassis_power_w(self._get(place))
            except OSError:
                if self._place:
                    raise
                continue  # not every chassis has every resource
            if watts is not None:
                self._place = place
                return [((began_ns + time.time_ns()) // 2, watts)]
        raise ValueError("no chassis tells a power")

    def _places(self) -> list[str]:
        members = self._get(CHASSIS).get("Members", [])
        paths = [str(member["@odata.id"]) for member in members if isinstance(member, dict) and "@odata.id" in member]
        return [f"{path}/{resource}" for path in paths for resource in ("EnvironmentMetrics", "Power")]

    def _get(self, path: str) -> dict[str, Any]:
        request = urllib.request.Request(f"{self._address}{path}", headers=self._headers)  # noqa: S310  checked: http(s)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            found = json.load(answer)
        if not isinstance(found, dict):
            raise ValueError(f"{path} holds {type(found).__name__}; expected an object")
        return found


class CsvMeter:
    """A file that a meter's logger appends to; only what is added while we look counts."""

    is_log = True

    def __init__(self, path: Path, columns: LogColumns) -> None:
        """Remember the head of the file, and skip what is in it already.

        Raises:
            ValueError: it has no such columns, or nothing that can be read in them.
        """
        self._path, self._columns = path, columns
        with path.open("rb") as file:
            self._head = file.readline().decode(errors="replace")
        content = path.read_bytes()
        self._at = content.rfind(b"\n") + 1
        self._readings(content[: self._at].decode(errors="replace").splitlines()[-TRIED_LINES:])

    def read(self) -> Sequence[Reading]:
        """Readings in the lines that were finished since the last read.

        Raises:
            ValueError: there are such lines, and no reading in them.
        """
        size = self._path.stat().st_size
        if size < self._at:
            self._at = 0  # a new file under the old name
        with self._path.open("rb") as file:
            file.seek(self._at)
            added = file.read()
        whole = added[: added.rfind(b"\n") + 1]
        self._at += len(whole)
        return self._readings(whole.decode(errors="replace").splitlines())

    def _readings(self, lines: Sequence[str]) -> Sequence[Reading]:
        found = read_log_lines(self._head, lines, self._columns)
        others = [line for line in lines if line.strip() not in ("", self._head.strip())]
        if others and not found:
            raise ValueError(f"neither a time in Unix seconds or ISO 8601 nor a power in W in {others[-1][:100]!r}")
        return found


def open_meter(wanted: WallPower, directory: Path, environment: Mapping[str, str] | None = None) -> Meter:
    """The meter that a sweep in `directory` names, read once to see that it works.

    Raises:
        BadInput: what it names cannot be.
        RunError: it cannot be read.
    """
    environment = os.environ if environment is None else environment
    try:
        meter = _meter(wanted, directory, environment)
        meter.read()
    except (OSError, ValueError) as error:
        raise RunError(
            f"wall_power.source {wanted.source}: found {error}; expected a power in W: see that the meter can be read "
            "from here, or leave wall_power out of the sweep"
        ) from error
    return meter


def _meter(wanted: WallPower, directory: Path, environment: Mapping[str, str]) -> Meter:
    if wanted.source == "csv":
        columns = LogColumns(time=wanted.time_column or "time", power=wanted.power_column or "power_w")
        return CsvMeter(directory / (wanted.path or ""), columns)
    if wanted.source == "redfish":
        address = wanted.address or ""
        if not address.startswith(("https://", "http://")):
            raise BadInput(f"wall_power.address: found {address!r}; expected an address such as https://10.0.0.9")
        if address.startswith("http://") and environment.get(REDFISH_USER):
            raise BadInput(
                f"wall_power.address: found {address!r} and {REDFISH_USER} set; expected https://, so that nobody on "
                "the way can read the password"
            )
        return RedfishMeter(address, environment)
    if wanted.source == "ipmi":
        return CommandMeter(ipmi_words(wanted.address, environment), directory, DCMI)
    return CommandMeter(wanted.command, directory)


def ipmi_words(address: str | None, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The command that asks a controller for its power: this machine's own one, or that at an address.

    >>> ipmi_words("bmc1", {"RTXSCALE_IPMI_USER": "reader"})[:7]
    ('ipmitool', '-I', 'lanplus', '-H', 'bmc1', '-U', 'reader')
    """
    remote = ("-I", "lanplus", "-H", address, "-U", environment.get(IPMI_USER, "root"), "-E") if address else ()
    return ("ipmitool", *remote, "dcmi", "power", "reading")


def chassis_power_w(resource: Mapping[str, Any]) -> float | None:
    """The power in W in a Redfish EnvironmentMetrics or Power resource, None where it tells none.

    Source: DMTF DSP0268, EnvironmentMetrics.PowerWatts.Reading and Power.PowerControl[].PowerConsumedWatts.

    >>> chassis_power_w({"PowerWatts": {"Reading": 812.5}}), chassis_power_w({"PowerControl": [{}]})
    (812.5, None)
    """
    watts = resource.get("PowerWatts")
    found = watts.get("Reading") if isinstance(watts, dict) else None
    if found is None:
        controls = resource.get("PowerControl") or [{}]
        found = controls[0].get("PowerConsumedWatts") if isinstance(controls[0], dict) else None
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None
