"""Rules about the host and the user's settings: limits, NUMA, virtualisation, variables, room for results.

Pure; a value that is not known gives no hit. Caller: `doctor.examine`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rtxscale.doctor.facts import Facts
from rtxscale.doctor.finding import Hit, Rule, Severity
from rtxscale.doctor.link_rules import all_reach_peers

SHM = "/dev/shm"  # noqa: S108  a name to show, nothing is written there
SHM_MIB = 1024
OPEN_FILES = 4096
ROOM_MIB = 2048
HIDES_ALL = frozenset({"", "-1"})


def cuda_devices(facts: Facts) -> Iterator[Hit]:
    """A CUDA_VISIBLE_DEVICES that does not say what it seems to say."""
    meant = (facts.settings.cuda_visible_devices or "").strip() in HIDES_ALL
    for note in facts.settings.visible_notes:
        if meant:
            yield Hit(
                severity=Severity.INFO,
                found=note,
                needed="nothing, if that is meant",
                why="Sweeps run on CPU workers then.",
            )
        else:
            yield Hit(severity=Severity.WARNING if facts.used else Severity.ERROR, found=note)


def device_order(facts: Facts) -> Iterator[Hit]:
    """CUDA and nvidia-smi numbering different GPUs alike."""
    order, names = facts.settings.cuda_device_order, {gpu.device.name for gpu in facts.gpus if not gpu.device.lost}
    if len(names) > 1 and order != "PCI_BUS_ID":
        yield Hit(
            severity=Severity.INFO,
            found=f"different GPU models and CUDA_DEVICE_ORDER {'not set' if order is None else order}",
        )


def nccl_settings(facts: Facts) -> Iterator[Hit]:
    """NCCL settings from outside the sweep."""
    if facts.settings.nccl_settings:
        names = facts.settings.nccl_settings
        more = f" and {len(names) - 6} more" if len(names) > 6 else ""
        severity = Severity.WARNING if facts.used else Severity.INFO
        yield Hit(severity=severity, found=f"NCCL settings from outside: {', '.join(names[:6])}{more}")


def numa_balancing(facts: Facts) -> Iterator[Hit]:
    """Automatic NUMA balancing on a machine where it moves pages."""
    if facts.host.numa_balancing and (facts.host.numa_nodes or 1) > 1:
        yield Hit(severity=Severity.WARNING, found=f"NUMA balancing is on, {facts.host.numa_nodes} NUMA nodes")


def governor(facts: Facts) -> Iterator[Hit]:
    """CPUs that clock down between steps."""
    slow = Counter(one for one in facts.host.governors if one != "performance")
    if slow:
        named = ", ".join(f"{word} ({count})" for word, count in slow.most_common())
        severity = Severity.WARNING if facts.used else Severity.INFO
        yield Hit(severity=severity, found=f"CPU frequency governor {named}")


def shared_memory(facts: Facts) -> Iterator[Hit]:
    """A small /dev/shm."""
    size = facts.host.shm_mib
    if size is not None and size < SHM_MIB:
        yield Hit(severity=Severity.WARNING, found=f"{SHM} of {size:.0f} MiB")


def open_files(facts: Facts) -> Iterator[Hit]:
    """A low limit of open files."""
    if facts.host.open_files is not None and facts.host.open_files < OPEN_FILES:
        yield Hit(severity=Severity.WARNING, found=f"at most {facts.host.open_files} open files")


def virtualisation(facts: Facts) -> Iterator[Hit]:
    """A container or a virtual machine."""
    if facts.host.container:
        yield Hit(
            severity=Severity.INFO,
            found=f"inside a container ({facts.host.container})",
            why="Owners of GPU processes outside it are not seen, and CPU and memory may be limited.",
            fix="nothing; start it with --ipc=host or a large --shm-size, and --ulimit memlock=-1",
        )
    if facts.host.virtual_machine and facts.gpus:
        yield Hit(
            severity=Severity.INFO,
            found="inside a virtual machine, with GPUs",
            why="The PCIe tree is what the host shows: distances between GPUs and NUMA nodes can be made up.",
        )


def iommu(facts: Facts) -> Iterator[Hit]:
    """An IOMMU in translation mode, and ACS that sends peer traffic through the root."""
    host = facts.host
    # Without peer traffic neither is in the way.
    if len(facts.used) < 2 or all_reach_peers(facts) is False or host.virtual_machine:
        return
    if host.iommu_groups and "iommu=pt" not in host.kernel_options:
        options = " ".join(host.kernel_options) or "none on the kernel's command line"
        yield Hit(severity=Severity.WARNING, found=f"IOMMU on, {host.iommu_groups} groups; options: {options}")
    if host.redirecting_bridges:
        bridges = host.redirecting_bridges
        more = f" and {len(bridges) - 4} more" if len(bridges) > 4 else ""
        yield Hit(
            severity=Severity.WARNING,
            found=f"ACS sends peer requests to the root at PCI bridges {', '.join(bridges[:4])}{more}",
        )


def room(facts: Facts) -> Iterator[Hit]:
    """Little room for results."""
    free = facts.settings.free_mib
    if free is not None and free < ROOM_MIB:
        yield Hit(severity=Severity.WARNING, found=f"{free:.0f} MiB free in {facts.settings.results_root}")


def unread_sources(facts: Facts) -> Iterator[Hit]:
    """Sources that failed: what they would have said was not checked."""
    for text in facts.unread:
        yield Hit(severity=Severity.INFO, found=text)
    if facts.smi.problem and facts.gpus:
        yield Hit(severity=Severity.INFO, found=f"nvidia-smi: {facts.smi.problem}")


RULES = (
    Rule(
        id="cuda_visible_devices",
        needed="a list of indices, or of UUIDs, that all exist",
        why="CUDA stops at the first entry that it does not understand, without a word.",
        fix="unset CUDA_VISIBLE_DEVICES, or name GPUs as `nvidia-smi -L` does",
        source="CUDA C++ Programming Guide, environment variables",
        check=cuda_devices,
    ),
    Rule(
        id="cuda_device_order",
        needed="CUDA_DEVICE_ORDER=PCI_BUS_ID",
        why="By default CUDA counts the fastest GPU first, and nvidia-smi by PCI bus: indices name different cards. "
        "rtxscale sets it for its own ranks.",
        fix="export CUDA_DEVICE_ORDER=PCI_BUS_ID in your own scripts",
        source="CUDA C++ Programming Guide, environment variables; unslothai/unsloth issue 6352",
        check=device_order,
    ),
    Rule(
        id="nccl_settings",
        needed="NCCL settings from the sweep file only",
        why="They change what `auto` means, in every cell alike.",
        fix="unset the variables, and empty /etc/nccl.conf and ~/.nccl.conf, unless they are meant",
        source="NCCL user guide, environment variables",
        check=nccl_settings,
    ),
    Rule(
        id="numa_balancing",
        needed="automatic NUMA balancing off while measuring",
        why="The kernel moves pages between nodes while steps run: step times scatter.",
        fix="sudo sysctl kernel.numa_balancing=0",
        source="NCCL user guide, troubleshooting; /proc/sys/kernel/numa_balancing; playbook P8",
        check=numa_balancing,
    ),
    Rule(
        id="cpu_governor",
        needed="governor performance while measuring",
        why="CPUs that clock down between steps enqueue kernels late: host-bound steps.",
        fix="sudo cpupower frequency-set -g performance",
        source="/sys/devices/system/cpu/cpufreq",
        check=governor,
    ),
    Rule(
        id="shared_memory",
        needed=f"{SHM} of {SHM_MIB} MiB or more",
        why="NCCL without P2P, data loaders and Ray put their buffers there; a container's default is 64 MiB.",
        fix="docker run --shm-size=8g, or --ipc=host",
        source="NCCL user guide, troubleshooting, shared memory",
        check=shared_memory,
    ),
    Rule(
        id="open_files",
        needed=f"{OPEN_FILES} open files or more",
        why="Ray and NCCL open sockets between every two processes.",
        fix="ulimit -n 65536",
        source="Ray documentation, ulimit",
        check=open_files,
    ),
    Rule(
        id="virtualisation",
        needed="nothing",
        why="",
        fix="nothing",
        source="/proc, /sys, the variables that containers set",
        check=virtualisation,
    ),
    Rule(
        id="iommu",
        needed="no IOMMU translation and no ACS redirection between GPUs",
        why="They send P2P traffic up to the CPU, or break it: NCCL hangs or is slow.",
        fix="iommu=pt on the kernel's command line, or the IOMMU and ACS off in the firmware",
        source="NCCL user guide, troubleshooting, PCI access control services; NVIDIA/nccl issue 2079",
        check=iommu,
    ),
    Rule(
        id="free_disk",
        needed=f"{ROOM_MIB} MiB free for results",
        why="A full disk ends a sweep; what is finished is kept.",
        fix="make room, or choose another place with --results or RTXSCALE_RESULTS",
        source="the size of runs: telemetry of 8 GPUs writes some 100 MiB a day",
        check=room,
    ),
    Rule(
        id="unread",
        needed="every source readable",
        why="What it would have said was not checked.",
        fix="nothing, if the source does not exist here",
        source="the doctor itself",
        check=unread_sources,
    ),
)
