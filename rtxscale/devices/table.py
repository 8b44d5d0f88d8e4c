"""The rows of the GPU table, each with the source of its values.

A value that no source states, or on which sources disagree, is None; it is never taken from a similar card. A card
missing here works all the same: what is not known about it is None everywhere. Read through `devices.gpus`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GpuFacts:
    """What is documented about one GPU model in one memory variant.

    `name` is the model as NVML spells it, `other_names` further spellings of the same card. `label` is the short name
    that people type and reports show. Bandwidth is that of the memory, in GB/s; `tgp_w` is the stock power limit.
    `bf16_tflops` is the dense bf16 tensor peak with fp32 accumulation. `efficiency_range` is the indicative efficiency
    of each GPU beyond the first, under `EFFICIENCY_CONDITIONS`. `psu_w` is the vendor's smallest power supply for a
    system with one such card. `source` holds for every value that `sources` does not name.
    """

    name: str
    label: str
    architecture: str
    compute_capability: tuple[int, int]
    memory_gib: int
    memory: str
    bandwidth_gb_s: float | None
    tgp_w: float | None
    link: str
    nvlink: bool
    bf16_tflops: float | None = None
    efficiency_range: tuple[float, float] | None = None
    p21_target: bool = False
    p2p_stock: bool | None = None
    """Whether the stock driver offers direct transfers between two of these cards; None is unknown."""
    source: str
    sources: tuple[tuple[str, str], ...] = ()
    """Fields with a source of their own, and that source."""
    psu_w: float | None = None
    other_names: tuple[str, ...] = ()

    def source_of(self, field: str) -> str:
        """Where the value of a field comes from."""
        return dict(self.sources).get(field, self.source)


EFFICIENCY_CONDITIONS = "vision training with AMP and compile, data-parallel over PCIe; indicative, not a promise"
PLAYBOOK = "playbook, hardware in scope"
AIME = f"{PLAYBOOK}; AIME deep-learning GPU benchmarks (multi-GPU efficiencies)"
H100_SOURCE = "NVIDIA H100 datasheet; dense peak is half of the one stated with sparsity"
A100_SOURCE = "NVIDIA A100 datasheet (2021)"

RTX = (
    GpuFacts(
        name="NVIDIA GeForce RTX 5090",
        label="RTX 5090",
        architecture="Blackwell",
        compute_capability=(12, 0),
        memory_gib=32,
        memory="GDDR7, 512-bit, no ECC",
        bandwidth_gb_s=1792,
        tgp_w=575,
        link="PCIe 5 x16",
        nvlink=False,
        bf16_tflops=209.5,
        efficiency_range=(0.91, 0.97),
        p21_target=True,
        p2p_stock=False,
        psu_w=1000,
        source=f"{PLAYBOOK}; NVIDIA RTX Blackwell architecture brief",
        sources=(
            ("efficiency_range", AIME),
            ("p2p_stock", "GNS in `nvidia-smi topo -p2p` of stock drivers (noonghunna/club-3090 issue 1229)"),
            ("psu_w", f"{PLAYBOOK}; NVIDIA product page, required system power"),
        ),
    ),
    GpuFacts(
        name="NVIDIA GeForce RTX 5080",
        label="RTX 5080",
        architecture="Blackwell",
        compute_capability=(12, 0),
        memory_gib=16,
        memory="GDDR7, 256-bit, no ECC",
        bandwidth_gb_s=960,
        tgp_w=360,
        link="PCIe 5 x16",
        nvlink=False,
        bf16_tflops=112.6,
        psu_w=850,
        source=PLAYBOOK,
        sources=(
            ("bf16_tflops", f"{PLAYBOOK} (medium confidence)"),
            ("psu_w", "NVIDIA product page, required system power"),
        ),
    ),
    GpuFacts(
        name="NVIDIA RTX PRO 5000 Blackwell",
        label="RTX PRO 5000 48 GB",
        architecture="Blackwell",
        compute_capability=(12, 0),
        memory_gib=48,
        memory="GDDR7, ECC",
        bandwidth_gb_s=1344,
        tgp_w=300,
        link="PCIe 5 x16",
        nvlink=False,
        p21_target=True,
        source=f"{PLAYBOOK}; NVIDIA RTX PRO 5000 datasheet",
    ),
    GpuFacts(
        name="NVIDIA RTX PRO 5000 72GB Blackwell",
        other_names=("NVIDIA RTX PRO 5000 Blackwell",),
        label="RTX PRO 5000 72 GB",
        architecture="Blackwell",
        compute_capability=(12, 0),
        memory_gib=72,
        memory="GDDR7, ECC",
        bandwidth_gb_s=1344,
        tgp_w=300,
        link="PCIe 5 x16",
        nvlink=False,
        p21_target=True,
        source=PLAYBOOK,
        sources=(("bandwidth_gb_s", f"{PLAYBOOK} (medium confidence)"),),
    ),
    GpuFacts(
        name="NVIDIA RTX 6000 Ada Generation",
        label="RTX 6000 Ada",
        architecture="Ada",
        compute_capability=(8, 9),
        memory_gib=48,
        memory="GDDR6, 384-bit, ECC",
        bandwidth_gb_s=960,
        tgp_w=300,
        link="PCIe 4 x16",
        nvlink=False,
        efficiency_range=(0.94, 0.95),
        p21_target=True,
        source=f"{PLAYBOOK} (peak: sources disagree)",
        sources=(("efficiency_range", AIME),),
    ),
    GpuFacts(
        name="NVIDIA RTX 5000 Ada Generation",
        label="RTX 5000 Ada",
        architecture="Ada",
        compute_capability=(8, 9),
        memory_gib=32,
        memory="GDDR6, ECC",
        bandwidth_gb_s=576,
        tgp_w=250,
        link="PCIe 4 x16",
        nvlink=False,
        source=f"{PLAYBOOK} (peak: sources disagree)",
    ),
    GpuFacts(
        name="NVIDIA GeForce RTX 4090",
        label="RTX 4090",
        architecture="Ada",
        compute_capability=(8, 9),
        memory_gib=24,
        memory="GDDR6X, no ECC",
        bandwidth_gb_s=1008,
        tgp_w=450,
        link="PCIe 4 x16",
        nvlink=False,
        bf16_tflops=165.2,
        efficiency_range=(0.62, 0.75),
        p2p_stock=False,
        psu_w=850,
        source=PLAYBOOK,
        sources=(
            ("efficiency_range", AIME),
            ("p2p_stock", f"{PLAYBOOK}; NVIDIA/nccl-tests issue 287 (stock GeForce drivers)"),
            ("psu_w", "NVIDIA product page, required system power"),
        ),
    ),
)

HOPPER = (
    GpuFacts(
        name="NVIDIA H100 80GB HBM3",
        label="H100 SXM",
        architecture="Hopper",
        compute_capability=(9, 0),
        memory_gib=80,
        memory="HBM3, ECC",
        bandwidth_gb_s=3350,
        tgp_w=700,
        link="PCIe 5 x16",
        nvlink=True,
        bf16_tflops=989.4,
        source="NVIDIA H100 datasheet and Hopper architecture brief (dense peak)",
    ),
    GpuFacts(
        name="NVIDIA H100 PCIe",
        label="H100 PCIe",
        architecture="Hopper",
        compute_capability=(9, 0),
        memory_gib=80,
        memory="HBM2e, ECC",
        bandwidth_gb_s=2000,
        tgp_w=350,
        link="PCIe 5 x16",
        nvlink=True,
        bf16_tflops=756,
        source="NVIDIA H100 datasheet and Hopper architecture brief (dense peak); NVLink through a bridge",
    ),
    GpuFacts(
        name="NVIDIA H100 NVL",
        label="H100 NVL",
        architecture="Hopper",
        compute_capability=(9, 0),
        memory_gib=94,
        memory="HBM3, ECC",
        bandwidth_gb_s=3900,
        tgp_w=400,
        link="PCIe 5 x16",
        nvlink=True,
        bf16_tflops=835.5,
        source=f"{H100_SOURCE}; NVLink through a bridge",
    ),
    GpuFacts(
        name="NVIDIA H200",
        label="H200",
        architecture="Hopper",
        compute_capability=(9, 0),
        memory_gib=141,
        memory="HBM3e, ECC",
        bandwidth_gb_s=4800,
        tgp_w=700,
        link="PCIe 5 x16",
        nvlink=True,
        bf16_tflops=989.4,
        source="NVIDIA H200 datasheet; dense peak: same GPU as the H100 SXM, Hopper architecture brief",
    ),
    GpuFacts(
        name="NVIDIA H200 NVL",
        label="H200 NVL",
        architecture="Hopper",
        compute_capability=(9, 0),
        memory_gib=141,
        memory="HBM3e, ECC",
        bandwidth_gb_s=4800,
        tgp_w=600,
        link="PCIe 5 x16",
        nvlink=True,
        bf16_tflops=835.5,
        source="NVIDIA H200 datasheet; dense peak is half of the one stated with sparsity; NVLink through a bridge",
    ),
)

AMPERE = (
    GpuFacts(
        name="NVIDIA A100-SXM4-40GB",
        label="A100 SXM 40 GB",
        architecture="Ampere",
        compute_capability=(8, 0),
        memory_gib=40,
        memory="HBM2, ECC",
        bandwidth_gb_s=1555,
        tgp_w=400,
        link="PCIe 4 x16",
        nvlink=True,
        bf16_tflops=312,
        source=A100_SOURCE,
    ),
    GpuFacts(
        name="NVIDIA A100-SXM4-80GB",
        label="A100 SXM 80 GB",
        architecture="Ampere",
        compute_capability=(8, 0),
        memory_gib=80,
        memory="HBM2e, ECC",
        bandwidth_gb_s=2039,
        tgp_w=400,
        link="PCIe 4 x16",
        nvlink=True,
        bf16_tflops=312,
        source=A100_SOURCE,
    ),
    GpuFacts(
        name="NVIDIA A100-PCIE-40GB",
        label="A100 PCIe 40 GB",
        architecture="Ampere",
        compute_capability=(8, 0),
        memory_gib=40,
        memory="HBM2, ECC",
        bandwidth_gb_s=1555,
        tgp_w=250,
        link="PCIe 4 x16",
        nvlink=True,
        bf16_tflops=312,
        source=f"{A100_SOURCE}; NVLink through a bridge",
    ),
    GpuFacts(
        name="NVIDIA A100 80GB PCIe",
        label="A100 PCIe 80 GB",
        architecture="Ampere",
        compute_capability=(8, 0),
        memory_gib=80,
        memory="HBM2e, ECC",
        bandwidth_gb_s=1935,
        tgp_w=300,
        link="PCIe 4 x16",
        nvlink=True,
        bf16_tflops=312,
        source=f"{A100_SOURCE}; NVLink through a bridge",
    ),
)

GPUS = (*RTX, *HOPPER, *AMPERE)
