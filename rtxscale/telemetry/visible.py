"""Which GPUs CUDA_VISIBLE_DEVICES leaves, in every form that CUDA accepts, decided without CUDA.

Pure. Indices are taken in PCI bus order, which is how every rank is started (CUDA_DEVICE_ORDER=PCI_BUS_ID). Caller:
`telemetry.facts`.

Source: CUDA C++ Programming Guide, environment variables; of MIG instances the MIG user guide, device enumeration; for
repeated and abbreviated entries PyTorch's `torch.cuda._parse_visible_devices`, which follows the driver.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

LEADING_NUMBER = re.compile(r"[+-]?\d+")
LEGACY_MIG = re.compile(r"MIG-(GPU-[0-9a-fA-F-]+)/(\d+)/(\d+)")


@dataclass(frozen=True, kw_only=True)
class Visible:
    """Full UUIDs of the visible devices in the order given, and what the user should know about the value."""

    uuids: tuple[str, ...]
    notes: tuple[str, ...] = ()


def visible_devices(value: str | None, gpus: Sequence[str], mig_instances: Sequence[str] = ()) -> Visible:
    """The devices that CUDA shows for `value`, None meaning unset, on a machine with these UUIDs.

    As in CUDA, the first entry that names no device ends the list, and a device named twice leaves none at all.

    >>> visible_devices("1,0", ("GPU-a", "GPU-b")).uuids
    ('GPU-b', 'GPU-a')
    >>> visible_devices("0,-1,1", ("GPU-a", "GPU-b")).uuids
    ('GPU-a',)
    >>> visible_devices("0,0", ("GPU-a", "GPU-b")).notes
    ("CUDA_VISIBLE_DEVICES='0,0' names '0' twice: CUDA then shows no GPU",)
    """
    if value is None:
        return Visible(uuids=tuple(gpus))
    said = f"CUDA_VISIBLE_DEVICES={value!r}"
    if not value.strip():
        return Visible(uuids=(), notes=(f"{said} hides every GPU",) if gpus else ())
    entries = [entry.strip() for entry in value.split(",")]
    found: list[str] = []
    for entry in entries:
        match = _resolve(entry, _form(entries[0]), gpus, mig_instances)
        if match.uuid is None:
            end = f"{said}: {entry!r} {match.problem}; CUDA ignores it and what follows"
            return Visible(uuids=tuple(found), notes=(end,) if gpus else ())
        if match.uuid in found:
            return Visible(uuids=(), notes=(f"{said} names {entry!r} twice: CUDA then shows no GPU",))
        found.append(match.uuid)
    if len(found) > 1 and found[0] in mig_instances:
        return Visible(uuids=(found[0],), notes=(f"{said}: CUDA shows a process one MIG instance, the first",))
    return Visible(uuids=tuple(found))


@dataclass(frozen=True)
class _Match:
    uuid: str | None
    problem: str = ""


def _form(entry: str) -> str:
    """The form of the first entry holds for the whole list: CUDA does not mix them."""
    return next((form for form in ("GPU-", "MIG-") if entry.startswith(form)), "index")


def _resolve(entry: str, form: str, gpus: Sequence[str], mig_instances: Sequence[str]) -> _Match:
    if _form(entry) != form:
        return _Match(None, "is of another form than the first entry")
    if form == "index":
        return _by_index(entry, gpus)
    if LEGACY_MIG.fullmatch(entry):
        return _Match(None, "is the MIG form of drivers before 470; name the instance by its MIG-<UUID>")
    return _by_prefix(entry, gpus if form == "GPU-" else mig_instances)


def _by_index(entry: str, gpus: Sequence[str]) -> _Match:
    number = LEADING_NUMBER.match(entry)  # like strtol: CUDA reads "1gpu" as 1
    if number is None:
        return _Match(None, "is neither an index nor a UUID")
    index = int(number.group())
    if not 0 <= index < len(gpus):
        return _Match(None, f"is not an index from 0 to {len(gpus) - 1}" if index >= 0 else "ends the list")
    return _Match(gpus[index])


def _by_prefix(entry: str, uuids: Sequence[str]) -> _Match:
    exact = [uuid for uuid in uuids if uuid == entry]
    matches = exact or [uuid for uuid in uuids if uuid.startswith(entry)]
    if len(matches) == 1:
        return _Match(matches[0])
    return _Match(None, "fits several devices" if matches else "fits no device of this machine")
