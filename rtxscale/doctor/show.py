"""An examination as text of 80 columns, as JSON data, and as rows of the environment table.

Pure; whoever prints makes the text printable. Callers: `cli.doctor`, `doctor.preflight`.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rtxscale.doctor.examine import RULE_IDS, Examination
from rtxscale.doctor.facts import Facts
from rtxscale.doctor.finding import SUBJECT, Finding, Severity
from rtxscale.spec.printable import printable

WIDTH = 80
JSON_SHAPE = 1
WORDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def lines(examination: Examination) -> Iterator[str]:
    """The whole examination for a terminal, worst first."""
    yield from wrapped(machine(examination.facts), "")
    yield counts(examination)
    for one in examination.findings:
        yield ""
        yield from finding_lines(one)
    yield ""
    yield from wrapped(transfers_text(examination.facts), "")


def counts(examination: Examination) -> str:
    """How many findings of each kind, such as `1 error, 2 warnings, 1 ignored; 51 rules looked at`."""
    kinds = Counter("ignored" if one.ignored else WORDS[one.severity] for one in examination.findings)
    parts = [f"{kinds[word]} {word}{'s' * (kinds[word] != 1)}" for word in WORDS.values() if kinds[word]]
    if kinds["ignored"]:
        parts.append(f"{kinds['ignored']} ignored")
    return f"{', '.join(parts) or 'nothing found'}; {len(RULE_IDS)} rules looked at"


def finding_lines(one: Finding) -> Iterator[str]:
    """One finding; a note has no needed or fix where nothing is to be done."""
    ignored = " (ignored)" if one.ignored else ""
    yield f"{WORDS[one.severity]}: {one.rule}{ignored}"
    for label in ("found", "needed", "why", "fix", "source"):
        value = getattr(one, label)
        if value and value != "nothing":
            yield from wrapped(f"{label}: {value}", "  ")


def short_line(one: Finding) -> str:
    """One finding on one line, for the beginning of a sweep and for the results."""
    ignored = " (ignored by the user)" if one.ignored else ""
    needed = f"; needed: {one.needed}" if one.needed not in ("", "nothing") else ""
    fix = f"; fix: {one.fix}" if one.fix not in ("", "nothing") else ""
    return f"{WORDS[one.severity]}{ignored}: {one.found}{needed}{fix}"


def machine(facts: Facts) -> str:
    """The machine in a sentence."""
    names = Counter(gpu.device.name for gpu in facts.used)
    gpus = " + ".join(f"{count}x {name}" for name, count in names.items()) or "no GPU in use"
    driver, software = facts.driver, facts.software
    module = f", {driver.module_kind} kernel module" if driver.module_kind else ""
    built = f" (CUDA {software.torch_cuda})" if software.torch_cuda else " (CPU only)"
    return "; ".join(
        (
            gpus,
            f"driver {driver.version or 'unknown'}{module}",
            f"PyTorch {software.torch}{built}" if software.torch else "no PyTorch",
            f"NCCL {software.nccl or 'unknown'}",
            f"Ray {software.ray or 'unknown'}",
        )
    )


def transfers_text(facts: Facts) -> str:
    """What was measured between the GPUs and the host, or why nothing was."""
    found = facts.transfers
    if found.not_run:
        return f"transfers: not run ({found.not_run})"
    parts = [
        f"GPU {host.gpu} {_rate(host.to_device_gb_s)} in and {_rate(host.from_device_gb_s)} out alone, "
        f"{_rate(host.to_device_together_gb_s)} and {_rate(host.from_device_together_gb_s)} with all at once"
        for host in found.hosts
    ]
    parts += [
        f"GPU {pair.a} to GPU {pair.b} {_rate(pair.there_gb_s)}, back {_rate(pair.back_gb_s)}, "
        f"{'P2P' if pair.peer else 'through the host'}, a small copy {_microseconds(pair.small_copy_us)}, data "
        f"{'right' if pair.data_right else 'not checked' if pair.data_right is None else 'WRONG'}"
        for pair in found.pairs
    ]
    return f"transfers in GB/s: {'; '.join(parts) or 'none'}"


def as_data(examination: Examination) -> dict[str, Any]:
    """The examination as JSON data; the shape only grows, and `shape` changes when it does otherwise."""
    facts = examination.facts
    return {
        "shape": JSON_SHAPE,
        "exit_code": examination.exit_code,
        "machine": {
            "gpus": [
                {
                    "index": gpu.index,
                    "name": gpu.device.name,
                    "uuid": gpu.device.uuid,
                    "memory_mib": gpu.device.memory_mib,
                    "used": gpu in facts.used,
                }
                for gpu in facts.gpus
            ],
            "driver": facts.driver.version,
            "cuda_driver": facts.driver.cuda,
            "software": asdict(facts.software),
        },
        "findings": [{**asdict(one), "severity": one.severity.value} for one in examination.findings],
        "transfers": {
            "not_run": facts.transfers.not_run or None,
            "pairs": [asdict(pair) for pair in facts.transfers.pairs],
            "hosts": [asdict(host) for host in facts.transfers.hosts],
        },
        "texts": dict(facts.smi.texts),
        "rules": list(RULE_IDS),
    }


def environment_rows(examination: Examination, node: str) -> list[dict[str, str]]:
    """Findings, and nvidia-smi's raw texts, as rows (node, subject, name, value) of the environment table."""
    rows: dict[str, str] = {}
    for one in examination.findings:
        name = one.rule
        while name in rows:
            head, _, number = name.partition(" ")
            name = f"{head} {int(number or 1) + 1}"
        rows[name] = short_line(one)
    rows |= {f"text of {command}": text for command, text in examination.facts.smi.texts}
    if not examination.findings:
        rows["findings"] = "none"
    return [{"node": node, "subject": SUBJECT, "name": name, "value": _kept(value)} for name, value in rows.items()]


def _kept(text: str) -> str:
    """Printable, but with its tabs: nvidia-smi's columns hang on them."""
    return "\t".join(map(printable, text.split("\t")))


def wrapped(text: str, indent: str = "") -> list[str]:
    """Printable lines of at most 80 columns; commands and words are not cut at their hyphens."""
    return textwrap.wrap(
        printable(" ".join(text.split())),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_on_hyphens=False,
    )


def _rate(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f}"


def _microseconds(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0f} us"
