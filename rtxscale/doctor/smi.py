"""What nvidia-smi says, as facts: a second source beside NVML, and the raw texts for the record.

Impure: runs nvidia-smi, each command with a limit of time, all at once. Never raises for what nvidia-smi does. Caller:
`doctor.collect`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from rtxscale.doctor.facts import SmiFacts
from rtxscale.topology.details import Details, parse_details
from rtxscale.topology.null_words import null_reason, read_number
from rtxscale.topology.smi import parse_peer_access, parse_topology

TOPOLOGY = "topo -m"
PEERS = {"topo -p2p r": "r", "topo -p2p w": "w"}
DETAILS = "-q"
TIMEOUT_S = 20.0
TEXT_LIMIT = 200_000
"""Characters of a text that are kept, in whole lines: a matrix of 72 devices has some 40,000."""

Run = Callable[[str], str | None]


def ask_smi(*, gpus: int, quick: bool, cpu_count: int | None) -> tuple[SmiFacts, dict[str, float]]:
    """The facts, and BAR1 sizes in MiB by PCI bus id. A quick look at one GPU asks nothing.

    Raises:
        OSError: nvidia-smi cannot be started.
    """
    commands = [*((TOPOLOGY, *PEERS) if gpus > 1 else ()), *(() if quick else (DETAILS,))]
    if not gpus or not commands:
        return SmiFacts(), {}
    if shutil.which("nvidia-smi") is None:
        return SmiFacts(problem="not found, so NVML is the only source"), {}
    with ThreadPoolExecutor(max_workers=len(commands)) as pool:
        answers = dict(zip(commands, pool.map(run_smi, commands), strict=True))
    texts = {command: text for command, text in answers.items() if text}
    late = [command for command, text in answers.items() if text is None]
    problem = f"{', '.join(late)}: no end after {TIMEOUT_S:.0f} s and given up" if late else ""
    return replace(smi_facts(texts, cpu_count), problem=problem), bar1_sizes(parse_details(texts.get(DETAILS, "")))


def run_smi(command: str) -> str | None:
    """Both outputs of one nvidia-smi command as text; None when it does not end in time."""
    try:
        done = subprocess.run(  # noqa: S603  a fixed command
            ["nvidia-smi", *command.split()],  # noqa: S607  found on the PATH, as the user would
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        return None
    return (done.stdout + done.stderr).decode(errors="replace")


def smi_facts(texts: Mapping[str, str], cpu_count: int | None) -> SmiFacts:
    """What the texts say; the long `-q` text holds serial numbers and is not kept."""
    kept = tuple((f"nvidia-smi {name}", kept_text(text)) for name, text in texts.items() if name != DETAILS)
    topology = texts.get(TOPOLOGY)
    return SmiFacts(
        topology=None if topology is None else parse_topology(topology, cpu_count),
        peer=tuple(parse_peer_access(texts[name], capability) for name, capability in PEERS.items() if name in texts),
        licensed_product=licensed_product(parse_details(texts.get(DETAILS, ""))),
        texts=kept,
    )


def kept_text(text: str) -> str:
    """The text, or as many whole lines of it as are kept: a line cut in two would say something else."""
    return text if len(text) <= TEXT_LIMIT else text[: text.rfind("\n", 0, TEXT_LIMIT) + 1]


def bar1_sizes(details: Details) -> dict[str, float]:
    """BAR1 in MiB by PCI bus id, where the text has it."""
    sizes: dict[str, float] = {}
    for detail in details.values:
        if detail.path[-2:] == ("BAR1 Memory Usage", "Total"):
            number = _number(detail.value)
            if number is not None:
                sizes[_bus_id(detail.path)] = number
    return sizes


def licensed_product(details: Details) -> str | None:
    """The licensed product of a vGPU or NVIDIA AI Enterprise, None where there is none."""
    product = details.find("vGPU Software Licensed Product", "Product Name")
    return None if product is None or null_reason(product) is not None else product


def _bus_id(path: Sequence[str]) -> str:
    return path[0].removeprefix("GPU ").lower()


def _number(text: str) -> float | None:
    try:
        return read_number(text, "MiB")
    except ValueError:
        return None
