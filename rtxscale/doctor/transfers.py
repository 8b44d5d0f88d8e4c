"""Measures transfers between GPUs and the host through a process of its own, under a watchdog.

A task that does not end in time is given up and named, its process is killed, and the rest goes on in a fresh one: one
hanging pair hides no other. While copies with the host run, PCIe links are sampled. Not a benchmark of collectives:
those are a sweep's. Caller: `cli.doctor`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rtxscale.doctor.facts import Facts, HostTransfer, PairTransfer, TransferFacts
from rtxscale.telemetry.nvml import NvmlProbe, NvmlUnavailableError
from rtxscale.topology.pcie import PcieLimit, PcieSample, judge_pcie

Task = tuple[Any, ...]
Results = dict[Task, dict[str, Any]]
START_S = 120.0
"""Importing torch and starting CUDA on all GPUs of a cold machine."""
TASK_S = 45.0
SAMPLE_S = 0.1
UNDER_LOAD = 100.0
MODULE = "rtxscale.doctor.torch_process"
HUNG = "did not end in {seconds:.0f} s and was given up"
DIED = "the process that copied ended with code {code}"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Seconds that a process may take to start, and one task to end."""

    start_s: float = START_S
    task_s: float = TASK_S


@dataclass(kw_only=True)
class _Links:
    """Samples of PCIe links, taken while copies with the host run."""

    probe: NvmlProbe | None
    samples: list[PcieSample] = field(default_factory=list)

    def take(self) -> None:
        if self.probe is None:
            return
        for row in self.probe.read_slow():
            # Copies do not count as utilisation in NVML, but they are the link's load.
            generation, width = row.get("pcie_generation"), row.get("pcie_width")
            self.samples.append(
                PcieSample(gpu=row["uuid"], generation=generation, width=width, utilisation_percent=UNDER_LOAD)
            )


def measure_transfers(facts: Facts, limits: Limits | None = None) -> TransferFacts:
    """Verified copies between each two used GPUs, and pinned copies of each alone and of all at once."""
    if reason := why_not(facts):
        return TransferFacts(not_run=reason)
    uuids = [gpu.device.uuid or "" for gpu in facts.used]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(uuids), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    links = _Links(probe=_probe())
    try:
        results = run_tasks(
            tasks(len(uuids)),
            lambda rest: [sys.executable, "-m", MODULE, json.dumps(rest)],
            limits or Limits(),
            environment=environment,
            while_host_copies=links.take,
        )
    finally:
        if links.probe is not None:
            links.probe.close()
    return transfer_facts(results, facts, links.samples)


def why_not(facts: Facts) -> str:
    """Why nothing can be measured; empty where it can."""
    if not facts.used:
        return "no GPU in use"
    if not facts.software.torch_cuda:
        return "no PyTorch with CUDA"
    if any(gpu.device.mig for gpu in facts.used):
        return "a GPU is in MIG mode"
    if any(gpu.pids for gpu in facts.used):
        return "a GPU is in use by another process"
    return ""


def tasks(gpus: int) -> list[Task]:
    """What to measure on that many GPUs; pairs come last, since they may hang.

    >>> tasks(2)
    [('host', 0), ('host', 1), ('together',), ('pair', 0, 1)]
    """
    pairs = [("pair", a, b) for a, b in itertools.combinations(range(gpus), 2)]
    return [*(("host", gpu) for gpu in range(gpus)), ("together",), *pairs]


def run_tasks(
    wanted: Sequence[Task],
    command: Callable[[Sequence[Task]], list[str]],
    limits: Limits,
    *,
    environment: dict[str, str] | None = None,
    while_host_copies: Callable[[], None] = lambda: None,
) -> Results:
    """Results by task. `command` makes the process that runs the tasks given to it."""
    results: Results = {}
    while rest := [task for task in wanted if task not in results]:
        with _process(command(rest), environment) as process:
            culprit, problem = _listen(process, results, limits, while_host_copies)
        if len(results) < len(wanted) and problem:
            results[culprit or rest[0]] = {"problem": problem}
            if culprit is None:  # it did not even start: neither would another
                results |= {task: {"problem": problem} for task in rest}
    return results


def _listen(
    process: subprocess.Popen[str], results: Results, limits: Limits, while_host_copies: Callable[[], None]
) -> tuple[Task | None, str]:
    """Take results until the process has no more; which task was running then, and what went wrong."""
    lines: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_read_into, args=(process, lines), daemon=True).start()
    running: Task | None = None
    began, limit = time.monotonic(), limits.start_s
    while True:
        try:
            line = lines.get(timeout=SAMPLE_S)
        except queue.Empty:
            if time.monotonic() - began > limit:
                return running, HUNG.format(seconds=limit)
            if running is not None and running[0] != "pair":
                while_host_copies()
            continue
        if line is None:
            return running, DIED.format(code=process.wait())
        said = _understood(line)
        if said is None:
            continue
        running = tuple(said["task"])
        began, limit = time.monotonic(), limits.task_s
        if "result" in said:
            results[running], running = said["result"], None


def transfer_facts(results: Results, facts: Facts, samples: Sequence[PcieSample]) -> TransferFacts:
    """The results with GPUs numbered as everywhere else, and the links judged."""
    indices = [gpu.index for gpu in facts.used]
    everyone = results.get(("together",), {})
    hosts, pairs = [], []
    for place, gpu in enumerate(indices):
        alone = results.get(("host", place), {})
        hosts.append(
            HostTransfer(
                gpu=gpu,
                to_device_gb_s=alone.get("to_device_gb_s"),
                from_device_gb_s=alone.get("from_device_gb_s"),
                to_device_together_gb_s=_at(everyone.get("to_device"), place),
                from_device_together_gb_s=_at(everyone.get("from_device"), place),
                problem=str(alone.get("problem", "") or everyone.get("problem", "")),
            )
        )
    for (a, b), found in ((task[1:], result) for task, result in results.items() if task[0] == "pair"):
        pairs.append(PairTransfer(a=indices[a], b=indices[b], **found))
    return TransferFacts(hosts=tuple(hosts), pairs=tuple(pairs), links=_judged(samples, facts))


def _judged(samples: Sequence[PcieSample], facts: Facts) -> Any:
    names = {gpu.device.uuid: gpu for gpu in facts.used}
    mine = [
        PcieSample(
            gpu=str(names[one.gpu].index),
            generation=one.generation,
            width=one.width,
            utilisation_percent=one.utilisation_percent,
        )
        for one in samples
        if one.gpu in names
    ]
    limits = {
        str(gpu.index): PcieLimit(generation=gpu.device.pcie_max_generation, width=gpu.device.pcie_max_width)
        for gpu in facts.used
    }
    return judge_pcie(mine, limits)


def _at(values: Sequence[float] | None, place: int) -> float | None:
    value = values[place] if values is not None and place < len(values) else None
    return value if value is not None and math.isfinite(value) else None


def _understood(line: str) -> dict[str, Any] | None:
    """A line of the process; libraries may print others."""
    try:
        said = json.loads(line)
    except ValueError:
        return None
    return said if isinstance(said, dict) and isinstance(said.get("task"), list) else None


def _read_into(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None  # noqa: S101  it is a pipe
    with process.stdout:
        for line in process.stdout:
            lines.put(line)
    lines.put(None)


@contextlib.contextmanager
def _process(command: list[str], environment: dict[str, str] | None) -> Any:
    process = subprocess.Popen(  # noqa: S603  our own module
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace", env=environment
    )
    try:
        yield process
    finally:
        process.kill()
        # A process stuck in the driver cannot be reaped; nobody waits for it for ever.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10.0)


def _probe() -> NvmlProbe | None:
    try:
        return NvmlProbe()
    except NvmlUnavailableError:
        return None
