"""Versions of driver, CUDA, NVML and nvidia-smi from nvidia-smi's text: banner, `-q` header and `--version`.

Knows the names before and since driver 610, and takes only what looks like a version: never "Deprecated" or "Not
Found". NVML and the CUDA driver are better sources where they can be asked. Callers: the doctor, imports of captures.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rtxscale.topology.matrix import clean_lines
from rtxscale.topology.null_words import null_reason

# Driver 610 calls the driver KMD (kernel mode) and its CUDA the UMD's (user mode), and still prints the old names in
# part. The first name of each list wins.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "driver": ("kmd version", "driver version"),
    "cuda": ("cuda umd version", "cuda version"),
    "nvml": ("nvml version", "nvml library version"),
    "smi": ("nvidia-smi version", "nvidia-smi"),
}
_KNOWN = frozenset(name for names in _NAMES.values() for name in names)
_VERSION = re.compile(r"(\d{1,6}(?:\.\d{1,6}){1,3})(?:\s+\[.*)?", re.ASCII)
_NEXT_IN_BANNER = re.compile(r"(?:KMD|Driver|CUDA UMD|CUDA) Version(?=\s*:)")


@dataclass(frozen=True, kw_only=True)
class Versions:
    """Versions as text, None where the text has none.

    `cuda_reason` says why there is no CUDA version although its field is there: "not found" on a vGPU host, where the
    driver offers no CUDA. `rejected` are values that are no version, `conflicts` old and new names that differ. `said`
    is the text, where it names no driver.
    """

    driver: str | None = None
    cuda: str | None = None
    nvml: str | None = None
    smi: str | None = None
    cuda_reason: str | None = None
    rejected: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    said: str = ""


def parse_versions(text: str) -> Versions:
    """Versions of the first banner, header or version list in the text.

    >>> parse_versions("KMD Version : 610.57.04").driver
    '610.57.04'
    >>> parse_versions("| NVIDIA-SMI 535.1   Driver Version: 535.1   CUDA Version: Not Found |").cuda_reason
    'not found'
    """
    values: dict[str, str] = {}
    for name, value in _fields(text):
        values.setdefault(name, value)
    found: dict[str, str | None] = {}
    rejected: list[str] = []
    conflicts: list[str] = []
    for subject, names in _NAMES.items():
        versions = {name: match[1] for name in names if (match := _VERSION.fullmatch(values.get(name, "")))}
        found[subject] = next(iter(versions.values()), None)
        if len(set(versions.values())) > 1:
            conflicts.append(", ".join(f"{name} {version}" for name, version in versions.items()))
        rejected += [f"{name}: {values[name]}" for name in names if name in values and name not in versions]
    return Versions(
        driver=found["driver"],
        cuda=found["cuda"],
        nvml=found["nvml"],
        smi=found["smi"],
        cuda_reason=_reason(values) if found["cuda"] is None else None,
        rejected=tuple(rejected),
        conflicts=tuple(conflicts),
        said="" if found["driver"] else text.strip(),
    )


def _fields(text: str) -> Iterator[tuple[str, str]]:
    """Known names and their values, from lines `name : value` and from a banner with several on one line."""
    for _, line in clean_lines(text):
        bare = line.strip(" \t|")
        if bare.startswith("NVIDIA-SMI ") and not bare.casefold().startswith("nvidia-smi version"):
            parts = _in_banner(bare)
        else:
            parts = [bare]
        for part in parts:
            name, colon, value = part.partition(":")
            if colon and name.strip().casefold() in _KNOWN:
                yield name.strip().casefold(), value.strip()


def _in_banner(line: str) -> list[str]:
    starts = [match.start() for match in _NEXT_IN_BANNER.finditer(line)]
    edges = [*starts, len(line)]
    own = line[: edges[0]].removeprefix("NVIDIA-SMI ").strip()
    # "NVIDIA-SMI has failed because ..." is a sentence.
    first = [f"NVIDIA-SMI: {own}"] if _VERSION.fullmatch(own) else []
    return first + [line[start:end].strip() for start, end in zip(starts, edges[1:], strict=True)]


def _reason(values: Mapping[str, str]) -> str | None:
    said = [values[name] for name in _NAMES["cuda"] if name in values]
    return next((reason for value in said if (reason := null_reason(value)) is not None), said[0] if said else None)
