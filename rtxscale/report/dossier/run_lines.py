"""Lines of a dossier about the run itself: distribution, conditions, method, results, sanity, record.

Requirement numbers are the playbook's. Joined in `dossier.lines`.
"""

from __future__ import annotations

from rtxscale.report.dossier.line import line

DISTRIBUTION = (
    line("distribution.world", "P26", 3, "World sizes", "trials:gpus"),
    line("distribution.nodes", "P26", 2, "Machines", "trials:nodes"),
    line("distribution.launch", "P26", 2, "Launch parameters, without secrets", "derived:launch"),
    line("distribution.isolation", "P26", 1, "Isolation of trials", "trials:isolation"),
    line(
        "distribution.topology",
        "P26",
        2,
        "Topology as the tools print it",
        "environment:doctor/text of *topo*",
        applies="nccl",
    ),
    line("distribution.link", "P26", 3, "Transport between GPUs, as NCCL says", "derived:transport", applies="nccl"),
    line("distribution.p2p", "P26", 3, "P2P asked for", "settings:nccl.p2p", applies="nccl"),
    line("distribution.p2p_seen", "P26", 3, "P2P seen", "attested:nccl.p2p", applies="nccl"),
    line("distribution.switches", "P26", 2, "Switch placement", "declared:platform.switches", applies="nccl"),
    line("distribution.algorithm", "P26", 2, "NCCL algorithm asked for", "settings:nccl.algorithm", applies="nccl"),
    line("distribution.algorithm_seen", "P26", 2, "NCCL algorithm seen", "attested:nccl.algorithm", applies="nccl"),
    line("distribution.channels", "P26", 2, "NCCL channels asked for", "settings:nccl.channels", applies="nccl"),
    line("distribution.channels_seen", "P26", 2, "NCCL channels seen", "attested:nccl.channels", applies="nccl"),
    line("distribution.protocol", "P26", 1, "NCCL protocol asked for", "settings:nccl.protocol", applies="nccl"),
    line("distribution.protocol_seen", "P26", 1, "NCCL protocol seen", "attested:nccl.protocol", applies="nccl"),
    line("distribution.bucket", "P26", 2, "DDP bucket cap in MiB", "settings:ddp.bucket_mib", applies="several"),
    line("distribution.bucket_seen", "P26", 1, "DDP buckets seen", "attested:ddp.bucket_mib", applies="several"),
)

CONDITIONS = (
    line("conditions.power_limit", "P11", 3, "Power limit against the stock one", "derived:power_limit", applies="gpu"),
    line("conditions.clock", "P11", 2, "SM clock in the windows", "derived:sm_clock", applies="gpu"),
    line("conditions.overclock", "P11", 2, "Overclocking", "declared:conditions.overclock", applies="gpu"),
    line("conditions.locked", "P11", 2, "Locked clocks", "declared:conditions.locked_clocks", applies="gpu"),
    line(
        "conditions.untouched",
        "P11",
        1,
        "What rtxscale changed",
        "documented:rtxscale changes no clock and no power limit",
    ),
    line("conditions.temperature", "P12", 3, "Hottest GPU core in the windows", "derived:temperature", applies="gpu"),
    line("conditions.memory_temperature", "P12", 2, "Hottest GPU memory", "derived:memory_temperature", applies="gpu"),
    line("conditions.fan", "P12", 1, "Fans of the cards", "derived:fan", applies="gpu"),
    line("conditions.throttling", "P13", 3, "Thermal and power-brake throttling", "derived:throttling", applies="gpu"),
    line("conditions.power_cap", "P13", 2, "Time at the power limit", "derived:power_cap", applies="gpu"),
    line("conditions.other_load", "P13", 1, "Other load on the machine", "declared:conditions.other_load"),
)

METHOD = (
    line("method.profile", "P9", 3, "Measurement profile", "derived:profile"),
    line("method.warmup", "P9 P27", 3, "Warm-up of a trial", "derived:warmup"),
    line("method.soak", "P9 P27", 3, "Soak", "derived:soak", applies="training"),
    line("method.load", "P9", 2, "Time under load before a window", "derived:load", applies="training"),
    line("method.criterion", "P9 P27", 3, "Steady-state criterion", "derived:criterion", applies="training"),
    line("method.steady", "P9", 3, "Trials that were steady", "derived:steady", applies="training"),
    line("method.slopes", "P9", 2, "Slopes of temperature and clock at the end", "derived:slopes", applies="gpu"),
    line("method.excluded", "P9", 2, "Left out of every window", "documented:first step, compilation and warm-up"),
    line("method.window", "P9 P27", 3, "Measured window", "derived:window", applies="training"),
    line("method.study", "P27", 2, "Study", "derived:study"),
    line("method.visits", "P27", 3, "Visits and sessions", "derived:visits"),
    line(
        "method.intervals",
        "P27",
        2,
        "Intervals",
        "documented:95 %, Welch's t on logs of session means: the session is the replicate, not the repeat",
    ),
    line("method.outcomes", "P13 P31", 2, "How the trials ended", "derived:outcomes"),
)

RESULTS = (
    line("results.throughput", "P27", 3, "Throughput", "derived:throughput", applies="training"),
    line("results.steps", "P27", 2, "Steps per second", "derived:steps", applies="training"),
    line("results.efficiency", "P27", 3, "Scaling efficiency", "derived:efficiency", applies="several"),
    line("results.bandwidth", "P26", 2, "Bus bandwidth of collectives", "derived:bandwidth", applies="collectives"),
    line(
        *("results.target", "P27", 1, "Target of time to target"),
        *("derived:target", "declared:data.target", "derived:no_target"),
    ),
    line(
        *("results.time_to_target", "P27", 1, "Time to target in s"),
        *("derived:time_to_target", "declared:data.time_to_target_s", "derived:no_target"),
    ),
    line("results.gpu_power", "P10 P27", 3, "GPU power in the steady state", "derived:gpu_power", applies="gpu"),
    line("results.energy_source", "P10", 1, "Where the GPU energy comes from", "trials:energy_source", applies="gpu"),
    line("results.wall_power", "P10 P27", 3, "Power at the wall in W", "derived:wall_power", "declared:power.wall_w"),
    line("results.wall_meter", "P10", 2, "Wall meter", "declared:power.meter", "trials:wall_source"),
    line("results.wall_scope", "P10", 2, "What the wall meter measured, and when", "declared:power.scope"),
    line(
        "results.memory_peak",
        "P27",
        2,
        "Peak GPU memory, as PyTorch allocated it",
        "derived:memory_peak",
        applies="gpu",
    ),
    line(
        "results.memory_typical",
        "P27",
        1,
        "Typical GPU memory, as the driver counts it: reserved and context included",
        "derived:memory_typical",
        applies="gpu",
    ),
    line("results.per_watt", "P10 P29", 2, "Work per joule of GPU energy", "derived:per_watt", applies="gpu"),
    line("results.price", "P29", 2, "Price really billed", "derived:price"),
    line("results.currency", "P29", 1, "Currency", "declared:price.currency"),
    line("results.price_basis", "P29", 2, "What was billed", "declared:price.basis"),
    line("results.per_money", "P29", 2, "Work per unit of money", "derived:per_money", applies="training"),
)

SANITY = (
    line("sanity.signals", "P28", 2, "Signals checked within this run", "derived:signals"),
    line(
        "sanity.uplift",
        "P28",
        1,
        "RTX 5090 over RTX 4090, vision: about +44 % on average (a lab's timm benchmark, batch 256)",
        "derived:needs_two_cards",
    ),
    line(
        "sanity.uplift_by_model",
        "P28",
        1,
        "RTX 5090 over RTX 4090: larger on transformer-heavy models (Swin-B) than on ResNet-50 (the same benchmark)",
        "derived:needs_two_cards",
    ),
    line(
        "sanity.bandwidth",
        "P28",
        1,
        "Memory-bound language phases follow memory bandwidth, most at contexts of 2k and more (playbook)",
        "derived:needs_two_cards",
    ),
    line(
        "sanity.capacity",
        "P28",
        1,
        "Memory shows in the largest batch and context that run (playbook)",
        "derived:capacity",
    ),
    line(
        "sanity.compile",
        "P28",
        1,
        "Compile helps more on several GPUs over PCIe than on one (playbook)",
        "derived:compile_gain",
    ),
    line("sanity.fp8", "P28", 1, "FP8 is faster and smaller than bf16 (playbook)", "derived:fp8_gain"),
    line(
        "sanity.pcie",
        "P28",
        1,
        "One GPU: PCIe 5 against 4 within a few percent; several GPUs lose most on older generations (playbook)",
        "derived:needs_two_links",
    ),
)

RECORD = (
    line("record.files", "P31", 2, "Raw tables, logs and plots that travel with this dossier", "derived:files"),
    line("record.sweep", "P31 P32", 3, "The sweep file", "derived:sweep_file"),
    line("record.matrix", "P32", 2, "Software matrix", "derived:matrix"),
    line("record.templates", "P32", 1, "Workload templates in this run", "derived:templates"),
    line(
        "record.comparison",
        "P32",
        1,
        "How two labs compare",
        "documented:rtxscale dossier --diff A B names every setting that differs",
    ),
    line(
        "record.unknown",
        "P30",
        1,
        "What is not known",
        "documented:every line has a value, or says unknown or not applicable",
    ),
    line("record.notes", "P31", 1, "Notes", "declared:notes"),
)
