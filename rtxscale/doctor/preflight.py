"""The quick examination before a sweep, on the driver's machine: errors stop it, everything else is said and kept.

No transfers, no torch. Caller: `cli.sweep`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from rtxscale.doctor.collect import collect
from rtxscale.doctor.examine import Examination, check_names, examine
from rtxscale.doctor.facts import DriverFacts
from rtxscale.doctor.finding import Severity
from rtxscale.doctor.show import environment_rows, short_line, wrapped
from rtxscale.errors import RunError

NODE = "driver"
"""Stands in for a node: with a remote cluster it is the machine that the sweep was started on."""


def preflight(results_root: Path, ignore: Collection[str] = (), *, on_cpu: bool = False) -> Examination:
    """Look at this machine; for a sweep that wants CPU workers, as if it had no GPU.

    Raises:
        BadInput: a name in `ignore` is no rule; nothing has been looked at then.
    """
    check_names(ignore)
    facts = collect(results_root, quick=True)
    if on_cpu:
        facts = replace(facts, gpus=(), pairs=(), driver=DriverFacts(), host=replace(facts.host, pci_gpus=()))
    return examine(facts, ignore)


def stop_on_errors(examination: Examination) -> None:
    """Let no sweep run on a machine that cannot give right numbers.

    Raises:
        RunError: there is an error that is not ignored.
    """
    if not examination.errors:
        return
    said = "\n".join(f"  {one.rule}: {short_line(one)}" for one in examination.errors)
    rules = " ".join(f"--ignore {name}" for name in dict.fromkeys(one.rule for one in examination.errors))
    raise RunError(
        f"the doctor found what makes measuring here pointless:\n{said}\nexpected none; `rtxscale doctor` says more; "
        f"{rules} runs all the same, and the report says so"
    )


def opening_lines(examination: Examination) -> list[str]:
    """Warnings, and errors that are ignored, in at most 80 columns, for the beginning of a sweep."""
    serious = [one for one in examination.findings if one.severity is not Severity.INFO]
    return [line for one in serious for line in wrapped(f"doctor: {one.rule}: {short_line(one)}")]


def rows(examination: Examination) -> tuple[dict[str, str], ...]:
    """What is kept with the results."""
    return tuple(environment_rows(examination, NODE))
