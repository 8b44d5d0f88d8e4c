"""Machines as facts: a healthy one with RTX 5090s, and what is wrong with the others."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from rtxscale.doctor.facts import DriverFacts, Facts, GpuState, HostFacts, PairState, SettingFacts, SoftwareFacts
from rtxscale.telemetry.fields import Device
from rtxscale.topology.links import read_link

CARDS = {
    "5090": ("NVIDIA GeForce RTX 5090", (12, 0), 32607, 575.0, 5),
    "5080": ("NVIDIA GeForce RTX 5080", (12, 0), 16303, 360.0, 5),
    "pro48": ("NVIDIA RTX PRO 5000 Blackwell", (12, 0), 48935, 300.0, 5),
    "pro72": ("NVIDIA RTX PRO 5000 72GB Blackwell", (12, 0), 73415, 300.0, 5),
    "6000ada": ("NVIDIA RTX 6000 Ada Generation", (8, 9), 49140, 300.0, 4),
    "4090": ("NVIDIA GeForce RTX 4090", (8, 9), 24564, 450.0, 4),
    "h200": ("NVIDIA H200", (9, 0), 143771, 700.0, 5),
}


def gpu(index=0, card="5090", **changes):
    """One healthy GPU; `changes` go to the device where it has the field, else to the state."""
    name, capability, memory, limit, generation = CARDS[card]
    device = Device(
        kind="gpu",
        uuid=f"GPU-{index}",
        name=name,
        pci_bus_id=f"00000000:{index + 1:02X}:00.0",
        compute_capability=capability,
        memory_mib=memory,
        power_limit_w=limit,
        power_default_w=limit,
        power_max_w=limit,
        pcie_max_generation=generation,
        pcie_max_width=16,
        persistence=True,
    )
    of_device = {key: value for key, value in changes.items() if hasattr(device, key)}
    of_state = {key: value for key, value in changes.items() if key not in of_device}
    state = GpuState(
        index=index, device=replace(device, **of_device), utilisation=0.0, memory_used_mib=10.0, bar1_mib=65536
    )
    return replace(state, **of_state)


def pairs(gpus, link="PHB", label="GNS"):
    return tuple(
        PairState(a=a.index, b=b.index, link=read_link(link), peer_label=label) for a, b in combinations(gpus, 2)
    )


def machine(gpus=None, *, link="PHB", label="GNS", **parts):
    """A healthy machine with two RTX 5090s unless GPUs are given; `parts` replace fields of the parts of `Facts`."""
    gpus = (gpu(0), gpu(1)) if gpus is None else tuple(gpus)
    given = {
        "driver": DriverFacts(version="580.95.05", cuda="13.0", module_kind="open", module_version="580.95.05"),
        "software": SoftwareFacts(
            torch="2.9.0+cu128",
            torch_cuda="12.8",
            torch_architectures=("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"),
            cudnn="9.10.2.21",
            nccl="2.27.5",
            nccl_cuda="12.9",
            ray="2.60.0",
        ),
        "host": HostFacts(
            numa_nodes=1,
            numa_balancing=True,
            governors=("performance",) * 4,
            shm_mib=64_000,
            open_files=65_536,
        ),
        "settings": SettingFacts(results_root="/results", free_mib=500_000),
    }
    changed = {
        name: replace(given[name], **parts.pop(name)) if isinstance(parts.get(name), dict) else parts.pop(name, value)
        for name, value in given.items()
    }
    return Facts(gpus=gpus, pairs=pairs(gpus, link, label), **changed, **parts)
