"""Whatever is known or not known about a machine: no rule fails, and everything can be shown and kept."""

import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from rtxscale.doctor.examine import RULES, examine
from rtxscale.doctor.facts import (
    DriverFacts,
    Facts,
    GpuState,
    HostFacts,
    HostTransfer,
    PairState,
    PairTransfer,
    PciGpu,
    SettingFacts,
    SmiFacts,
    SoftwareFacts,
    TransferFacts,
)
from rtxscale.doctor.show import as_data, environment_rows, lines
from rtxscale.telemetry.fields import Device
from rtxscale.topology.links import read_link
from rtxscale.topology.smi import parse_peer_access, parse_topology

TEXT = st.text(max_size=12)
VERSIONS = st.none() | st.sampled_from(["", "2.6.0+cu124", "8.9.7", "535.1", "580.95.05", "13.0", "Not Found"]) | TEXT
NUMBERS = st.none() | st.floats(0, 1e6)
WHOLE = st.none() | st.integers(0, 100_000)
FLAG = st.none() | st.booleans()
NAMES = st.sampled_from(["NVIDIA GeForce RTX 5090", "NVIDIA GeForce RTX 4090", "NVIDIA H200", "NVIDIA GB10"]) | TEXT
WORDS = st.lists(st.text(min_size=1, max_size=12), max_size=3).map(tuple)
REASONS = st.lists(st.sampled_from(["gpu_idle", "hw_power_brake_slowdown", "other 0x8000"]), max_size=3).map(tuple)

DEVICES = st.builds(
    Device,
    kind=st.just("gpu"),
    uuid=TEXT,
    name=NAMES,
    compute_capability=st.none() | st.sampled_from([(12, 0), (8, 9), (9, 0), (0, 0), (99, 9)]),
    memory_mib=st.none() | st.sampled_from([0, 32607, 24564, 143771]),
    power_limit_w=NUMBERS,
    power_default_w=NUMBERS,
    pcie_max_generation=st.none() | st.integers(0, 9),
    pcie_max_width=st.none() | st.sampled_from([0, 1, 8, 16]),
    persistence=FLAG,
    mig=FLAG,
    lost=st.sampled_from(["", "gone"]),
)
GPUS = st.builds(
    GpuState,
    index=st.just(0),
    device=DEVICES,
    visible=st.booleans(),
    bar1_mib=WHOLE,
    core_offset_mhz=st.none() | st.integers(-500, 500),
    application_clock_mhz=WHOLE,
    default_application_clock_mhz=WHOLE,
    numa_node=st.none() | st.integers(-1, 3),
    utilisation=st.none() | st.floats(0, 1),
    memory_used_mib=NUMBERS,
    throttle_reasons=REASONS,
    pids=st.lists(st.integers(0, 99999), max_size=7).map(tuple),
)
LINKS = st.none() | st.sampled_from(["NV4", "PIX", "PHB", "SYS", "XYZ"]).map(read_link)
LABELS = st.none() | st.sampled_from(["OK", "GNS", "CNS", "U", "??"])
TOPOLOGIES = st.sampled_from(
    ["", "no matrix", "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPHB\t0-3\nGPU1\tPHB\t X \t0-3\n"]
)
PEERS = st.sampled_from(["", " \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tGNS\tX\t\n"])


@st.composite
def machines(draw):
    gpus = tuple(replace(one, index=place) for place, one in enumerate(draw(st.lists(GPUS, max_size=4))))
    indices = [(a, b) for b in range(len(gpus)) for a in range(b)]
    found = [PairState(a=a, b=b, link=draw(LINKS), peer_label=draw(LABELS)) for a, b in indices]
    moved = [
        PairTransfer(a=a, b=b, peer=draw(FLAG), there_gb_s=draw(NUMBERS), data_right=draw(FLAG), problem=draw(TEXT))
        for a, b in indices
    ]
    copied = [
        HostTransfer(gpu=one.index, to_device_gb_s=draw(NUMBERS), to_device_together_gb_s=draw(NUMBERS)) for one in gpus
    ]
    return Facts(
        gpus=gpus,
        pairs=tuple(one for one in found if draw(st.booleans())),
        driver=draw(
            st.builds(
                DriverFacts,
                version=VERSIONS,
                cuda=VERSIONS,
                nvml_problem=TEXT,
                nvml_broken=st.booleans(),
                module_kind=st.none() | st.sampled_from(["open", "proprietary"]),
                module_version=VERSIONS,
                libraries=WORDS,
                packages=WORDS,
                uninstaller=st.booleans(),
                unreachable=WORDS,
            )
        ),
        smi=SmiFacts(
            topology=draw(st.none() | TOPOLOGIES.map(parse_topology)),
            peer=(parse_peer_access(draw(PEERS), "r"),),
            licensed_product=draw(st.none() | TEXT),
            texts=(("nvidia-smi topo -m", draw(TEXT)),),
        ),
        software=draw(
            st.builds(
                SoftwareFacts,
                torch=VERSIONS,
                torch_cuda=VERSIONS,
                torch_architectures=st.lists(st.sampled_from(["sm_90", "sm_120", "compute_90", "sm_90a", "x"])).map(
                    tuple
                ),
                cudnn=VERSIONS,
                nccl=VERSIONS,
                nccl_cuda=VERSIONS,
                ray=VERSIONS,
                shadowing_pynvml=VERSIONS,
            )
        ),
        host=draw(
            st.builds(
                HostFacts,
                pci_gpus=st.lists(st.builds(PciGpu, bus_id=TEXT, device_id=st.integers(0, 0xFFFF)), max_size=3).map(
                    tuple
                ),
                numa_nodes=st.none() | st.integers(0, 8),
                numa_balancing=FLAG,
                governors=WORDS,
                shm_mib=NUMBERS,
                open_files=WHOLE,
                container=TEXT,
                virtual_machine=FLAG,
                iommu_groups=WHOLE,
                redirecting_bridges=st.none() | WORDS,
            )
        ),
        settings=draw(
            st.builds(
                SettingFacts,
                cuda_visible_devices=st.none() | TEXT,
                visible_notes=WORDS,
                nccl_settings=WORDS,
                ray_address=st.booleans(),
                ray_auth_mode=st.none() | TEXT,
                results_root=TEXT,
                free_mib=NUMBERS,
                psu_w=NUMBERS,
            )
        ),
        transfers=TransferFacts(pairs=tuple(moved), hosts=tuple(copied)),
        unread=draw(WORDS),
    )


@settings(max_examples=50, deadline=None)
@given(machines())
def test_every_machine_can_be_examined(facts):
    for rule in RULES:
        for hit in rule.check(facts):  # not guarded here: a rule that fails must be seen
            assert hit.found
    examination = examine(facts)
    assert all(len(line) <= 80 for line in lines(examination))
    json.dumps(as_data(examination), allow_nan=False)
    rows = environment_rows(examination, "driver")
    assert len({row["name"] for row in rows}) == len(rows)
    assert all(row["value"] for row in rows if not row["name"].startswith("text of"))
