"""The host and the user's settings as facts, from /proc, /sys and the environment; the latter is allow-listed.

Impure; `root` stands in for / in tests. Never raises for a file that is missing or cannot be read. Caller:
`doctor.collect`.
"""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Mapping
from pathlib import Path

from rtxscale.doctor.facts import HostFacts, PciGpu, SettingFacts
from rtxscale.topology.id_lists import read_id_list

MIB = 1024 * 1024
NVIDIA, DISPLAY, BRIDGE = 0x10DE, 0x03, 0x0604
OPTIONS = ("iommu", "intel_iommu", "amd_iommu", "pci", "pcie_acs_override", "pcie_aspm")
CONTAINER_FILES = {".dockerenv": "Docker", "run/.containerenv": "Podman"}
CONTAINER_WORDS = ("docker", "kubepods", "containerd", "lxc")
EXTENDED_START, EXTENDED_END = 0x100, 0x1000
ACS = 0x000D
ACS_CONTROL = 6
ACS_REQUEST_REDIRECT = 0x4
NCCL_FILES = ("etc/nccl.conf",)


def look_at_host(environment: Mapping[str, str], root: Path = Path("/")) -> HostFacts:
    """What the host is like."""
    return HostFacts(
        pci_gpus=pci_gpus(root),
        numa_nodes=_count_ids(_read(root / "sys/devices/system/node/online")),
        numa_balancing=_flag(_read(root / "proc/sys/kernel/numa_balancing")),
        governors=tuple(
            text
            for policy in _children(root / "sys/devices/system/cpu/cpufreq")
            if (text := _read(policy / "scaling_governor"))
        ),
        shm_mib=_size_mib(root / "dev/shm"),
        open_files=_open_files(),
        container=container(environment, root),
        virtual_machine="hypervisor" in _cpu_flags(_read(root / "proc/cpuinfo")) or None,
        iommu_groups=len(_children(root / "sys/kernel/iommu_groups")) or None,
        kernel_options=kernel_options(_read(root / "proc/cmdline")),
        redirecting_bridges=redirecting_bridges(root),
    )


def look_at_settings(
    environment: Mapping[str, str], results_root: Path, home: Path, root: Path = Path("/"), psu_w: float | None = None
) -> SettingFacts:
    """What the user has set; of NCCL the names only, of Ray's token only whether there is one."""
    names = sorted(name for name in environment if name.startswith("NCCL_"))
    files = [root / name for name in NCCL_FILES] + [home / ".nccl.conf"]
    token = home / ".ray" / "auth_token"
    return SettingFacts(
        cuda_visible_devices=environment.get("CUDA_VISIBLE_DEVICES"),
        cuda_device_order=environment.get("CUDA_DEVICE_ORDER"),
        nccl_settings=(*names, *(f"file {path.name}" for path in files if _read(path))),
        ray_address=bool(environment.get("RAY_ADDRESS")),
        ray_auth_mode=environment.get("RAY_AUTH_MODE"),
        ray_token=any(name in environment for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")) or token.is_file(),
        results_root=str(results_root),
        free_mib=free_mib(results_root),
        psu_w=psu_w,
    )


def free_mib(path: Path) -> float | None:
    """Room in MiB where the path is, or will be."""
    for place in (path, *path.absolute().parents):
        try:
            return shutil.disk_usage(place).free / MIB
        except OSError:
            continue
    return None


def pci_gpus(root: Path) -> tuple[PciGpu, ...]:
    """NVIDIA's display devices on the PCI bus."""
    found = []
    for device in _children(root / "sys/bus/pci/devices"):
        vendor, kind = _hex(_read(device / "vendor")), _hex(_read(device / "class"))
        if vendor == NVIDIA and kind is not None and kind >> 16 == DISPLAY:
            found.append(
                PciGpu(
                    bus_id=device.name,
                    device_id=_hex(_read(device / "device")) or 0,
                    module=_link_name(device / "driver"),
                )
            )
    return tuple(found)


def redirecting_bridges(root: Path) -> tuple[str, ...] | None:
    """PCI bridges whose ACS redirects peer requests; None where no configuration can be read, as for a plain user."""
    read = False
    found = []
    for device in _children(root / "sys/bus/pci/devices"):
        kind = _hex(_read(device / "class"))
        if kind is None or kind >> 8 != BRIDGE:
            continue
        redirects = acs_redirects(_bytes(device / "config"))
        read |= redirects is not None
        if redirects:
            found.append(device.name)
    return tuple(found) if read else None


def acs_redirects(configuration: bytes) -> bool | None:
    """Whether a bridge's access control services redirect peer requests; None where the extended part is not readable.

    Source: PCI Express base specification, ACS extended capability (id 0x000D), control register, P2P request redirect.
    """
    if len(configuration) < EXTENDED_END:
        return None
    at = EXTENDED_START
    seen: set[int] = set()
    while EXTENDED_START <= at <= EXTENDED_END - 4 and at not in seen:
        seen.add(at)
        header = int.from_bytes(configuration[at : at + 4], "little")
        if header & 0xFFFF == ACS:
            control = configuration[at + ACS_CONTROL : at + ACS_CONTROL + 2]
            return bool(int.from_bytes(control, "little") & ACS_REQUEST_REDIRECT)
        at = header >> 20
    return False


def kernel_options(command_line: str) -> tuple[str, ...]:
    """The options that matter to GPUs; the rest, which may name disks and hosts, is left out.

    >>> kernel_options("BOOT_IMAGE=/vmlinuz root=UUID=1 quiet intel_iommu=on iommu=pt")
    ('intel_iommu=on', 'iommu=pt')
    """
    return tuple(word for word in command_line.split() if word.partition("=")[0] in OPTIONS)


def container(environment: Mapping[str, str], root: Path) -> str:
    """What kind of container this is; empty outside of one."""
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "Kubernetes"
    for name, kind in CONTAINER_FILES.items():
        if (root / name).exists():
            return kind
    groups = _read(root / "proc/1/cgroup")
    return next((word for word in CONTAINER_WORDS if word in groups), environment.get("container", ""))


def _open_files() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def _size_mib(path: Path) -> float | None:
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_blocks * found.f_frsize / MIB


def _cpu_flags(text: str) -> set[str]:
    line = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return set(line.split())


def _count_ids(text: str) -> int | None:
    ids = read_id_list(text)
    return None if ids is None else sum(len(span) for span in ids)


def _flag(text: str) -> bool | None:
    return int(text) > 0 if text.isdigit() else None


def _link_name(path: Path) -> str | None:
    try:
        return path.readlink().name
    except OSError:
        return None


def _hex(text: str) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
