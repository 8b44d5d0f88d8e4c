"""Lines of a dossier about what was measured on and with: platform, software, workload.

Requirement numbers are the playbook's. Joined in `dossier.lines`.
"""

from __future__ import annotations

from rtxscale.report.dossier.line import line

PLATFORM = (
    line("platform.gpu", "P24", 3, "GPU model and count", "environment:gpu/gpu* name", "trials:device_names"),
    line("platform.gpu_memory", "P24", 3, "GPU memory variant", "environment:gpu/gpu* memory", applies="gpu"),
    line("platform.gpu_documented", "P24 P29", 1, "Documented facts of the card", "derived:card", applies="gpu"),
    line("platform.board", "P24", 2, "Maker and model of the cards", "declared:platform.board_partner", applies="gpu"),
    line("platform.matched", "P24 P32", 2, "Cards matched within a node", "derived:matched", applies="gpu"),
    line("platform.mig", "P24", 1, "MIG mode", "environment:gpu/gpu* mig", applies="gpu"),
    line("platform.doctor", "P11 P24", 2, "Findings of the doctor", "derived:findings"),
    line("platform.cooler", "P12 P24", 3, "Cooler of the cards", "declared:platform.cooler", applies="gpu"),
    line("platform.psu_w", "P12 P24", 3, "Power supply rating in W", "declared:platform.psu_w"),
    line("platform.psu", "P12 P24", 1, "Power supplies", "declared:platform.psu"),
    line("platform.chassis", "P12 P24", 1, "Chassis", "declared:platform.chassis"),
    line("platform.airflow", "P12", 2, "Chassis airflow", "declared:platform.chassis_airflow"),
    line("platform.inlet", "P12", 3, "Inlet temperature in degC", "declared:platform.inlet_c"),
    line("platform.cpu", "P24", 2, "CPU model", "environment:host/cpu model"),
    line("platform.cpu_threads", "P24", 1, "CPU threads", "environment:host/cpu threads"),
    line("platform.memory_size", "P24", 2, "Host memory", "environment:host/memory"),
    line("platform.memory", "P24", 2, "Host memory configuration", "declared:platform.memory_configuration"),
    line("platform.pcie_slots", "P24 P26", 2, "PCIe slots of the cards", "declared:platform.pcie_slots", applies="gpu"),
    line(
        "platform.pcie_max",
        "P24 P26",
        2,
        "PCIe generation and lanes, largest",
        "environment:gpu/gpu* pcie max",
        applies="gpu",
    ),
    line(
        "platform.pcie_load",
        "P24 P26",
        3,
        "PCIe generation and lanes under load",
        "derived:pcie_under_load",
        applies="gpu",
    ),
    line("platform.storage", "P24", 1, "Storage", "declared:platform.storage"),
    line("platform.os", "P1 P24", 2, "Operating system", "environment:host/os"),
    line("platform.kernel", "P1 P24", 1, "Kernel", "environment:host/kernel"),
)

SOFTWARE = (
    line("software.driver", "P1 P24", 3, "NVIDIA driver", "environment:software/driver", applies="gpu"),
    line("software.module", "P1", 1, "Kernel module", "environment:software/NVIDIA kernel module", applies="gpu"),
    line("software.cuda_driver", "P1 P24", 2, "CUDA of the driver", "environment:software/CUDA driver", applies="gpu"),
    line("software.cuda", "P1 P24", 3, "CUDA of PyTorch", "environment:software/CUDA of torch", applies="gpu"),
    line("software.cudnn", "P1 P24", 2, "cuDNN", "environment:software/cudnn", applies="gpu"),
    line("software.nccl", "P1 P24", 3, "NCCL", "environment:software/nccl", applies="gpu"),
    line("software.torch", "P1 P24", 3, "PyTorch", "environment:software/torch"),
    line("software.torch_build", "P1 P24", 2, "PyTorch build, and whether it is a nightly", "derived:torch_build"),
    line("software.torch_commit", "P1 P24", 2, "PyTorch commit", "environment:software/torch commit"),
    line(
        "software.architectures",
        "P1",
        2,
        "Architectures of PyTorch against the card's",
        "derived:architectures",
        applies="gpu",
    ),
    line("software.python", "P1", 2, "Python", "environment:software/python"),
    line("software.rtxscale", "P1", 2, "rtxscale", "environment:software/rtxscale"),
    line("software.ai_enterprise", "P1 P24", 1, "NVIDIA AI Enterprise", "declared:platform.ai_enterprise"),
    line("software.locked", "P32", 2, "Locked list of every installed package", "derived:packages"),
)

WORKLOAD = (
    line("workload.name", "P25", 3, "Workload and model", "trials:workload"),
    line("workload.versions", "P25", 2, "Versions of the model code", "derived:model_code"),
    line("workload.training", "P25 P28", 2, "Training or inference", "derived:training"),
    line("workload.dataset", "P25", 3, "Dataset", "declared:data.dataset", "derived:dataset", applies="training"),
    line(
        "workload.dataset_version",
        "P25",
        2,
        "Dataset version",
        "declared:data.dataset_version",
        "derived:dataset_version",
        applies="training",
    ),
    line(
        "workload.tokenizer", "P25", 1, "Tokenizer", "declared:data.tokenizer", "derived:tokenizer", applies="language"
    ),
    line("workload.precision", "P25", 3, "Precision asked for", "settings:workload.precision"),
    line("workload.precision_seen", "P25", 3, "Precision seen", "attested:workload.precision", applies="training"),
    line(
        "workload.attention", "P25", 2, "Attention kernel asked for", "settings:workload.attention", applies="language"
    ),
    line(
        "workload.attention_seen", "P25", 3, "Attention kernel seen", "attested:workload.attention", applies="language"
    ),
    line("workload.compile", "P25", 3, "torch.compile", "settings:workload.compile", applies="training"),
    line("workload.compile_seen", "P25", 2, "torch.compile seen", "attested:workload.compile", applies="compiled"),
    line("workload.batch", "P25", 3, "Batch per GPU", "settings:workload.batch_per_gpu", applies="training"),
    line("workload.global_batch", "P25", 3, "Global batch", "settings:workload.global_batch", applies="training"),
    line("workload.context", "P25", 3, "Context in tokens", "settings:workload.context", applies="language"),
    line("workload.image_size", "P25", 2, "Image size in pixels", "settings:workload.image_size", applies="images"),
    line("workload.accumulation", "P25", 2, "Accumulation", "settings:workload.accumulation", applies="accumulated"),
    line(
        "workload.checkpointing", "P25", 2, "Checkpointing", "settings:workload.checkpointing", applies="checkpointed"
    ),
    line("workload.optimizer", "P25", 2, "Optimizer", "derived:optimizer", applies="training"),
    line("workload.schedule", "P25", 1, "Learning-rate schedule", "derived:schedule", applies="training"),
    line("workload.sharding", "P25", 2, "Sharding", "settings:workload.parallel", "derived:no_sharding"),
    line("workload.sharding_seen", "P25", 2, "Sharding seen", "attested:workload.parallel", applies="language"),
    line("workload.loader", "P25", 2, "Loader workers", "derived:loader", applies="training"),
    line("workload.pinned", "P25", 1, "Pinned host memory", "derived:pinned", applies="training"),
    line("workload.numa", "P25", 2, "NUMA binding", "declared:conditions.numa_binding"),
    line("workload.threads", "P25", 1, "CPU threads of each worker", "trials:threads"),
    line(
        "workload.augmentations",
        "P25",
        2,
        "Augmentations",
        "declared:data.augmentations",
        "derived:augmentations",
        applies="diffusion",
    ),
    line(
        "workload.scheduler",
        "P25",
        2,
        "Noise scheduler",
        "declared:data.noise_scheduler",
        "derived:scheduler",
        applies="diffusion",
    ),
)
