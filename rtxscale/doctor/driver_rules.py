"""Rules about the NVIDIA driver: it answers, is new enough, of the right kind, and installed once (playbook P1, P7).

Pure; each check gives a hit only for what is known to be wrong. Caller: `doctor.examine`.
"""

from __future__ import annotations

from collections.abc import Iterator

from rtxscale.doctor import guide, matrix
from rtxscale.doctor.facts import Facts
from rtxscale.doctor.finding import Hit, Rule, Severity
from rtxscale.doctor.matrix import is_below, read_version

NEWER_DRIVER = "install a newer driver from NVIDIA or your distribution, then reboot"
FOREIGN_MODULES = frozenset({"nouveau", "nova_core", "nvidiafb"})
"""Kernel modules that hold NVIDIA's cards and give no CUDA. `vfio-pci` does so on purpose, for a virtual machine."""
OPEN_MODULE = "install the open kernel module, such as nvidia-driver-580-open on Ubuntu, and reboot"


def driver_answers(facts: Facts) -> Iterator[Hit]:
    """A driver that is there but does not work; no GPU at all is only said."""
    problem, cards = facts.driver.nvml_problem, facts.host.pci_gpus
    if not problem:
        return
    where = f"{len(cards)} NVIDIA device{'s' * (len(cards) != 1)} on the PCI bus, but "
    if facts.driver.nvml_broken and (cards or facts.driver.module_version):
        yield Hit(severity=Severity.ERROR, found=(where if cards else "") + problem)
    elif cards:
        inside = " (in a container: start it with --gpus all)" if facts.host.container else ""
        yield Hit(severity=Severity.WARNING, found=f"{where}{problem}{inside}")
    else:
        yield Hit(
            severity=Severity.INFO,
            found=f"no GPU: {problem}; checked the rest",
            needed="nothing",
            why="Sweeps run on CPU workers here.",
            fix="nothing, if this machine has no NVIDIA GPU",
        )


def driver_new_enough(facts: Facts) -> Iterator[Hit]:
    """A driver that cannot know a Blackwell card, or offers no CUDA, or an older one than PyTorch's."""
    driver = facts.driver
    if facts.has_blackwell and is_below(driver.version or driver.module_version, matrix.DRIVER_FOR_BLACKWELL):
        yield Hit(
            severity=Severity.ERROR,
            found=f"driver {driver.version or driver.module_version} with a Blackwell GPU",
            needed=f"driver {matrix.DRIVER_FOR_BLACKWELL.text} or newer for Blackwell",
            why=f"Older drivers do not know the card. {guide.answer(guide.DRIVER)}",
            fix=f"{NEWER_DRIVER}; on Blackwell with the open kernel module",
        )
    if driver.version and facts.gpus and driver.cuda is None:
        yield _without_cuda(facts)
    built = read_version(facts.software.torch_cuda)
    need = matrix.DRIVER_FOR_CUDA.get(built[0]) if built else None
    if not facts.gpus or built is None or need is None or not _older_than_torch(facts, built[0], need):
        return
    offered = f" (CUDA {driver.cuda})" if driver.cuda else ""
    yield Hit(
        severity=Severity.ERROR,
        found=f"driver {driver.version or 'unknown'}{offered}, PyTorch built for CUDA {facts.software.torch_cuda}",
        needed=f"driver {need.text} or newer for CUDA {built[0]}",
        fix=f"{NEWER_DRIVER}, or install a PyTorch built for CUDA {driver.cuda or 'of your driver'} or older",
    )


def _without_cuda(facts: Facts) -> Hit:
    why = "So does the host driver of a vGPU machine: CUDA works only inside its guests."
    fix = "run in a guest, or install the normal driver"
    if facts.host.container:
        why = f"A container that is given the driver's tools only has no libcuda. {why}"
        fix = f"start the container with -e NVIDIA_DRIVER_CAPABILITIES=compute,utility; else {fix}"
    return Hit(
        severity=Severity.ERROR,
        found=f"driver {facts.driver.version} is there, but offers no CUDA",
        needed="a driver that offers CUDA",
        why=why,
        fix=fix,
    )


def _older_than_torch(facts: Facts, built_major: int, need: matrix.Need) -> bool:
    # With a compatibility package an old driver offers a newer CUDA: what it offers decides.
    offered = read_version(facts.driver.cuda)
    return offered[0] < built_major if offered else is_below(facts.driver.version, need)


def kernel_module(facts: Facts) -> Iterator[Hit]:
    """Another kernel module than NVIDIA's on a card, or the proprietary one with a Blackwell card."""
    foreign = [card for card in facts.host.pci_gpus if card.module in FOREIGN_MODULES]
    if foreign:
        named = ", ".join(f"{card.module} on {card.bus_id}" for card in foreign)
        module = foreign[0].module
        yield Hit(
            severity=Severity.ERROR if facts.driver.nvml_broken else Severity.WARNING,
            found=f"another kernel module than NVIDIA's: {named}",
            needed="NVIDIA's kernel module on every card that is to compute",
            why="One module holds a card: while that one does, NVIDIA's does not get it, and there is no CUDA.",
            fix=f"echo 'blacklist {module}' | sudo tee /etc/modprobe.d/blacklist-{module}.conf; rebuild the initial "
            "ramdisk (sudo update-initramfs -u, or sudo dracut --force); reboot",
        )
    if facts.has_blackwell and facts.driver.module_kind == "proprietary":
        yield Hit(severity=Severity.ERROR, found="the proprietary NVIDIA kernel module with a Blackwell GPU")


def driver_installs(facts: Facts) -> Iterator[Hit]:
    """Two drivers over each other: package and .run file, or libraries of several versions."""
    driver = facts.driver
    loaded = driver.module_version
    others = [version for version in driver.libraries if loaded and version != loaded]
    if driver.packages and driver.uninstaller:
        named = ", ".join(driver.packages[:3])
        yield Hit(
            severity=Severity.WARNING,
            found=f"a driver of the .run installer (nvidia-uninstall) beside packages ({named})",
        )
    if others and loaded not in driver.libraries:
        # Where NVML answers all the same, the one that is used is right.
        yield Hit(
            severity=Severity.ERROR if driver.nvml_problem else Severity.WARNING,
            found=f"kernel module {loaded}, but driver libraries {', '.join(driver.libraries)}",
            fix="reboot if the driver was just updated; else remove one of the two installations",
        )
    elif others:
        yield Hit(
            severity=Severity.WARNING,
            found=f"driver libraries of several versions: {', '.join(driver.libraries)}; kernel module {loaded}",
        )


RULES = (
    Rule(
        id="driver_answers",
        needed="a driver that answers through NVML",
        why="Without it CUDA sees no GPU, and a sweep would silently measure CPU workers.",
        fix="reboot after a driver update; otherwise reinstall the driver (`sudo dmesg | grep NVRM` says why)",
        source="nvml.h, nvmlReturn_t",
        check=driver_answers,
    ),
    Rule(
        id="driver_version",
        needed="a driver as new as the card and PyTorch's CUDA",
        why="CUDA applications of one major version need at least its first driver.",
        fix=NEWER_DRIVER,
        source=f"{matrix.COMPATIBILITY}; {matrix.DRIVER_FOR_BLACKWELL.source}",
        check=driver_new_enough,
    ),
    Rule(
        id="kernel_module",
        needed="the open NVIDIA kernel module on Blackwell",
        why="Blackwell works with the open module only: 'requires use of the NVIDIA open kernel modules' (dmesg).",
        fix=OPEN_MODULE,
        source="NVIDIA driver README, open kernel modules, interaction with Nouveau; playbook, hardware in scope",
        check=kernel_module,
    ),
    Rule(
        id="driver_installs",
        needed="one driver installation",
        why="Two drivers over each other leave a module and libraries of different versions after the next update.",
        fix="`sudo nvidia-uninstall`, then reinstall the packages, then reboot",
        source="NVIDIA driver README, installing the driver; playbook, hardware in scope",
        check=driver_installs,
    ),
)
