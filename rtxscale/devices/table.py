"""The rows of the GPU table, each with the source of its values: RTX cards, and those of `devices.datacentre`.

A value that no source states, or on which sources disagree, is None; it is never taken from a similar card. A card
missing here works all the same: what is not known about it is None everywhere. Read through `devices.gpus`.
"""

from __future__ import annotations

from rtxscale.devices.datacentre import AMPERE, HOPPER
from rtxscale.devices.facts import AIME_RANGE, PLAYBOOK, PRODUCT_PAGE_PSU, GpuFacts, Peaks

RTX_5090_PEAKS = Peaks(fp32=104.8, tf32=104.8, fp16=209.5, bf16=209.5, fp8=419)
RTX_5080_PEAKS = Peaks(fp32=56.3, tf32=56.3, fp16=112.6, bf16=112.6, fp8=225.1)
RTX_4090_PEAKS = Peaks(fp32=82.6, tf32=82.6, fp16=165.2, bf16=165.2, fp8=330.3)
BLACKWELL_PEAKS = ("peaks", "NVIDIA RTX Blackwell GPU architecture, appendix; bf16 also in the playbook")

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
        peaks=RTX_5090_PEAKS,
        efficiency_range=(0.91, 0.97),
        p21_target=True,
        p2p_stock=False,
        psu_w=1000,
        source=f"{PLAYBOOK}; NVIDIA RTX Blackwell architecture brief",
        sources=(
            AIME_RANGE,
            BLACKWELL_PEAKS,
            ("p2p_stock", "GNS in `nvidia-smi topo -p2p` of stock drivers (noonghunna/club-3090 issue 1229)"),
            ("psu_w", f"{PLAYBOOK}; {PRODUCT_PAGE_PSU[1]}"),
        ),
    ),
    GpuFacts(
        name="NVIDIA GeForce RTX 5080",
        label="RTX 5080",
        architecture="Blackwell",
        compute_capability=(12, 0),
        memory_gib=16,
        memory="GDDR7, 256-bit",
        bandwidth_gb_s=960,
        tgp_w=360,
        link="PCIe 5 x16",
        nvlink=False,
        peaks=RTX_5080_PEAKS,
        psu_w=850,
        source=PLAYBOOK,
        sources=(BLACKWELL_PEAKS, PRODUCT_PAGE_PSU),
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
        mig_instances=2,
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
        mig_instances=2,
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
        sources=(AIME_RANGE,),
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
        memory="GDDR6X",
        bandwidth_gb_s=1008,
        tgp_w=450,
        link="PCIe 4 x16",
        nvlink=False,
        peaks=RTX_4090_PEAKS,
        efficiency_range=(0.62, 0.75),
        p2p_stock=False,
        psu_w=850,
        source=PLAYBOOK,
        sources=(
            AIME_RANGE,
            ("peaks", "NVIDIA Ada GPU architecture 2.01, appendix A; bf16 also in the playbook"),
            ("p2p_stock", f"{PLAYBOOK}; nccl-tests issue 287 (stock drivers)"),
            PRODUCT_PAGE_PSU,
        ),
    ),
)

GPUS = (*RTX, *HOPPER, *AMPERE)
