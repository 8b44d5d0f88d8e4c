"""Packages that only some settings need: whether one is installed and new enough. Imports none of them."""

from __future__ import annotations

from importlib import metadata


def lacking(package: str, least: tuple[int, int], asked: str, needed: str) -> str:
    """What stands against a setting that needs the package, in words; empty when it is there and new enough.

    `asked`: what was found in the sweep file, such as "workload.tuning: found qlora". `needed`: what it
    takes, in words.
    """
    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError:
        return f"{asked} without {package}, which needs {needed}"
    numbers = tuple(int(part) for part in found.split("+")[0].split(".")[:2] if part.isdigit())
    return "" if numbers >= least else f"{asked} with {package} {found}; needs {needed}"
