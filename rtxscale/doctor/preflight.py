"""The quick examination before a sweep, on the driver's machine: errors stop it, everything else is said and kept.

No transfers, no torch. Callers: `cli.sweep`; `run.examination` for the nodes of a cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from rtxscale.doctor.cluster import ALL_RULE_IDS
from rtxscale.doctor.collect import collect
from rtxscale.doctor.examine import RULE_IDS, Examination, check_names, examine
from rtxscale.doctor.facts import DriverFacts, Facts
from rtxscale.doctor.finding import Finding, Severity
from rtxscale.doctor.show import environment_rows, short_line, wrapped
from rtxscale.errors import RunError

NODE = "driver"
"""Stands in for a node: with a remote cluster it is the machine that the sweep was started on."""


def preflight(results_root: Path, ignore: Collection[str] = (), *, on_cpu: bool = False) -> Examination:
    """Look at this machine; for a sweep that wants CPU workers, as if it had no GPU.

    Raises:
        BadInput: a name in `ignore` is no rule; nothing has been looked at then.
    """
    check_names(ignore, ALL_RULE_IDS)
    facts = collect(results_root, quick=True)
    own = [name for name in ignore if name in RULE_IDS]
    return examine(without_gpus(facts) if on_cpu else facts, own)


def without_gpus(facts: Facts) -> Facts:
    """The same machine as a sweep on CPU workers sees it."""
    return replace(facts, gpus=(), pairs=(), driver=DriverFacts(), host=replace(facts.host, pci_gpus=()))


def stop_on_errors(examination: Examination) -> None:
    """Let no sweep run on a machine that cannot give right numbers.

    Raises:
        RunError: there is an error that is not ignored.
    """
    refuse([("", one) for one in examination.errors])


def refuse(errors: Sequence[tuple[str, Finding]]) -> None:
    """Let no sweep run where there are errors; each comes with its node, which is empty for the driver's machine.

    Raises:
        RunError: there are some.
    """
    if not errors:
        return
    said = "\n".join(f"  {f'{node}: ' if node else ''}{one.rule}: {short_line(one)}" for node, one in errors)
    rules = " ".join(f"--ignore {name}" for name in dict.fromkeys(one.rule for _, one in errors))
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
