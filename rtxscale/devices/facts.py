"""What a row of the GPU table says, and the sources that several rows share. The rows are in `devices.table`."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, kw_only=True)
class Peaks:
    """Dense TFLOPS with fp32 accumulation: of the CUDA cores in fp32, of the tensor cores in everything else."""

    fp32: float
    tf32: float
    fp16: float
    bf16: float
    fp8: float | None = None


@dataclass(frozen=True, kw_only=True)
class GpuFacts:
    """What is documented about one GPU model in one memory variant.

    `name` is the model as NVML spells it, `other_names` further spellings of the same card. `label` is the short name
    that people type and reports show. Bandwidth is that of the memory, in GB/s; `tgp_w` is the stock power limit.
    `peaks` are the dense peaks with fp32 accumulation, by precision. `efficiency_range` is the indicative efficiency
    of each GPU beyond the first, under `EFFICIENCY_CONDITIONS`. `p2p_stock`: whether the stock driver offers direct
    transfers between two such cards. `psu_w` is the vendor's smallest power supply for a system with one such card,
    `mig_instances` how many MIG instances it can be cut into at most. `source` holds for every value that `sources`,
    fields and their own sources, does not name.
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
    peaks: Peaks | None = None
    efficiency_range: tuple[float, float] | None = None
    p21_target: bool = False
    p2p_stock: bool | None = None
    source: str
    sources: tuple[tuple[str, str], ...] = ()
    psu_w: float | None = None
    mig_instances: int | None = None
    other_names: tuple[str, ...] = ()

    def source_of(self, field: str) -> str:
        """Where the value of a field comes from."""
        return dict(self.sources).get(field, self.source)

    def peak_tflops(self, precision: str) -> float | None:
        """The documented dense peak in a precision; None where there is none."""
        return None if self.peaks is None else asdict(self.peaks).get(precision)


EFFICIENCY_CONDITIONS = "vision training with AMP and compile, data-parallel over PCIe; indicative, not a promise"
PLAYBOOK = "playbook, hardware in scope"
AIME_RANGE = ("efficiency_range", f"{PLAYBOOK}; AIME deep-learning GPU benchmarks (multi-GPU efficiencies)")
PRODUCT_PAGE_PSU = ("psu_w", "NVIDIA product page, required system power")
