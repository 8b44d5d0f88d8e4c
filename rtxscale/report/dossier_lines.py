"""What a dossier must say, as data: one line per fact that the playbook asks of a publication, and where it comes from.

A line's sources are asked in order; the first that knows is the value. What no source knows is `unknown`, what cannot
be is `not applicable`, and both are said. The sources are in `report.dossier_facts`; `report.dossier` fills the lines.
Requirement numbers are the playbook's.
"""

from __future__ import annotations

from dataclasses import dataclass

PARTS = ("platform", "software", "workload", "distribution", "conditions", "method", "results", "sanity", "record")
KINDS = ("environment", "trials", "settings", "attested", "declared", "documented", "derived")

REQUIRED = ("P1", *(f"P{number}" for number in (*range(9, 14), *range(24, 33))))
"""Requirements of which every dossier has at least one line each."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a value is looked for: `kind` is one of `KINDS`, `key` the row, column, field, text or function."""

    kind: str
    key: str


@dataclass(frozen=True, kw_only=True)
class Line:
    """One fact; `weight` 3 means that a number is worth little without it, 1 that it completes the picture."""

    id: str
    part: str
    requirements: tuple[str, ...]
    text: str
    sources: tuple[Source, ...]
    weight: int
    applies: str = "always"
    """Which runs it is a question for; see `dossier_facts.APPLIES`."""


def _line(name: str, requirements: str, weight: int, text: str, *sources: str, applies: str = "always") -> Line:
    """A line from shorthand: `part.name`, requirements with spaces between, sources as `kind:key`."""
    return Line(
        id=name,
        part=name.partition(".")[0],
        requirements=tuple(requirements.split()),
        text=text,
        sources=tuple(Source(kind=kind, key=key) for kind, _, key in (source.partition(":") for source in sources)),
        weight=weight,
        applies=applies,
    )


PLATFORM = (
    _line("platform.gpu", "P24", 3, "GPU model and count", "environment:gpu/gpu* name", "trials:device_names"),
    _line("platform.gpu_memory", "P24", 3, "GPU memory variant", "environment:gpu/gpu* memory", applies="gpu"),
    _line("platform.gpu_documented", "P24 P29", 1, "Documented facts of the card", "derived:card", applies="gpu"),
    _line("platform.board", "P24", 2, "Maker and model of the cards", "declared:platform.board_partner", applies="gpu"),
    _line("platform.matched", "P24 P32", 2, "Cards matched within a node", "derived:matched", applies="gpu"),
    _line("platform.mig", "P24", 1, "MIG mode", "environment:gpu/gpu* mig", applies="gpu"),
    _line("platform.doctor", "P11 P24", 2, "Findings of the doctor", "derived:findings"),
    _line("platform.cooler", "P12 P24", 3, "Cooler of the cards", "declared:platform.cooler", applies="gpu"),
    _line("platform.psu_w", "P12 P24", 3, "Power supply rating in W", "declared:platform.psu_w"),
    _line("platform.psu", "P12 P24", 1, "Power supplies", "declared:platform.psu"),
    _line("platform.chassis", "P12 P24", 1, "Chassis", "declared:platform.chassis"),
    _line("platform.airflow", "P12", 2, "Chassis airflow", "declared:platform.chassis_airflow"),
    _line("platform.inlet", "P12", 3, "Inlet temperature in degC", "declared:platform.inlet_c"),
    _line("platform.cpu", "P24", 2, "CPU model", "environment:host/cpu model"),
    _line("platform.cpu_threads", "P24", 1, "CPU threads", "environment:host/cpu threads"),
    _line("platform.memory_size", "P24", 2, "Host memory", "environment:host/memory"),
    _line("platform.memory", "P24", 2, "Host memory configuration", "declared:platform.memory_configuration"),
    _line(
        "platform.pcie_slots", "P24 P26", 2, "PCIe slots of the cards", "declared:platform.pcie_slots", applies="gpu"
    ),
    _line(
        "platform.pcie_max",
        "P24 P26",
        2,
        "PCIe generation and lanes, largest",
        "environment:gpu/gpu* pcie max",
        applies="gpu",
    ),
    _line(
        "platform.pcie_load",
        "P24 P26",
        3,
        "PCIe generation and lanes under load",
        "derived:pcie_under_load",
        applies="gpu",
    ),
    _line("platform.storage", "P24", 1, "Storage", "declared:platform.storage"),
    _line("platform.os", "P1 P24", 2, "Operating system", "environment:host/os"),
    _line("platform.kernel", "P1 P24", 1, "Kernel", "environment:host/kernel"),
)

SOFTWARE = (
    _line("software.driver", "P1 P24", 3, "NVIDIA driver", "environment:software/driver", applies="gpu"),
    _line("software.module", "P1", 1, "Kernel module", "environment:software/NVIDIA kernel module", applies="gpu"),
    _line("software.cuda_driver", "P1 P24", 2, "CUDA of the driver", "environment:software/CUDA driver", applies="gpu"),
    _line("software.cuda", "P1 P24", 3, "CUDA of PyTorch", "environment:software/CUDA of torch", applies="gpu"),
    _line("software.cudnn", "P1 P24", 2, "cuDNN", "environment:software/cudnn", applies="gpu"),
    _line("software.nccl", "P1 P24", 3, "NCCL", "environment:software/nccl", applies="gpu"),
    _line("software.torch", "P1 P24", 3, "PyTorch", "environment:software/torch"),
    _line("software.torch_build", "P1 P24", 2, "PyTorch build, and whether it is a nightly", "derived:torch_build"),
    _line("software.torch_commit", "P1 P24", 2, "PyTorch commit", "environment:software/torch commit"),
    _line(
        "software.architectures",
        "P1",
        2,
        "Architectures of PyTorch against the card's",
        "derived:architectures",
        applies="gpu",
    ),
    _line("software.python", "P1", 2, "Python", "environment:software/python"),
    _line("software.rtxscale", "P1", 2, "rtxscale", "environment:software/rtxscale"),
    _line("software.ai_enterprise", "P1 P24", 1, "NVIDIA AI Enterprise", "declared:platform.ai_enterprise"),
    _line("software.locked", "P32", 2, "Locked list of every installed package", "derived:packages"),
)

WORKLOAD = (
    _line("workload.name", "P25", 3, "Workload and model", "trials:workload"),
    _line("workload.versions", "P25", 2, "Versions of the model code", "derived:model_code"),
    _line("workload.training", "P25 P28", 2, "Training or inference", "derived:training"),
    _line("workload.dataset", "P25", 3, "Dataset", "declared:data.dataset", "derived:dataset", applies="training"),
    _line(
        "workload.dataset_version",
        "P25",
        2,
        "Dataset version",
        "declared:data.dataset_version",
        "derived:dataset_version",
        applies="training",
    ),
    _line(
        "workload.tokenizer", "P25", 1, "Tokenizer", "declared:data.tokenizer", "derived:tokenizer", applies="language"
    ),
    _line("workload.precision", "P25", 3, "Precision asked for", "settings:workload.precision"),
    _line("workload.precision_seen", "P25", 3, "Precision seen", "attested:workload.precision", applies="training"),
    _line(
        "workload.attention", "P25", 2, "Attention kernel asked for", "settings:workload.attention", applies="language"
    ),
    _line(
        "workload.attention_seen", "P25", 3, "Attention kernel seen", "attested:workload.attention", applies="language"
    ),
    _line("workload.compile", "P25", 3, "torch.compile", "settings:workload.compile", applies="training"),
    _line("workload.compile_seen", "P25", 2, "torch.compile seen", "attested:workload.compile", applies="compiled"),
    _line("workload.batch", "P25", 3, "Batch per GPU", "settings:workload.batch_per_gpu", applies="training"),
    _line("workload.global_batch", "P25", 3, "Global batch", "settings:workload.global_batch", applies="training"),
    _line("workload.context", "P25", 3, "Context in tokens", "settings:workload.context", applies="language"),
    _line("workload.image_size", "P25", 2, "Image size in pixels", "settings:workload.image_size", applies="images"),
    _line("workload.accumulation", "P25", 2, "Accumulation", "settings:workload.accumulation", applies="accumulated"),
    _line(
        "workload.checkpointing", "P25", 2, "Checkpointing", "settings:workload.checkpointing", applies="checkpointed"
    ),
    _line("workload.optimizer", "P25", 2, "Optimizer", "derived:optimizer", applies="training"),
    _line("workload.schedule", "P25", 1, "Learning-rate schedule", "derived:schedule", applies="training"),
    _line("workload.sharding", "P25", 2, "Sharding", "settings:workload.parallel", "derived:no_sharding"),
    _line("workload.sharding_seen", "P25", 2, "Sharding seen", "attested:workload.parallel", applies="language"),
    _line("workload.loader", "P25", 2, "Loader workers", "derived:loader", applies="training"),
    _line("workload.pinned", "P25", 1, "Pinned host memory", "derived:pinned", applies="training"),
    _line("workload.numa", "P25", 2, "NUMA binding", "declared:conditions.numa_binding"),
    _line("workload.threads", "P25", 1, "CPU threads of each worker", "trials:threads"),
    _line(
        "workload.augmentations",
        "P25",
        2,
        "Augmentations",
        "declared:data.augmentations",
        "derived:augmentations",
        applies="diffusion",
    ),
    _line(
        "workload.scheduler",
        "P25",
        2,
        "Noise scheduler",
        "declared:data.noise_scheduler",
        "derived:scheduler",
        applies="diffusion",
    ),
)

DISTRIBUTION = (
    _line("distribution.world", "P26", 3, "World sizes", "trials:gpus"),
    _line("distribution.nodes", "P26", 2, "Machines", "trials:nodes"),
    _line("distribution.launch", "P26", 2, "Launch parameters, without secrets", "derived:launch"),
    _line("distribution.isolation", "P26", 1, "Isolation of trials", "trials:isolation"),
    _line(
        "distribution.topology",
        "P26",
        2,
        "Topology as the tools print it",
        "environment:doctor/text of *topo*",
        applies="nccl",
    ),
    _line("distribution.link", "P26", 3, "Transport between GPUs, as NCCL says", "derived:transport", applies="nccl"),
    _line("distribution.p2p", "P26", 3, "P2P asked for", "settings:nccl.p2p", applies="nccl"),
    _line("distribution.p2p_seen", "P26", 3, "P2P seen", "attested:nccl.p2p", applies="nccl"),
    _line("distribution.switches", "P26", 2, "Switch placement", "declared:platform.switches", applies="nccl"),
    _line("distribution.algorithm", "P26", 2, "NCCL algorithm asked for", "settings:nccl.algorithm", applies="nccl"),
    _line("distribution.algorithm_seen", "P26", 2, "NCCL algorithm seen", "attested:nccl.algorithm", applies="nccl"),
    _line("distribution.channels", "P26", 2, "NCCL channels asked for", "settings:nccl.channels", applies="nccl"),
    _line("distribution.channels_seen", "P26", 2, "NCCL channels seen", "attested:nccl.channels", applies="nccl"),
    _line("distribution.protocol", "P26", 1, "NCCL protocol asked for", "settings:nccl.protocol", applies="nccl"),
    _line("distribution.bucket", "P26", 2, "DDP bucket cap in MiB", "settings:ddp.bucket_mib", applies="several"),
    _line("distribution.bucket_seen", "P26", 1, "DDP buckets seen", "attested:ddp.bucket_mib", applies="several"),
)

CONDITIONS = (
    _line(
        "conditions.power_limit", "P11", 3, "Power limit against the stock one", "derived:power_limit", applies="gpu"
    ),
    _line("conditions.clock", "P11", 2, "SM clock in the windows", "derived:sm_clock", applies="gpu"),
    _line("conditions.overclock", "P11", 2, "Overclocking", "declared:conditions.overclock", applies="gpu"),
    _line("conditions.locked", "P11", 2, "Locked clocks", "declared:conditions.locked_clocks", applies="gpu"),
    _line(
        "conditions.untouched",
        "P11",
        1,
        "What rtxscale changed",
        "documented:rtxscale changes no clock and no power limit",
    ),
    _line("conditions.temperature", "P12", 3, "Hottest GPU core in the windows", "derived:temperature", applies="gpu"),
    _line("conditions.memory_temperature", "P12", 2, "Hottest GPU memory", "derived:memory_temperature", applies="gpu"),
    _line("conditions.fan", "P12", 1, "Fans of the cards", "derived:fan", applies="gpu"),
    _line("conditions.throttling", "P13", 3, "Thermal and power-brake throttling", "derived:throttling", applies="gpu"),
    _line("conditions.power_cap", "P13", 2, "Time at the power limit", "derived:power_cap", applies="gpu"),
    _line("conditions.other_load", "P13", 1, "Other load on the machine", "declared:conditions.other_load"),
)

METHOD = (
    _line("method.profile", "P9", 3, "Measurement profile", "derived:profile"),
    _line("method.warmup", "P9 P27", 3, "Warm-up of a trial", "derived:warmup"),
    _line("method.soak", "P9 P27", 3, "Soak", "derived:soak", applies="training"),
    _line("method.load", "P9", 2, "Time under load before a window", "derived:load", applies="training"),
    _line("method.criterion", "P9 P27", 3, "Steady-state criterion", "derived:criterion", applies="training"),
    _line("method.steady", "P9", 3, "Trials that were steady", "derived:steady", applies="training"),
    _line("method.slopes", "P9", 2, "Slopes of temperature and clock at the end", "derived:slopes", applies="gpu"),
    _line("method.excluded", "P9", 2, "Left out of every window", "documented:first step, compilation and warm-up"),
    _line("method.window", "P9 P27", 3, "Measured window", "derived:window", applies="training"),
    _line("method.study", "P27", 2, "Study", "trials:study"),
    _line("method.visits", "P27", 3, "Visits and sessions", "derived:visits"),
    _line(
        "method.intervals",
        "P27",
        2,
        "Intervals",
        "documented:95 %, Welch's t on logs of session means: the session is the replicate, not the repeat",
    ),
    _line("method.outcomes", "P13 P31", 2, "How the trials ended", "derived:outcomes"),
)

RESULTS = (
    _line("results.throughput", "P27", 3, "Throughput", "derived:throughput", applies="training"),
    _line("results.steps", "P27", 2, "Steps per second", "derived:steps", applies="training"),
    _line("results.efficiency", "P27", 3, "Scaling efficiency", "derived:efficiency", applies="several"),
    _line("results.bandwidth", "P26", 2, "Bus bandwidth of collectives", "derived:bandwidth", applies="collectives"),
    _line("results.target", "P27", 1, "Target of time to target", "declared:data.target", "derived:no_target"),
    _line(
        "results.time_to_target", "P27", 1, "Time to target in s", "declared:data.time_to_target_s", "derived:no_target"
    ),
    _line("results.gpu_power", "P10 P27", 3, "GPU power in the steady state", "derived:gpu_power", applies="gpu"),
    _line("results.energy_source", "P10", 1, "Where the GPU energy comes from", "trials:energy_source", applies="gpu"),
    _line("results.wall_power", "P10 P27", 3, "Power at the wall in W", "declared:power.wall_w"),
    _line("results.wall_meter", "P10", 2, "Wall meter", "declared:power.meter"),
    _line("results.wall_scope", "P10", 2, "What the wall meter measured, and when", "declared:power.scope"),
    _line("results.memory_peak", "P27", 2, "Peak GPU memory", "derived:memory_peak", applies="gpu"),
    _line("results.memory_typical", "P27", 1, "Typical GPU memory", "derived:memory_typical", applies="gpu"),
    _line("results.per_watt", "P10 P29", 2, "Throughput per W of GPU power", "derived:per_watt", applies="gpu"),
    _line("results.price", "P29", 2, "Price really billed", "derived:price"),
    _line("results.currency", "P29", 1, "Currency", "declared:price.currency"),
    _line("results.price_basis", "P29", 2, "What was billed", "declared:price.basis"),
    _line("results.per_money", "P29", 2, "Work per unit of money", "derived:per_money", applies="training"),
)

SANITY = (
    _line("sanity.signals", "P28", 2, "Signals checked within this run", "derived:signals"),
    _line(
        "sanity.uplift",
        "P28",
        1,
        "RTX 5090 over RTX 4090, vision: about +44 % on average (a lab's timm benchmark, batch 256)",
        "derived:needs_two_cards",
    ),
    _line(
        "sanity.uplift_by_model",
        "P28",
        1,
        "RTX 5090 over RTX 4090: larger on transformer-heavy models (Swin-B) than on ResNet-50 (the same benchmark)",
        "derived:needs_two_cards",
    ),
    _line(
        "sanity.bandwidth",
        "P28",
        1,
        "Memory-bound language phases follow memory bandwidth, most at contexts of 2k and more (playbook)",
        "derived:needs_two_cards",
    ),
    _line(
        "sanity.capacity",
        "P28",
        1,
        "Memory shows in the largest batch and context that run (playbook)",
        "derived:capacity",
    ),
    _line(
        "sanity.compile",
        "P28",
        1,
        "Compile helps more on several GPUs over PCIe than on one (playbook)",
        "derived:compile_gain",
    ),
    _line("sanity.fp8", "P28", 1, "FP8 is faster and smaller than bf16 (playbook)", "derived:fp8_gain"),
    _line(
        "sanity.pcie",
        "P28",
        1,
        "One GPU: PCIe 5 against 4 within a few percent; several GPUs lose most on older generations (playbook)",
        "derived:needs_two_links",
    ),
)

RECORD = (
    _line("record.files", "P31", 2, "Raw tables, logs and plots that travel with this dossier", "derived:files"),
    _line("record.sweep", "P31 P32", 3, "The sweep file", "derived:sweep_file"),
    _line("record.matrix", "P32", 2, "Software matrix", "derived:matrix"),
    _line("record.templates", "P32", 1, "Workload templates in this run", "derived:templates"),
    _line(
        "record.comparison",
        "P32",
        1,
        "How two labs compare",
        "documented:rtxscale dossier --diff A B names every setting that differs",
    ),
    _line(
        "record.unknown",
        "P30",
        1,
        "What is not known",
        "documented:every line has a value, or says unknown or not applicable",
    ),
    _line("record.notes", "P31", 1, "Notes", "declared:notes"),
)

LINES = (*PLATFORM, *SOFTWARE, *WORKLOAD, *DISTRIBUTION, *CONDITIONS, *METHOD, *RESULTS, *SANITY, *RECORD)
"""Every line, in the order of the dossier."""
