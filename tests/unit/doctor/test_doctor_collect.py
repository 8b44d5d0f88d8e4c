"""Facts from a host made of files, from an NVML made of data, and from broken sources; and that it is quick."""

import time
from pathlib import Path

import pytest
from telemetry.fake_nvml import DRIVER_NOT_LOADED, FakeGpu, FakeNvml

from rtxscale.doctor import collect as collecting
from rtxscale.doctor import software
from rtxscale.doctor.collect import collect, completed
from rtxscale.doctor.examine import examine
from rtxscale.doctor.facts import PciGpu, SmiFacts
from rtxscale.doctor.gpus import numa_node
from rtxscale.doctor.host import acs_redirects, free_mib, look_at_host, look_at_settings
from rtxscale.doctor.software import look_at_software, nccl_cuda, torch_architectures
from rtxscale.topology.smi import parse_topology

from .made_facts import gpu

GOLDEN = Path(__file__).parents[2] / "golden" / "topology"
MODULE_535 = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n"
MODULE_580 = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text) if isinstance(text, bytes) else path.write_text(text)
    return root


def acs_configuration(control):
    """4096 bytes of PCI Express configuration space, ACS behind one other extended capability."""
    space = bytearray(4096)
    space[0x100:0x104] = (0x0001 | 1 << 16 | 0x140 << 20).to_bytes(4, "little")
    space[0x140:0x144] = (0x000D | 1 << 16).to_bytes(4, "little")
    space[0x146:0x148] = control.to_bytes(2, "little")
    return bytes(space)


WORKSTATION = {
    "sys/devices/system/node/online": "0-1\n",
    "proc/sys/kernel/numa_balancing": "1\n",
    "sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "powersave\n",
    "sys/devices/system/cpu/cpufreq/policy1/scaling_governor": "performance\n",
    "proc/cpuinfo": "processor : 0\nflags : fpu vme hypervisor sse\n",
    "sys/kernel/iommu_groups/0/type": "DMA-FQ\n",
    "sys/kernel/iommu_groups/1/type": "DMA-FQ\n",
    "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=UUID=secret quiet intel_iommu=on pci=noaer\n",
    "proc/1/cgroup": "0::/system.slice/docker-1234.scope\n",
    "sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
    "sys/bus/pci/devices/0000:01:00.0/device": "0x2b85\n",
    "sys/bus/pci/devices/0000:01:00.0/class": "0x030000\n",
    "sys/bus/pci/devices/0000:01:00.1/vendor": "0x10de\n",
    "sys/bus/pci/devices/0000:01:00.1/device": "0x22e8\n",
    "sys/bus/pci/devices/0000:01:00.1/class": "0x040300\n",
    "sys/bus/pci/devices/0000:00:01.0/class": "0x060400\n",
    "sys/bus/pci/devices/0000:00:01.0/config": acs_configuration(0x1D),
    "sys/bus/pci/devices/0000:00:02.0/class": "0x060400\n",
    "sys/bus/pci/devices/0000:00:02.0/config": acs_configuration(0x0),
}


def test_a_workstation(tmp_path):
    host = look_at_host({}, write(tmp_path, WORKSTATION))
    assert host.pci_gpus == (PciGpu(bus_id="0000:01:00.0", device_id=0x2B85),)
    (tmp_path / "sys/bus/pci/devices/0000:01:00.0/driver").symlink_to("../../../../bus/pci/drivers/nouveau")
    assert [card.module for card in look_at_host({}, tmp_path).pci_gpus] == ["nouveau"]
    assert host.pci_gpus[0].architecture == "Blackwell"
    assert (host.numa_nodes, host.numa_balancing, host.governors) == (2, True, ("powersave", "performance"))
    assert (host.container, host.virtual_machine, host.iommu_groups) == ("docker", True, 2)
    assert host.kernel_options == ("intel_iommu=on", "pci=noaer")
    assert host.redirecting_bridges == ("0000:00:01.0",)


def test_an_empty_host_is_unknown_everywhere(tmp_path):
    host = look_at_host({}, tmp_path)
    assert (host.pci_gpus, host.governors, host.kernel_options, host.container) == ((), (), (), "")
    assert (host.numa_nodes, host.numa_balancing, host.shm_mib, host.virtual_machine) == (None,) * 4
    assert (host.iommu_groups, host.redirecting_bridges) == (None, None)


@pytest.mark.parametrize(
    ("files", "environment", "kind"),
    [
        ({".dockerenv": ""}, {}, "Docker"),
        ({"run/.containerenv": ""}, {}, "Podman"),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "Kubernetes"),
        ({}, {"container": "lxc"}, "lxc"),
        ({"proc/1/cgroup": "0::/init.scope\n"}, {}, ""),
    ],
)
def test_containers(tmp_path, files, environment, kind):
    assert look_at_host(environment, write(tmp_path, files)).container == kind


@pytest.mark.parametrize(
    ("configuration", "redirects"),
    [
        (acs_configuration(0x04), True),
        (acs_configuration(0x01), False),
        (acs_configuration(0x1D)[:256], None),  # a plain user sees no more
        (b"", None),
        (bytes(4096), False),
        (b"\xff" * 4096, False),
    ],
)
def test_acs(configuration, redirects):
    assert acs_redirects(configuration) is redirects


def test_a_ring_of_capabilities_ends():
    space = bytearray(4096)
    space[0x100:0x104] = (0x0001 | 0x100 << 20).to_bytes(4, "little")
    assert acs_redirects(bytes(space)) is False


def test_settings_keep_names_and_no_secret(tmp_path):
    write(tmp_path, {"home/.nccl.conf": "NCCL_ALGO=Ring\n", "home/.ray/auth_token": "secret", "etc/nccl.conf": ""})
    environment = {"NCCL_P2P_LEVEL": "SYS", "RAY_AUTH_TOKEN": "secret", "CUDA_VISIBLE_DEVICES": "0", "OTHER": "secret"}
    found = look_at_settings(environment, tmp_path / "results", tmp_path / "home", tmp_path)
    assert found.nccl_settings == ("NCCL_P2P_LEVEL", "file .nccl.conf")
    assert found.ray_token
    assert found.cuda_visible_devices == "0"
    assert "secret" not in repr(found)
    assert found.free_mib is not None


def test_room_of_a_place_that_is_not_there_yet(tmp_path):
    assert free_mib(tmp_path / "a" / "b") == pytest.approx(free_mib(tmp_path), abs=64)


def two_gpus(**calls):
    class Paired(FakeNvml):
        def nvmlDeviceGetTopologyCommonAncestor(self, one, other):  # noqa: N802  NVML's own name
            return 30

        def nvmlDeviceGetP2PStatus(self, one, other, capability):  # noqa: N802
            return 2

    # NVML's order is not the PCI bus order here.
    return Paired([FakeGpu("GPU-b", bus="00000000:C1:00.0", **calls), FakeGpu("GPU-a", bus="00000000:01:00.0")])


def test_gpus_pairs_and_driver_through_nvml(tmp_path):
    root = write(tmp_path, {"proc/driver/nvidia/version": MODULE_580})
    facts = collect(tmp_path, quick=True, environment={"CUDA_VISIBLE_DEVICES": "1"}, nvml=two_gpus(), root=root)
    assert [(one.index, one.device.uuid, one.visible, one.architecture) for one in facts.gpus] == [
        (0, "GPU-a", False, "Blackwell"),
        (1, "GPU-b", True, "Blackwell"),
    ]
    (pair,) = facts.pairs
    assert (pair.a, pair.b, pair.link.label, pair.peer_label) == (0, 1, "PHB", "GNS")
    driver = facts.driver
    assert (driver.version, driver.cuda, driver.module_kind) == ("580.95.05", "13.0", "open")
    assert facts.used_pairs == ()


def test_a_card_that_the_driver_of_the_guide_does_not_know(tmp_path):
    files = {**WORKSTATION, "proc/driver/nvidia/version": MODULE_535, "proc/1/cgroup": ""}
    facts = collect(tmp_path, quick=True, environment={}, nvml=FakeNvml([]), root=write(tmp_path, files))
    found = {one.rule: one for one in examine(facts).errors}
    assert {"driver_version", "kernel_module"} <= set(found)
    assert "driver 535.183.01 with a Blackwell GPU" in found["driver_version"].found


@pytest.mark.parametrize(
    ("bus_id", "text", "node"),
    [
        ("00000000:C1:00.0", "1\n", 1),
        ("0000000F:01:00.0", "0", 0),
        ("00000000:C1:00.0", "-1\n", None),  # the kernel does not know
        ("00000000:C1:00.0", None, None),
        ("", "0", None),
    ],
)
def test_the_numa_node_of_a_gpu_is_the_kernels(tmp_path, bus_id, text, node):
    name = bus_id.lower().replace("0000000", "000", 1) if bus_id.startswith("0000000F") else bus_id.lower()[4:]
    write(tmp_path, {} if text is None else {f"sys/bus/pci/devices/{name}/numa_node": text})
    assert numa_node(tmp_path, bus_id) == node
    nvml = FakeNvml([FakeGpu("GPU-a", bus=bus_id)])
    (seen,) = collect(tmp_path, quick=True, environment={}, nvml=nvml, root=tmp_path).gpus
    assert seen.numa_node == node


def test_packages_of_a_former_cuda_are_not_those_in_use(monkeypatch, tmp_path):
    write(tmp_path, {"version.py": "__version__ = '2.7.0+cu128'\ncuda: Optional[str] = '12.8'\n"})
    installed = {"nvidia-nccl-cu13": "2.28.9", "nvidia-nccl-cu12": "2.26.2", "nvidia-cudnn-cu13": "9.15.0"}
    monkeypatch.setattr(software, "package_folder", {"torch": tmp_path}.get)
    monkeypatch.setattr(software, "distribution_version", installed.get)
    found = look_at_software(quick=True)
    assert (found.nccl, found.cudnn) == ("2.26.2", "9.15.0")


@pytest.mark.parametrize(
    ("nvml", "broken"),
    [(FakeNvml(init_error=DRIVER_NOT_LOADED), True), (FakeNvml(init_error=18), True), (FakeNvml(init_error=12), False)],
)
def test_a_broken_nvml_is_a_finding_and_no_traceback(tmp_path, nvml, broken):
    facts = collect(tmp_path, quick=True, environment={}, nvml=nvml, root=write(tmp_path, WORKSTATION))
    assert facts.driver.nvml_broken is broken
    (found,) = [one for one in examine(facts).findings if one.rule == "driver_answers"]
    assert found.severity == ("error" if broken else "warning")


def test_an_nvml_that_is_no_nvml(tmp_path):
    facts = collect(tmp_path, quick=True, environment={}, nvml=object(), root=tmp_path)
    assert facts.gpus == ()
    assert examine(facts).findings


def test_two_driver_installations(tmp_path):
    files = {
        "var/lib/dpkg/info/nvidia-driver-535.list": "",
        "var/lib/dpkg/info/libnvidia-compute-535:amd64.list": "",
        "var/lib/dpkg/info/nvidia-settings.list": "",
        "usr/bin/nvidia-uninstall": "",
        "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": "",
        "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.535.183.01": "",
        "usr/lib64/libnvidia-ml.so.580.95.05": "",
        "proc/driver/nvidia/version": MODULE_580,
    }
    driver = collect(tmp_path, quick=True, environment={}, nvml=two_gpus(), root=write(tmp_path, files)).driver
    assert driver.packages == ("libnvidia-compute-535", "nvidia-driver-535")
    assert driver.uninstaller
    assert driver.libraries == ("535.183.01", "580.95.05")


@pytest.mark.parametrize("name", ["look_at_gpus", "look_at_host", "look_at_software", "look_at_settings", "ask_smi"])
def test_a_source_that_fails_costs_nothing_but_itself(tmp_path, monkeypatch, name):
    def broken(*_, **__):
        raise PermissionError("not for you")

    monkeypatch.setattr(collecting, name, broken)
    facts = collect(tmp_path, quick=True, environment={}, nvml=two_gpus(), root=tmp_path)
    (text,) = facts.unread
    assert "could not be read: PermissionError: not for you" in text
    assert "unread" in {one.rule for one in examine(facts).findings}


def test_nvidia_smi_fills_in_what_nvml_does_not_tell():
    topology = parse_topology((GOLDEN / "topo_5090x2_phb.txt").read_text())
    bare = gpu(0, bar1_mib=None)
    done = completed(bare, SmiFacts(topology=topology), {"00000000:01:00.0": 32768.0})
    assert (done.bar1_mib, done.numa_node) == (32768, 0 if topology.placements["GPU0"].numa == "0" else None)
    assert completed(gpu(0), SmiFacts(), {"00000000:01:00.0": 1.0}).bar1_mib == 65536


def test_software_without_importing_it(tmp_path, monkeypatch):
    folder = write(
        tmp_path,
        {
            "torch/version.py": "__version__ = '2.7.0+cu128'\ncuda: Optional[str] = '12.8'\n",
            "torch/lib/libtorch_python.so": b"junk\x00sm_count\x00sm_90 sm_120 compute_120\x00more",
            "nccl/lib/libnccl.so.2": b"x" * 5000 + b"NCCL version 2.26.2+cuda12.2\x00NCCL version 2.26.2 compiled",
        },
    )
    places = {"torch": folder / "torch", "nvidia.nccl": folder / "nccl"}
    monkeypatch.setattr(software, "package_folder", places.get)
    found = look_at_software(quick=False)
    assert (found.torch, found.torch_cuda) == ("2.7.0+cu128", "12.8")
    assert found.torch_architectures == ("sm_90", "sm_120", "compute_120")
    assert found.nccl_cuda == "12.2"
    assert look_at_software(quick=True).nccl_cuda is None


def test_the_installed_torch_says_the_same_of_itself():
    torch = pytest.importorskip("torch")
    found = look_at_software(quick=True)
    assert found.torch == torch.__version__
    assert found.torch_cuda == (torch.version.cuda or "")
    assert " ".join(found.torch_architectures) == (torch._C._cuda_getArchFlags() or "" if torch.version.cuda else "")


@pytest.mark.parametrize("content", [None, b"", b"\x00" * 10])
def test_libraries_that_tell_nothing(tmp_path, content):
    path = tmp_path / "lib.so"
    if content is not None:
        path.write_bytes(content)
    assert torch_architectures(path) == ()
    assert nccl_cuda(path) is None


def test_a_quick_look_is_quick(tmp_path):
    collect(tmp_path, quick=True)
    began = time.process_time()
    collect(tmp_path, quick=True)
    assert time.process_time() - began < 0.5
