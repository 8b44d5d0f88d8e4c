"""Every rule on machines that meet it and on machines that do not: facts in, findings out."""

from pathlib import Path

import pytest

from rtxscale.doctor.examine import RULE_IDS, RULES, examine
from rtxscale.doctor.facts import Facts, HostTransfer, PairTransfer, PciGpu, SmiFacts, TransferFacts
from rtxscale.topology.pcie import PcieLimit, PcieSample, judge_pcie
from rtxscale.topology.smi import parse_peer_access, parse_topology

from .made_facts import CARDS, gpu, machine

GOLDEN = Path(__file__).parents[2] / "golden"
TOPOLOGY = GOLDEN / "topology"
OLD_LIST = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
MISMATCH = "the driver's kernel module and its library have different versions: reboot"
ON_NOUVEAU = (PciGpu(bus_id="0000:01:00.0", device_id=0x2B85, module="nouveau"),)
BLACKWELL_ON_BUS = (PciGpu(bus_id="0000:01:00.0", device_id=0x2B85),)
PEERS = SmiFacts(
    topology=parse_topology((TOPOLOGY / "topo_5090x2_phb.txt").read_text()),
    peer=(parse_peer_access((TOPOLOGY / "topo_p2p_rw_5090x2_gns.txt").read_text(), "rw"),),
)


def adas(card="6000ada", count=2, **changes):
    return [gpu(index, card, **changes) for index in range(count)]


def moved(**fields):
    return TransferFacts(pairs=(PairTransfer(a=0, b=1, **fields),))


def copied(**fields):
    return TransferFacts(hosts=(HostTransfer(gpu=0, **fields),))


def flapping():
    samples = [PcieSample(gpu="0", generation=g, width=16, utilisation_percent=100.0) for g in (5, 2, 2, 2)]
    return TransferFacts(links=judge_pcie(samples, {"0": PcieLimit(generation=5, width=16)}))


# Rule, facts, severity, what must be said (of found, needed, why and fix together).
MET = [
    ("driver_answers", Facts(driver=machine().driver.__class__(nvml_problem="no library")), "info", "no GPU"),
    (
        "driver_answers",
        machine([], driver={"nvml_problem": MISMATCH, "nvml_broken": True}, host={"pci_gpus": BLACKWELL_ON_BUS}),
        "error",
        "1 NVIDIA device on the PCI bus, but the driver's kernel module",
    ),
    (
        "driver_answers",
        machine(
            [],
            driver={"nvml_problem": "not found", "module_version": None},
            host={"pci_gpus": BLACKWELL_ON_BUS, "container": "Docker"},
        ),
        "warning",
        "--gpus all",
    ),
    # The beginner's guide: driver 535 for an RTX 5090, which that driver does not even list.
    (
        "driver_version",
        machine(
            [], driver={"version": "535.183.01", "module_version": "535.183.01"}, host={"pci_gpus": BLACKWELL_ON_BUS}
        ),
        "error",
        "driver 535 and CUDA 12.2 suffice; but it needs driver 570 or newer and CUDA 12.8",
    ),
    ("driver_version", machine(driver={"version": "535.161.05", "cuda": None}), "error", "offers no CUDA"),
    (
        "driver_version",
        machine(adas(), driver={"version": "550.54.14", "cuda": "12.4"}, software={"torch_cuda": "13.0"}),
        "error",
        "driver 580 or newer for CUDA 13",
    ),
    (
        "driver_version",
        machine(driver={"cuda": None}, host={"container": "Docker"}),
        "error",
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ),
    ("kernel_module", machine(driver={"module_kind": "proprietary"}), "error", "open"),
    (
        "kernel_module",
        machine([], driver={"nvml_problem": "not loaded", "nvml_broken": True}, host={"pci_gpus": ON_NOUVEAU}),
        "error",
        "nouveau on 0000:01:00.0",
    ),
    ("kernel_module", machine([], host={"pci_gpus": ON_NOUVEAU}), "warning", "blacklist nouveau"),
    (
        "driver_installs",
        machine(driver={"packages": ("nvidia-driver-535",), "uninstaller": True}),
        "warning",
        "nvidia-driver-535",
    ),
    (
        "driver_installs",
        machine([], driver={"libraries": ("550.54.14",), "nvml_problem": MISMATCH, "nvml_broken": True}),
        "error",
        "580.95.05, but driver libraries 550.54.14",
    ),
    ("driver_installs", machine(driver={"libraries": ("550.54.14", "580.95.05")}), "warning", "several versions"),
    ("torch_build", machine(software={"torch": None}), "error", "not installed"),
    ("torch_build", machine(software={"torch": "2.9.0+cpu", "torch_cuda": ""}), "error", "without CUDA"),
    (
        "torch_build",
        machine(software={"torch": "2.5.1+cu124", "torch_cuda": "12.4", "torch_architectures": OLD_LIST}),
        "error",
        "no kernel image is available",
    ),
    (
        "torch_build",
        machine(software={"torch": "2.6.0+cu124", "torch_cuda": "12.4", "torch_architectures": ()}),
        "error",
        "cannot have code for GPUs 0-1 (sm_120)",
    ),
    (
        "torch_build",
        machine(software={"torch_architectures": ("sm_90", "compute_90")}),
        "warning",
        "only through PTX",
    ),
    ("torch_version", machine(adas(), software={"torch": "2.5.1"}), "warning", "2.6 or newer on Ada"),
    ("torch_version", machine(software={"torch": "2.6.0"}), "info", "with code for it"),
    (
        "torch_version",
        machine(software={"torch": "2.6.0", "torch_architectures": ()}),
        "warning",
        "2.7 or newer on Blackwell",
    ),
    ("torch_version", machine(software={"torch": "2.10.0.dev20260101+cu130"}), "info", "nightly"),
    ("cudnn", machine(software={"cudnn": "8.9.7"}), "error", "cuDNN 8.9 suffices; but it needs cuDNN 9"),
    ("cudnn", machine(adas(), software={"cudnn": "8.9.7"}), "warning", "cuDNN 8.9.7"),
    ("nccl", machine(software={"nccl": "2.26.1"}), "error", "2.26.2 or newer on Blackwell"),
    ("nccl", machine(adas(), software={"nccl": "2.18.3"}), "warning", "2.19 or newer"),
    ("nccl", machine(software={"nccl": "2.27.0", "nccl_cuda": "12.2"}), "warning", "issue 2418"),
    ("nccl", machine(adas(), software={"nccl_cuda": "11.8"}), "warning", "another CUDA major"),
    ("ray_version", machine(software={"ray": None}), "error", "not installed"),
    ("ray_version", machine(software={"ray": "2.9.3"}), "error", "2.51"),
    ("ray_authentication", machine(settings={"ray_auth_mode": "disabled"}), "warning", "get-auth-token"),
    ("ray_authentication", machine(software={"ray": "2.51.1"}), "warning", "2.52"),
    ("ray_authentication", machine(settings={"ray_address": True}), "warning", "no Ray token"),
    ("pynvml_package", machine(software={"shadowing_pynvml": "11.4.1"}), "warning", "11.4.1"),
    ("ai_enterprise", machine(smi=SmiFacts(licensed_product="NVIDIA AI Enterprise")), "warning", "3.3 covers Ada"),
    ("ai_enterprise", machine(adas(), smi=SmiFacts(licensed_product="NVIDIA AI Enterprise")), "info", "vouch"),
    ("lost_gpu", machine([gpu(0), gpu(1, lost="the GPU is lost: it fell off the bus")]), "error", "GPU 1 (NVIDIA"),
    ("lost_gpu", machine(driver={"unreachable": ("GPU 2: the GPU needs a reset",)}), "error", "needs a reset"),
    ("missing_gpu", machine(host={"pci_gpus": BLACKWELL_ON_BUS * 3}), "warning", "3 NVIDIA devices on the PCI bus, 2"),
    (
        "missing_gpu",
        machine(host={"pci_gpus": (*BLACKWELL_ON_BUS * 2, PciGpu(bus_id="b", device_id=0, module="vfio-pci"))}),
        "warning",
        "2 shown by the driver; vfio-pci holds b",
    ),
    ("mig", machine(adas("h200", mig=True)), "warning", "MIG mode on GPUs 0-1"),
    ("mixed_generations", machine([gpu(0), gpu(1, "4090")]), "error", "Blackwell on GPU 0, Ada on GPU 1"),
    (
        "mixed_generations",
        machine([gpu(0), gpu(1, name="GTX 980", compute_capability=(5, 2))]),
        "error",
        "Maxwell on GPU 1",
    ),
    # A generation that is newer than the table is another one all the same.
    (
        "mixed_generations",
        machine([gpu(0), gpu(1, name="NVIDIA R999", compute_capability=(13, 0))]),
        "error",
        "compute capability 13 on GPU 1",
    ),
    ("unmatched_gpus", machine([gpu(0), gpu(1, "5080")]), "warning", "RTX 5080 on GPU 1"),
    ("unmatched_gpus", machine([gpu(0, "pro48"), gpu(1, "pro72")]), "warning", "72GB"),
    ("unmatched_gpus", machine([gpu(0), gpu(1, power_limit_w=450.0)]), "warning", "450.0 W on GPU 1"),
    ("power_limit", machine([gpu(0), gpu(1, power_limit_w=450.0)]), "warning", "nvidia-smi -i 1 -pl 575"),
    ("clocks", machine([gpu(0, core_offset_mhz=150)]), "warning", "core clock offset +150 MHz"),
    ("clocks", machine([gpu(0, memory_offset_mhz=-502)]), "warning", "memory clock offset -502 MHz"),
    (
        "clocks",
        machine([gpu(0, application_clock_mhz=1410, default_application_clock_mhz=1980)]),
        "warning",
        "1410 MHz, default 1980",
    ),
    ("clocks", machine([gpu(0, throttle_reasons=("applications_clocks_setting",))]), "warning", "locked"),
    ("persistence_mode", machine([gpu(0, persistence=False), gpu(1)]), "info", "off on GPU 0"),
    (
        "slowdown",
        machine([gpu(0, throttle_reasons=("gpu_idle", "hw_power_brake_slowdown"))]),
        "warning",
        "power supply and its cables",
    ),
    ("slowdown", machine([gpu(0, throttle_reasons=("hw_thermal_slowdown",))]), "warning", "airflow"),
    ("foreign_processes", machine([gpu(0, pids=(11, 12))]), "warning", "by process 11, 12"),
    # An "idle" L40S of a capture: 100 % busy, 0 MiB used, the work of another tenant.
    ("foreign_processes", machine([gpu(0, utilisation=1.0, memory_used_mib=0.0)]), "warning", "by no process"),
    # After a killed job: 624 MiB held and busy, with no process (rtx6kpro issue 15).
    ("foreign_processes", machine([gpu(0, utilisation=1.0, memory_used_mib=624.0)]), "warning", "gpu-reset"),
    ("gpu_memory", machine([gpu(0, name="NVIDIA GB10", memory_mib=None)]), "info", "tells no memory size"),
    ("power_supply", machine(settings={"psu_w": 1500}), "warning", "1575 W"),
    ("power_supply", machine([gpu(0, power_limit_w=600.0)], settings={"psu_w": 1000}), "warning", "1025 W"),
    (
        "power_supply",
        machine([gpu(0, "pro48"), gpu(1, "pro48")], settings={"psu_w": 500}),
        "warning",
        "more than 600 W, which what is known",
    ),
    ("card", machine(), "info", "each further GPU adds 91% to 97% of one (vision"),
    ("card", machine(), "info", "it is Blackwell (compute capability 12.0) with fifth-generation"),
    ("card", machine([gpu(0, "pro48")]), "info", "no NVLink, up to 2 MIG instances"),
    ("card", machine([gpu(0, name="NVIDIA GeForce RTX 5090 Laptop GPU")]), "info", "nothing is assumed"),
    ("peer_access", machine(), "info", "GNS: GPU not supported"),
    ("peer_access", machine(), "info", "linked by NVLink; but it has no NVLink"),
    ("peer_access", machine(adas("h200"), label="CNS"), "warning", "CNS: chipset not supported"),
    ("peer_access", machine(label="OK"), "warning", "patched driver"),
    (
        "peer_access_sources",
        machine(label="OK", smi=PEERS),
        "warning",
        "NVML says OK, nvidia-smi topo -p2p says not OK",
    ),
    ("topology", machine(), "info", "1 PHB; worst PHB"),
    ("topology_sources", machine(link="SYS", smi=PEERS), "warning", "NVML says SYS, nvidia-smi topo -m says PHB"),
    (
        "topology_sources",
        machine(smi=SmiFacts(topology=parse_topology((TOPOLOGY / "topo_m_with_i_error.txt").read_text()))),
        "info",
        "gives no matrix",
    ),
    ("pcie_slot", machine([gpu(0, pcie_max_generation=4)]), "warning", "at most PCIe 4 x16 (32 GB/s)"),
    ("pcie_slot", machine([gpu(0, pcie_max_width=8)]), "warning", "PCIe 5 x16 (63 GB/s)"),
    ("bar1", machine([gpu(0, bar1_mib=256), gpu(1)]), "info", "GPU 0"),
    ("all_reduce", machine([gpu(i) for i in range(4)]), "info", "bus bandwidth of 22-36 GB/s is normal"),
    ("all_reduce", machine(adas("h200"), link="NV18", label="OK"), "info", "over NVLink"),
    ("gpu_numa", machine([gpu(0, numa_node=0), gpu(1, numa_node=1)], host={"numa_nodes": 2}), "info", "NUMA node 1"),
    ("transfer_data", machine(transfers=moved(data_right=False)), "error", "arrives wrong"),
    ("transfer_hang", machine(transfers=moved(problem="did not end in 45 s")), "error", "did not end"),
    ("transfer_hang", machine(transfers=copied(problem="out of memory")), "error", "host and GPU 0: out of memory"),
    ("transfer_hang", machine(transfers=copied(problem="no kernel image")), "error", "trains nothing"),
    ("host_bandwidth", machine(transfers=copied(to_device_gb_s=26.0, from_device_gb_s=55.0)), "warning", "26.0 GB/s"),
    (
        "shared_link",
        machine(transfers=copied(to_device_gb_s=55.0, to_device_together_gb_s=27.5)),
        "info",
        "GPU 0 reach 50%",
    ),
    ("pcie_load", machine(transfers=flapping()), "warning", "PCIe 2 x16 under load in 3 of 4 samples"),
    (
        "peer_bandwidth",
        machine(label="OK", transfers=moved(peer=True, there_gb_s=20.0, back_gb_s=55.0)),
        "warning",
        "20.0 GB/s",
    ),
    (
        "cuda_visible_devices",
        machine([], settings={"cuda_visible_devices": "0,0", "visible_notes": ("names '0' twice",)}),
        "error",
        "twice",
    ),
    (
        "cuda_visible_devices",
        machine(settings={"cuda_visible_devices": "0,7", "visible_notes": ("'7' is not an index",)}),
        "warning",
        "'7'",
    ),
    (
        "cuda_visible_devices",
        machine([], settings={"cuda_visible_devices": "", "visible_notes": ("hides every GPU",)}),
        "info",
        "if that is meant",
    ),
    ("cuda_device_order", machine([gpu(0), gpu(1, "5080")]), "info", "PCI_BUS_ID"),
    ("nccl_settings", machine(settings={"nccl_settings": ("NCCL_ALGO",)}), "warning", "NCCL_ALGO"),
    ("numa_balancing", machine(host={"numa_nodes": 2}), "warning", "kernel.numa_balancing=0"),
    ("cpu_governor", machine(host={"governors": ("powersave",) * 3 + ("performance",)}), "warning", "powersave (3)"),
    ("cpu_governor", machine([], host={"governors": ("schedutil",)}), "info", "schedutil (1)"),
    ("shared_memory", machine(host={"shm_mib": 64.0}), "warning", "of 64 MiB"),
    ("open_files", machine(host={"open_files": 1024}), "warning", "1024 open files"),
    ("virtualisation", machine(host={"container": "Docker"}), "info", "Docker"),
    ("virtualisation", machine(host={"virtual_machine": True}), "info", "virtual machine"),
    ("iommu", machine(label="OK", host={"iommu_groups": 60}), "warning", "60 groups"),
    ("iommu", machine(label="OK", host={"redirecting_bridges": ("0000:00:01.0",)}), "warning", "0000:00:01.0"),
    ("free_disk", machine(settings={"free_mib": 90.0}), "warning", "90 MiB free in /results"),
    ("unread", machine(unread=("host could not be read: OSError",)), "info", "could not be read"),
    ("unread", machine(smi=SmiFacts(problem="not found")), "info", "nvidia-smi: not found"),
]

# Rule and facts that come close, and must not be met.
NOT_MET = [
    ("driver_answers", machine()),
    ("driver_version", machine(adas(), driver={"version": "535.183.01", "cuda": "12.2"})),
    # With a compatibility package an old driver offers CUDA 13.
    (
        "driver_version",
        machine(adas(), driver={"version": "550.54.14", "cuda": "13.0"}, software={"torch_cuda": "13.0"}),
    ),
    ("driver_version", Facts()),
    ("kernel_module", machine(adas(), driver={"module_kind": "proprietary"})),
    ("driver_installs", machine(driver={"uninstaller": True})),
    ("driver_installs", machine(driver={"packages": ("nvidia-driver-580-open",), "libraries": ("580.95.05",)})),
    # Code for 8.0 runs on 8.9.
    ("torch_build", machine(adas(), software={"torch_architectures": OLD_LIST})),
    ("torch_build", machine(software={"torch_architectures": ()})),
    ("torch_build", machine([], software={"torch_cuda": ""})),
    ("torch_version", machine(adas(), software={"torch": "2.6.0"})),
    ("torch_version", machine(software={"torch": "2.7.0"})),
    ("cudnn", machine(software={"cudnn": None})),
    ("nccl", machine(software={"nccl": "2.26.2"})),
    # What a hidden card would need stops nobody; the driver has to know it all the same.
    ("nccl", machine([gpu(0, "4090"), gpu(1, visible=False)], software={"nccl": "2.21.5", "nccl_cuda": "12.4"})),
    ("ai_enterprise", machine([gpu(0, "4090"), gpu(1, visible=False)])),
    ("nccl", machine(software={"nccl_cuda": "12.8"})),
    ("ray_authentication", machine(settings={"ray_address": True, "ray_token": True})),
    ("ray_authentication", machine(settings={"ray_address": True, "ray_auth_mode": "token"})),
    ("pynvml_package", machine(software={"shadowing_pynvml": "13.0.1"})),
    ("missing_gpu", machine(host={"pci_gpus": BLACKWELL_ON_BUS * 3, "container": "Docker"})),
    # Another generation that CUDA_VISIBLE_DEVICES hides takes no part.
    ("mixed_generations", machine([gpu(0), gpu(1), gpu(2, "4090", visible=False)])),
    ("unmatched_gpus", machine([gpu(0), gpu(1, "5080", visible=False)])),
    ("power_limit", machine([gpu(0, power_limit_w=574.5)])),
    ("power_limit", machine([gpu(0, power_default_w=None, power_limit_w=450.0)])),
    ("clocks", machine([gpu(0, core_offset_mhz=0, application_clock_mhz=1980, default_application_clock_mhz=1980)])),
    # A loaded or even an idle card at its stock power cap is no slowdown.
    ("slowdown", machine([gpu(0, throttle_reasons=("sw_power_cap", "gpu_idle"))])),
    ("foreign_processes", machine([gpu(0, memory_used_mib=600.0, utilisation=None)])),
    ("persistence_mode", machine([gpu(0, persistence=None)])),
    ("power_supply", machine(settings={"psu_w": 1600})),
    # No vendor's figure for one of them: what is known comes to 1300 W.
    ("power_supply", machine([gpu(0), gpu(1, "pro48")], settings={"psu_w": 1300})),
    # Lower limits are one way to mend it.
    ("power_supply", machine([gpu(0, power_limit_w=500.0), gpu(1, power_limit_w=500.0)], settings={"psu_w": 1425})),
    ("power_supply", machine([], settings={"psu_w": 0})),
    ("power_supply", machine()),
    ("peer_access", machine(adas("h200"), link="NV18", label="OK")),
    ("peer_access", machine(label="U")),
    ("peer_access_sources", machine(smi=PEERS)),
    ("topology_sources", machine(smi=PEERS)),
    ("topology", machine([gpu(0)])),
    ("kernel_module", machine(host={"pci_gpus": BLACKWELL_ON_BUS})),
    ("kernel_module", machine([], host={"pci_gpus": (PciGpu(bus_id="b", device_id=0, module="vfio-pci"),)})),
    # A GPU that is gone has no model to be mistaken for.
    ("cuda_device_order", machine([gpu(0), gpu(1, name="unknown", lost="fell off the bus")])),
    # GB10 shows PCIe 1 x1, which says nothing of it.
    ("pcie_slot", machine([gpu(0, name="NVIDIA GB10", memory_mib=None, pcie_max_generation=1, pcie_max_width=1)])),
    ("pcie_slot", machine(adas())),
    ("all_reduce", machine([gpu(0)])),
    ("all_reduce", machine([gpu(0, pcie_max_width=None), gpu(1)])),
    ("all_reduce", machine([gpu(0, pcie_max_generation=2**32 - 1), gpu(1)])),  # all ones: a link that is gone
    ("host_bandwidth", machine(transfers=copied(to_device_gb_s=55.6, from_device_gb_s=56.5))),
    ("host_bandwidth", machine(transfers=TransferFacts(not_run="--quick"))),
    ("peer_bandwidth", machine(transfers=moved(peer=False, there_gb_s=20.0))),
    ("shared_link", machine(transfers=copied(to_device_gb_s=55.0, to_device_together_gb_s=50.0))),
    ("pcie_load", machine(transfers=TransferFacts(links=judge_pcie([])))),
    ("cuda_device_order", machine([gpu(0), gpu(1, "5080")], settings={"cuda_device_order": "PCI_BUS_ID"})),
    ("numa_balancing", machine()),
    ("iommu", machine(host={"iommu_groups": 60})),  # no P2P, so nothing is in its way
    ("iommu", machine(label="OK", host={"iommu_groups": 60, "kernel_options": ("iommu=pt",)})),
    ("gpu_numa", machine([gpu(0, numa_node=0), gpu(1, numa_node=0)], host={"numa_nodes": 2})),
    ("free_disk", machine(settings={"free_mib": None})),
    ("virtualisation", machine([], host={"virtual_machine": True})),
]


def of(rule, facts):
    return [one for one in examine(facts).findings if one.rule == rule]


@pytest.mark.parametrize(("rule", "facts", "severity", "words"), MET, ids=[f"{row[0]}-{row[3][:20]}" for row in MET])
def test_rule_is_met(rule, facts, severity, words):
    found = of(rule, facts)
    said = [" ".join((one.found, one.needed, one.why, one.fix)) for one in found if one.severity == severity]
    assert any(words in text for text in said), [(one.severity, one.found) for one in found]


@pytest.mark.parametrize(("rule", "facts"), NOT_MET, ids=[f"{row[0]}-{place}" for place, row in enumerate(NOT_MET)])
def test_rule_is_not_met(rule, facts):
    assert of(rule, facts) == []


def test_every_rule_can_be_met():
    assert {row[0] for row in MET} == set(RULE_IDS)
    assert len(RULE_IDS) == len(set(RULE_IDS))


@pytest.mark.parametrize("rule", RULES, ids=RULE_IDS)
def test_every_rule_says_what_is_needed_why_how_to_fix_it_and_who_says_so(rule):
    assert all((rule.needed, rule.fix, rule.source))
    assert rule.why or rule.id == "virtualisation"


def test_a_healthy_machine_has_notes_only():
    assert {one.severity.value for one in examine(machine()).findings} == {"info"}
    assert examine(machine(adas("h200"), link="NV18", label="OK")).errors == ()


def test_nothing_known_is_no_error():
    # Only what must be installed for a sweep is asked for.
    assert {one.rule for one in examine(Facts()).errors} == {"torch_build", "ray_version"}


def test_pytorchs_own_message_names_the_same_fault():
    text = (GOLDEN / "doctor" / "ray_messages.txt").read_text()
    listed = tuple(text.partition("supports CUDA capabilities ")[2].split(".")[0].split())
    assert listed == OLD_LIST
    (found,) = of("torch_build", machine([gpu(0)], software={"torch_architectures": listed}))
    assert found.severity == "error"
    assert "no kernel image is available for execution on the device" in text
    assert "no kernel image is available for execution on the device" in found.why


@pytest.mark.parametrize("card", CARDS)
def test_a_single_healthy_card_is_fit(card):
    facts = machine([gpu(0, card)])
    assert not [one for one in examine(facts).findings if one.severity != "info"]
