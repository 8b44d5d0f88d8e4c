"""Rules about the GPUs themselves: matched, at stock settings, idle, whole (playbook P6, P11, P12, P23).

Pure; a value that is not known gives no hit. Caller: `doctor.examine`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

from rtxscale.devices.facts import EFFICIENCY_CONDITIONS
from rtxscale.doctor import guide
from rtxscale.doctor.facts import Facts, GpuState
from rtxscale.doctor.finding import Hit, Rule, Severity, gpus_text
from rtxscale.telemetry.window import SLOWDOWNS

LIMIT_TOLERANCE_W = 1.0
BUSY = 0.10
"""Utilisation that an idle GPU does not have."""
HELD_SHARE = 0.05
"""Share of memory that driver and desktop may hold on an idle GPU."""
POWER_BRAKE = "hw_power_brake_slowdown"


def grouped(gpus: tuple[GpuState, ...], key: Callable[[GpuState], Hashable | None]) -> dict[Hashable, list[int]]:
    """Indices of the GPUs by what is known of them; those of which it is not known are left out."""
    groups: dict[Hashable, list[int]] = {}
    for gpu in gpus:
        value = key(gpu)
        if value is not None:
            groups.setdefault(value, []).append(gpu.index)
    return groups


def said(groups: dict[Hashable, list[int]], unit: str = "") -> str:
    """Groups in words: `Ada on GPU 0, Blackwell on GPUs 1-3`."""
    return ", ".join(f"{value}{unit} on {gpus_text(indices)}" for value, indices in groups.items())


def lost_gpus(facts: Facts) -> Iterator[Hit]:
    """GPUs that are gone, or that NVML cannot open."""
    for gpu in facts.gpus:
        if gpu.device.lost:
            yield Hit(severity=Severity.ERROR, found=f"{gpus_text([gpu.index])} ({gpu.device.name}): {gpu.device.lost}")
    for text in facts.driver.unreachable:
        yield Hit(severity=Severity.ERROR, found=f"cannot be opened: {text}")


def missing_gpus(facts: Facts) -> Iterator[Hit]:
    """GPUs on the PCI bus that the driver does not show."""
    on_bus, shown = len(facts.host.pci_gpus), len(facts.gpus) + len(facts.driver.unreachable)
    if facts.gpus and on_bus > shown and not facts.host.container:
        others = [
            f"{one.module} holds {one.bus_id}" for one in facts.host.pci_gpus if one.module not in (None, "nvidia")
        ]
        yield Hit(
            severity=Severity.WARNING,
            found="; ".join((f"{on_bus} NVIDIA devices on the PCI bus, {shown} shown by the driver", *others)),
        )


def mig(facts: Facts) -> Iterator[Hit]:
    """MIG mode."""
    if cut := [gpu.index for gpu in facts.used if gpu.device.mig]:
        yield Hit(severity=Severity.WARNING, found=f"MIG mode on {gpus_text(cut)}")


def generations(facts: Facts) -> Iterator[Hit]:
    """GPU generations mixed in one node."""
    groups = grouped(facts.used, lambda gpu: gpu.generation)
    if len(groups) > 1:
        yield Hit(severity=Severity.ERROR, found=said(groups))


def matched(facts: Facts) -> Iterator[Hit]:
    """GPUs of one generation that differ in model, memory or power limit."""
    kinds: tuple[tuple[Callable[[GpuState], Hashable | None], str], ...] = (
        (lambda gpu: gpu.device.name or None, ""),
        (lambda gpu: gpu.device.memory_mib, " MiB"),
        (lambda gpu: gpu.device.power_limit_w, " W"),
    )
    for key, unit in kinds:
        groups = grouped(facts.used, key)
        if len(groups) > 1:
            yield Hit(severity=Severity.WARNING, found=said(groups, unit))
            return  # what differs in model differs in the rest too


def power_limit(facts: Facts) -> Iterator[Hit]:
    """A power limit that is not the stock one."""
    for gpu in facts.used:
        limit, stock = gpu.device.power_limit_w, gpu.device.power_default_w
        if limit is not None and stock is not None and abs(limit - stock) > LIMIT_TOLERANCE_W:
            yield Hit(
                severity=Severity.WARNING,
                found=f"{gpus_text([gpu.index])}: power limit {limit:g} W, stock {stock:g} W",
                fix=f"sudo nvidia-smi -i {gpu.index} -pl {stock:g}",
            )


def clocks(facts: Facts) -> Iterator[Hit]:
    """Clock offsets, and application clocks other than the default."""
    for gpu in facts.used:
        offsets = {"core": gpu.core_offset_mhz, "memory": gpu.memory_offset_mhz}
        changed = [f"{name} clock offset {value:+d} MHz" for name, value in offsets.items() if value]
        application, default = gpu.application_clock_mhz, gpu.default_application_clock_mhz
        if application and default and application != default:
            changed.append(f"application clock {application} MHz, default {default} MHz")
        if "applications_clocks_setting" in gpu.throttle_reasons:
            changed.append("clocks held by a setting (locked or application clocks)")
        if changed:
            yield Hit(severity=Severity.WARNING, found=f"{gpus_text([gpu.index])}: {'; '.join(changed)}")


def persistence(facts: Facts) -> Iterator[Hit]:
    """Persistence mode off."""
    if off := [gpu.index for gpu in facts.used if gpu.device.persistence is False]:
        yield Hit(severity=Severity.INFO, found=f"persistence mode off on {gpus_text(off)}")


def slowdown(facts: Facts) -> Iterator[Hit]:
    """A GPU that is slowed down before anything runs."""
    for gpu in facts.used:
        reasons = sorted(SLOWDOWNS & set(gpu.throttle_reasons))
        if not reasons:
            continue
        brake = POWER_BRAKE in reasons
        yield Hit(
            severity=Severity.WARNING,
            found=f"{gpus_text([gpu.index])}: slowed down now by {', '.join(reasons)}",
            fix="check the power supply and its cables: a power brake comes from them" if brake else "",
        )


def foreign_processes(facts: Facts) -> Iterator[Hit]:
    """Somebody else on the GPUs."""
    for gpu in facts.used:
        if gpu.pids:
            pids = ", ".join(map(str, gpu.pids[:5])) + (", ..." if len(gpu.pids) > 5 else "")
            yield Hit(severity=Severity.WARNING, found=f"{gpus_text([gpu.index])}: in use by process {pids}")
            continue
        held = (gpu.memory_used_mib or 0) / (gpu.device.memory_mib or float("inf"))
        if (gpu.utilisation or 0) > BUSY or held > HELD_SHARE:
            busy = "utilisation not told" if gpu.utilisation is None else f"{gpu.utilisation:.0%} busy"
            yield Hit(
                severity=Severity.WARNING,
                found=f"{gpus_text([gpu.index])}: {busy}, {gpu.memory_used_mib or 0:.0f} MiB held, by no process "
                "that is seen here",
                why="Its owner is in another container or virtual machine, or a killed job left the GPU hanging.",
                fix="ask who shares the card; if nobody does, reboot or `sudo nvidia-smi --gpu-reset`",
            )


def memory(facts: Facts) -> Iterator[Hit]:
    """GPUs that share the host's memory."""
    if unified := [gpu.index for gpu in facts.used if gpu.device.memory_mib is None]:
        yield Hit(severity=Severity.INFO, found=f"{gpus_text(unified)}: the driver tells no memory size")


def power_supply(facts: Facts) -> Iterator[Hit]:
    """A declared power supply below the vendor's figure for one card plus the board power of each further one."""
    declared = facts.settings.psu_w
    boards = [power for gpu in facts.used if (power := _board_power_w(gpu)) is not None]
    # The vendor's figure already holds one card's board power; what is left is the rest of the system.
    cards = [gpu.documented for gpu in facts.used]
    rest = [card.psu_w - card.tgp_w for card in cards if card is not None and card.psu_w and card.tgp_w]
    needed = sum(boards) + max(rest, default=0.0)
    if declared is None or declared >= needed:
        return
    whole = len(boards) == len(rest) == len(cards)
    yield Hit(
        severity=Severity.WARNING,
        found=f"a power supply of {declared:g} W declared, for {len(cards)} card{'s' * (len(cards) != 1)}",
        needed=f"{needed:g} W: the vendor's figure for one card, plus the board power of each further one"
        if whole
        else f"more than {needed:g} W, which what is known of the cards comes to",
    )


def _board_power_w(gpu: GpuState) -> float | None:
    """What the card may draw: its power limit as it is set, else its documented board power."""
    documented = None if gpu.documented is None else gpu.documented.tgp_w
    return documented if gpu.device.power_limit_w is None else gpu.device.power_limit_w


def card(facts: Facts) -> Iterator[Hit]:
    """What the cards are, and which efficiency to expect of more of them."""
    for name, gpu in {gpu.device.name: gpu for gpu in reversed(facts.used)}.items():
        known = gpu.documented
        if known is None:
            yield Hit(severity=Severity.INFO, found=f"{name} is not in the device table: nothing is assumed about it")
            continue
        rate = "" if known.bandwidth_gb_s is None else f", {known.bandwidth_gb_s:g} GB/s"
        instances = "" if known.mig_instances is None else f", up to {known.mig_instances} MIG instances"
        efficiency = ""
        if known.efficiency_range is not None:
            low, high = known.efficiency_range
            efficiency = f"; each further GPU adds {low:.0%} to {high:.0%} of one ({EFFICIENCY_CONDITIONS})"
        yield Hit(
            severity=Severity.INFO,
            found=f"{known.label}: {known.architecture}, {known.memory_gib} GB {known.memory}{rate}, {known.link}, "
            f"{'NVLink' if known.nvlink else 'no NVLink'}{instances}{efficiency}",
            why=f"{guide.answer(*guide.CLAIMS)} {guide.TO_MEASURE}." if known.label == "RTX 5090" else "",
        )


RULES = (
    Rule(
        id="lost_gpu",
        needed="every GPU alive",
        why="A GPU that is lost stays lost until it is reset.",
        fix="reboot; if it comes back, check power cables, risers and temperature",
        source="nvml.h, nvmlReturn_t",
        check=lost_gpus,
    ),
    Rule(
        id="missing_gpu",
        needed="every GPU known to the driver",
        why="A card that the driver does not know takes part in nothing.",
        fix="`sudo dmesg | grep NVRM` says why: an old driver, the wrong kernel module, or no power",
        source="sysfs, /sys/bus/pci/devices",
        check=missing_gpus,
    ),
    Rule(
        id="mig",
        needed="MIG off for scaling over GPUs",
        why="NCCL does not scale over MIG instances, and power and temperature are the whole board's.",
        fix="sudo nvidia-smi -mig 0",
        source="NVIDIA MIG user guide",
        check=mig,
    ),
    Rule(
        id="mixed_generations",
        needed="one GPU generation in a node",
        why="The slowest card sets the pace of every step: a scaling figure over them compares models, not counts.",
        fix="choose GPUs of one generation by CUDA_VISIBLE_DEVICES, or ignore it: the report then says so",
        source="playbook P6",
        check=generations,
    ),
    Rule(
        id="unmatched_gpus",
        needed="equal GPUs at equal settings in a node",
        why="Collectives wait for the slowest one.",
        fix="choose equal GPUs by CUDA_VISIBLE_DEVICES, and give them equal power limits",
        source="playbook P23",
        check=matched,
    ),
    Rule(
        id="power_limit",
        needed="the stock power limit for a baseline",
        why="A changed limit changes clocks under load; it is recorded, and rtxscale never changes it.",
        fix="sudo nvidia-smi -pl STOCK",
        source="playbook P11",
        check=power_limit,
    ),
    Rule(
        id="clocks",
        needed="stock clocks for a baseline",
        why="Overclocked or locked clocks are no baseline, and unstable ones corrupt data.",
        fix="sudo nvidia-smi -rgc; sudo nvidia-smi -rac; reset offsets in the tool that set them",
        source="playbook P11",
        check=clocks,
    ),
    Rule(
        id="persistence_mode",
        needed="persistence mode on",
        why="Without it the driver forgets settings and starts anew whenever the last process lets go of the GPU.",
        fix="sudo nvidia-smi -pm 1, or the nvidia-persistenced service",
        source="NVIDIA driver persistence documentation",
        check=persistence,
    ),
    Rule(
        id="slowdown",
        needed="no thermal or power slowdown at rest",
        why="A GPU that is slowed down while idle will be slower under load.",
        fix="check airflow and temperature",
        source="nvml.h, clocks event reasons; playbook P12, P13",
        check=slowdown,
    ),
    Rule(
        id="foreign_processes",
        needed="GPUs that nobody else uses",
        why="Whatever else runs there is measured too. rtxscale never ends it.",
        fix="wait for it, or choose other GPUs by CUDA_VISIBLE_DEVICES",
        source="NVML compute processes; playbook P9",
        check=foreign_processes,
    ),
    Rule(
        id="gpu_memory",
        needed="a memory size, to tell what fits",
        why="Such GPUs share the host's memory, as GB10 does: what fits is not predicted.",
        fix="nothing; an out-of-memory trial says so",
        source="NVML: memory info not supported (XuehaiPan/nvitop issue 208)",
        check=memory,
    ),
    Rule(
        id="power_supply",
        needed="the vendor's figure for one card, plus the board power of each further one",
        why="A supply that is too small brakes the cards under load (power brake slowdown), or resets the machine.",
        fix="a larger supply, or lower power limits, which are then recorded",
        source="playbook P12; NVIDIA product pages, required system power",
        check=power_supply,
    ),
    Rule(
        id="card",
        needed="nothing",
        why="What is documented of the card, for comparison.",
        fix="nothing",
        source="device table: playbook, hardware in scope; NVIDIA datasheets",
        check=card,
    ),
)
