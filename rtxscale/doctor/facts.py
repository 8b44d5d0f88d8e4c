"""What is known about a machine, as plain data: the only thing that rules look at.

Nothing here looks at a machine: `doctor.collect` fills it, tests write it down. None and the empty tuple are "not
known". Serials, host and user names are in none of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rtxscale.devices.facts import GpuFacts
from rtxscale.devices.gpus import find_gpu
from rtxscale.doctor.rates import link_gb_s
from rtxscale.telemetry.fields import Device
from rtxscale.topology.links import Link
from rtxscale.topology.pcie import PcieVerdict
from rtxscale.topology.smi import PeerAccess, Topology

# Source: CUDA C++ Programming Guide, compute capabilities.
ARCHITECTURES = {
    (5, 0): "Maxwell",
    (5, 2): "Maxwell",
    (5, 3): "Maxwell",
    (6, 0): "Pascal",
    (6, 1): "Pascal",
    (6, 2): "Pascal",
    (7, 0): "Volta",
    (7, 2): "Volta",
    (7, 5): "Turing",
    (8, 0): "Ampere",
    (8, 6): "Ampere",
    (8, 7): "Ampere",
    (8, 9): "Ada",
    (9, 0): "Hopper",
    (10, 0): "Blackwell",
    (10, 1): "Blackwell",
    (10, 3): "Blackwell",
    (11, 0): "Blackwell",
    (12, 0): "Blackwell",
    (12, 1): "Blackwell",
}


@dataclass(frozen=True, kw_only=True)
class GpuState:
    """One GPU. `visible` is whether CUDA_VISIBLE_DEVICES shows it; rules about a sweep look at visible ones only.

    Clocks in MHz, memory in MiB, utilisation 0 to 1. `pids` are the compute processes that hold it.
    """

    index: int
    device: Device
    visible: bool = True
    bar1_mib: int | None = None
    core_offset_mhz: int | None = None
    memory_offset_mhz: int | None = None
    application_clock_mhz: int | None = None
    default_application_clock_mhz: int | None = None
    numa_node: int | None = None
    utilisation: float | None = None
    memory_used_mib: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()

    @property
    def documented(self) -> GpuFacts | None:
        """The GPU's row in the device table, None for a card that is not in it."""
        return find_gpu(self.device.name, self.device.memory_mib)

    @property
    def architecture(self) -> str | None:
        """Such as Blackwell, from the compute capability, else from the table; None when neither tells."""
        known = ARCHITECTURES.get(self.device.compute_capability or (0, 0))
        return known or (self.documented.architecture if self.documented else None)

    @property
    def generation(self) -> str | None:
        """Its architecture, or for one newer than this table its major compute capability, which no two share."""
        capability = self.device.compute_capability
        return self.architecture or (f"compute capability {capability[0]}" if capability else None)


@dataclass(frozen=True, kw_only=True)
class PairState:
    """Two GPUs by index, as NVML sees them: their link, and the driver's claim about peer access (`OK`, `GNS`, ...)."""

    a: int
    b: int
    link: Link | None = None
    peer_label: str | None = None


@dataclass(frozen=True, kw_only=True)
class SmiFacts:
    """What nvidia-smi says. `texts` are its raw outputs by command, `problem` says why there are none."""

    topology: Topology | None = None
    peer: tuple[PeerAccess, ...] = ()
    licensed_product: str | None = None
    texts: tuple[tuple[str, str], ...] = ()
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class DriverFacts:
    """The NVIDIA driver. `nvml_problem` says why NVML gives no GPU; `unreachable` are GPUs that NVML cannot open.

    `packages` and `uninstaller` are traces of an installation by package manager and by NVIDIA's .run file;
    `libraries` the versions of its library on disk.
    """

    version: str | None = None
    cuda: str | None = None
    nvml_problem: str = ""
    nvml_broken: bool = False
    module_kind: str | None = None
    module_version: str | None = None
    unreachable: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    uninstaller: bool = False
    libraries: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SoftwareFacts:
    """Installed software, read without importing it. Versions as text; `torch_architectures` as in its arch list.

    `torch_cuda` is the CUDA version torch was built for, "" for a build without CUDA, None where torch is unknown.
    """

    torch: str | None = None
    torch_cuda: str | None = None
    torch_architectures: tuple[str, ...] = ()
    cudnn: str | None = None
    nccl: str | None = None
    nccl_cuda: str | None = None
    ray: str | None = None
    nvidia_ml_py: str | None = None
    shadowing_pynvml: str | None = None


@dataclass(frozen=True, kw_only=True)
class PciGpu:
    """A display device of NVIDIA on the PCI bus, whether or not a driver knows it.

    `module` is the kernel module that holds it, such as nvidia, nouveau, vfio-pci; None for none.
    """

    bus_id: str
    device_id: int
    module: str | None = None

    @property
    def architecture(self) -> str | None:
        """By the ranges of device ids; None outside them.

        Source: table of compatible GPUs, README of NVIDIA/open-gpu-kernel-modules.
        """
        if 0x2B80 <= self.device_id <= 0x2FFF:
            return "Blackwell"
        return "Ada" if 0x2680 <= self.device_id <= 0x28FF else None


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """The host: NUMA, CPU governors, limits, virtualisation, IOMMU. Sizes in MiB.

    `iommu_groups` is their number, `kernel_options` the options of the kernel's command line that matter here,
    `redirecting_bridges` the PCI bridges whose ACS sends peer traffic through the root; None where it cannot be read.
    """

    pci_gpus: tuple[PciGpu, ...] = ()
    numa_nodes: int | None = None
    numa_balancing: bool | None = None
    governors: tuple[str, ...] = ()
    shm_mib: float | None = None
    open_files: int | None = None
    container: str = ""
    virtual_machine: bool | None = None
    iommu_groups: int | None = None
    kernel_options: tuple[str, ...] = ()
    redirecting_bridges: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class SettingFacts:
    """The user's settings. Names only of NCCL variables; of Ray's token only whether there is one."""

    cuda_visible_devices: str | None = None
    visible_notes: tuple[str, ...] = ()
    cuda_device_order: str | None = None
    nccl_settings: tuple[str, ...] = ()
    ray_address: bool = False
    ray_auth_mode: str | None = None
    ray_token: bool = False
    results_root: str = ""
    free_mib: float | None = None
    psu_w: float | None = None
    """Rating of the power supply as declared by the user, W."""


@dataclass(frozen=True, kw_only=True)
class PairTransfer:
    """A verified copy between two GPUs, both ways, GB/s. `problem` says why there are no numbers."""

    a: int
    b: int
    peer: bool | None = None
    there_gb_s: float | None = None
    back_gb_s: float | None = None
    small_copy_us: float | None = None
    data_right: bool | None = None
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class HostTransfer:
    """Copies between pinned host memory and a GPU, GB/s: alone, and with all GPUs at once."""

    gpu: int
    to_device_gb_s: float | None = None
    from_device_gb_s: float | None = None
    to_device_together_gb_s: float | None = None
    from_device_together_gb_s: float | None = None
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class TransferFacts:
    """What was measured; `not_run` says why nothing was. `links` are PCIe links judged while copies ran."""

    not_run: str = ""
    pairs: tuple[PairTransfer, ...] = ()
    hosts: tuple[HostTransfer, ...] = ()
    links: tuple[PcieVerdict, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All that rules may look at. `unread` are sources that failed, with the reason."""

    gpus: tuple[GpuState, ...] = ()
    pairs: tuple[PairState, ...] = ()
    driver: DriverFacts = field(default_factory=DriverFacts)
    smi: SmiFacts = field(default_factory=SmiFacts)
    software: SoftwareFacts = field(default_factory=SoftwareFacts)
    host: HostFacts = field(default_factory=HostFacts)
    settings: SettingFacts = field(default_factory=SettingFacts)
    transfers: TransferFacts = field(default_factory=lambda: TransferFacts(not_run="not asked for"))
    unread: tuple[str, ...] = ()

    @property
    def used(self) -> tuple[GpuState, ...]:
        """The GPUs that a sweep here would use."""
        return tuple(gpu for gpu in self.gpus if gpu.visible and not gpu.device.lost)

    @property
    def used_pairs(self) -> tuple[PairState, ...]:
        """Pairs of those GPUs."""
        used = {gpu.index for gpu in self.used}
        return tuple(pair for pair in self.pairs if {pair.a, pair.b} <= used)

    @property
    def has_blackwell(self) -> bool:
        """Whether a Blackwell GPU is in the machine, known to the driver or only on the PCI bus."""
        known = [gpu.architecture for gpu in self.gpus] + [gpu.architecture for gpu in self.host.pci_gpus]
        return "Blackwell" in known

    @property
    def uses_blackwell(self) -> bool:
        """Whether a sweep here would use a Blackwell GPU: software must know those, the driver hidden ones too."""
        return any(gpu.architecture == "Blackwell" for gpu in self.used)

    @property
    def link_rate(self) -> tuple[int, int] | None:
        """PCIe generation and lanes of the slowest used GPU, at most; None where one is unknown."""
        links = [(gpu.device.pcie_max_generation, gpu.device.pcie_max_width) for gpu in self.used]
        rates = {(one, width): link_gb_s(one, width) for one, width in links if one and width}
        known = {link: rate for link, rate in rates.items() if rate is not None}
        return min(known, key=known.__getitem__) if known and known.keys() == set(links) else None
