"""What one rank keeps from its first trial to its last: device, control, resident model, NCCL's log.

A worker group is one session; trials come and go in it. Nothing here measures. Caller: `rank.loop`.
"""

from __future__ import annotations

import gc
import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from rtxscale.rank.control import Control
from rtxscale.rank.evidence import NcclLog
from rtxscale.rank.place import Place
from rtxscale.rank.vitals import Vitals, open_vitals

CPU_INFO = Path("/proc/cpuinfo")


@dataclass(kw_only=True)
class Session:
    """One rank's standing equipment.

    `soaked`: workload and precision -> seconds of soak they have had, as asked. `roofs`: precision -> TFLOP/s of matrix
    products on this rank's GPU, None where it had no room for them.
    """

    place: Place
    device: torch.device
    control: Control
    log: NcclLog | None
    kept: dict[str, Any] = field(default_factory=dict)
    soaked: dict[tuple[str, ...], float] = field(default_factory=dict)
    roofs: dict[str, float | None] = field(default_factory=dict)
    vitals: Vitals = field(default_factory=Vitals)

    @property
    def device_name(self) -> str:
        """Model name of this rank's GPU or CPU."""
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else cpu_name(CPU_INFO)

    @property
    def gpu_uuid(self) -> str | None:
        """UUID of this rank's GPU as NVML writes it; None without a GPU."""
        return gpu_uuid_of(self.device)

    def soak_owed_s(self, subject: tuple[str, ...], soak_s: float) -> float:
        """Seconds of soak that a workload and precision still need; equal on all ranks, which must soak together."""
        return max(0.0, soak_s - self.soaked.get(subject, 0.0))

    def note_soak(self, subject: tuple[str, ...], soak_s: float) -> None:
        """Remember that they have had it; not before it is over, as a trial may end in the middle of it."""
        self.soaked[subject] = max(soak_s, self.soaked.get(subject, 0.0))

    def tidy(self) -> None:
        """Free what the last trial left behind, so that the next one starts with an empty device."""
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)

    def close(self) -> None:
        """Let go of everything."""
        self.kept.clear()
        self.vitals.close()
        gc.unfreeze()
        if self.log is not None:
            self.log.close()


def gpu_uuid_of(device: torch.device) -> str | None:
    """UUID of a GPU as NVML writes it; None for a CPU."""
    if device.type != "cuda":
        return None
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    return uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"


def cpu_name(path: Path) -> str:
    """Model name of the CPU as Linux gives it, else the architecture."""
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def open_session(place: Place) -> Session:
    """Take the rank's device and threads. What is loaded by now is kept out of later garbage collections."""
    torch.set_num_threads(place.threads)
    device = torch.device("cpu")
    if place.device == "cuda":
        device = torch.device("cuda", place.local_rank)
        torch.cuda.set_device(device)
    gc.collect()
    gc.freeze()
    return Session(
        place=place,
        device=device,
        control=Control(place.rank, place.world),
        log=NcclLog() if place.device == "cuda" else None,
        vitals=open_vitals(gpu_uuid_of(device)),
    )
