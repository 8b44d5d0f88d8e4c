"""Why a model cannot be trained as a cell asks: precision, attention, sharding and compilation that do not go together.

One small pure rule per reason, as in `plan.rules`, which looks at them in order.
"""

from __future__ import annotations

from rtxscale.models.decoder_settings import SHARDED
from rtxscale.models.shapes import SIZES
from rtxscale.plan.site import Site
from rtxscale.spec.cell import Cell
from rtxscale.spec.training import Learning
from rtxscale.spec.workload import CUDA_GRAPH_MODES, DiffusionWorkload, LanguageWorkload, VisionWorkload

HALF_PRECISIONS = ("fp16", "bf16", "fp8")
HALF_KERNELS = ("flash", "cudnn", "flash_attention_2")
FLASH_CAPABILITY = (8, 0)
"""The flash-attn package has kernels from Ampere on (its README)."""
QUANTISED_CAPABILITY = (7, 5)
FLOAT8_CAPABILITY = (8, 9)
"""Tensor cores multiply FP8 from Ada on (NVIDIA, CUDA C++ programming guide, compute capabilities)."""
FLOAT8_VERSIONS = {"torchao": "0.8", "transformer_engine": "2.5"}
FLOAT8_MULTIPLE = 16
"""Of every dimension of an FP8 matrix product (NVIDIA, cuBLASLt)."""


def precision_exists(cell: Cell, site: Site) -> str | None:
    """TF32 and FP8 are formats of NVIDIA's tensor cores; FP4 is not trained in."""
    precision = cell.workload.precision
    if precision == "fp4":
        return "precision fp4 is refused: no installed library vouches for training in it on this card; use fp8 or bf16"
    if isinstance(cell.workload, LanguageWorkload) and precision == "fp8":
        return _float8_exists(cell.workload, site) or _float8_goes_with(cell.workload)
    if site.device != "cpu" or cell.workload.precision != "tf32":
        return None
    return "precision tf32 does not exist on CPU; use fp32 or bf16"


def _float8_exists(workload: LanguageWorkload, site: Site) -> str | None:
    """Tensor cores have it from Ada on."""
    least = FLOAT8_VERSIONS[workload.fp8_library]
    needs = f"precision fp8 needs {workload.fp8_library} >= {least} and a compute capability >= 8.9"
    if site.device == "cpu":
        return f"{needs}: there is no GPU; use fp32 or bf16"
    if site.capability is not None and site.capability < FLOAT8_CAPABILITY:
        return f"{needs}: the GPU has {site.capability[0]}.{site.capability[1]}; use bf16"
    return None


def _float8_goes_with(workload: LanguageWorkload) -> str | None:
    """What FP8 was tried with, or would be worth its while with."""
    if workload.tuning == "lora":
        why = "FP8 layers compute the gradients of frozen weights too, which is what LoRA saves"
        return f"precision fp8 with tuning lora is not supported: {why}; use precision bf16, or tuning full"
    if workload.tuning == "qlora":
        return "precision fp8 with tuning qlora is not supported: the base has four bits already; use precision bf16"
    if workload.fp8_library != "torchao" and workload.parallel in SHARDED:
        use = "use fp8_library torchao, or parallel ddp or zero1"
        return f"precision fp8 by {workload.fp8_library} with parallel {workload.parallel} was never tried: {use}"
    tokens = (workload.batch_per_gpu or FLOAT8_MULTIPLE) * workload.context
    if tokens % FLOAT8_MULTIPLE:
        multiple = f"a multiple of {FLOAT8_MULTIPLE} tokens in a micro-step"
        return f"precision fp8 needs {multiple}: found {tokens:,}; use another context or batch_per_gpu"
    return None


def whole_buckets_under_compile(cell: Cell, site: Site) -> str | None:
    """torch.compile's DDP optimiser asserts a bucket cap of at least 1 MiB."""
    bucket = cell.ddp.bucket_mib
    if getattr(cell.workload, "compile", "off") == "off" or isinstance(bucket, str):
        return None
    if bucket >= 1:
        return None
    return f"ddp.bucket_mib {bucket:g} with torch.compile: the compiler needs at least 1"


def attention_kernel_exists(cell: Cell, site: Site) -> str | None:
    """On CPU there are two attention kernels; on GPUs some compute in half precision only, or not on every card."""
    workload = cell.workload
    if not isinstance(workload, LanguageWorkload):
        return None
    if site.device == "cpu":
        missing = workload.attention in ("efficient", "cudnn", "flash_attention_2")
        return f"attention {workload.attention} does not exist on CPU; use auto, flash or math" if missing else None
    if workload.attention == "flash_attention_2" and (site.capability or FLASH_CAPABILITY) < FLASH_CAPABILITY:
        found = ".".join(map(str, site.capability or ()))
        return f"attention flash_attention_2 needs a compute capability >= 8.0: the GPU has {found}; use efficient"
    if workload.attention not in HALF_KERNELS or workload.precision in HALF_PRECISIONS:
        return None
    return f"attention {workload.attention} needs precision fp16 or bf16; {workload.precision} has efficient and math"


def sharding_takes_precision(cell: Cell, site: Site) -> str | None:
    """Gradient scaling looks at gradients rank by rank; ranks of FSDP would skip different steps."""
    workload = cell.workload
    if not isinstance(workload, LanguageWorkload | DiffusionWorkload):
        return None
    if workload.parallel not in SHARDED or workload.precision != "fp16":
        return None
    return f"precision fp16 with parallel {workload.parallel} is not supported: gradients are scaled whole; use bf16"


def blocks_have_the_targets(cell: Cell, site: Site) -> str | None:
    """A decoder of a named size is a Llama; what one's own has, `workloads.networks.local_decoder` looks at."""
    workload = cell.workload
    if not isinstance(workload, LanguageWorkload) or workload.adapter is None or workload.path:
        return None
    matrices = SIZES[workload.size].matrices
    missing = [target for target in workload.adapter.targets if target not in matrices]
    if not missing:
        return None
    return (
        f"lora_targets {', '.join(missing)}: no block of size {workload.size} has it; use some of {', '.join(matrices)}"
    )


def quantised_base_is_whole(cell: Cell, site: Site) -> str | None:
    """QLoRA: four-bit weights are not sharded, and bitsandbytes has no kernels for the oldest cards."""
    workload = cell.workload
    if not isinstance(workload, LanguageWorkload) or workload.tuning != "qlora":
        return None
    if workload.parallel in SHARDED:
        return f"tuning qlora with parallel {workload.parallel} is not supported: use ddp or zero1, or tuning lora"
    if site.capability is not None and site.capability < QUANTISED_CAPABILITY:
        needs = "tuning qlora needs bitsandbytes >= 0.46 and a compute capability >= 7.5"
        return f"{needs}: the GPU has {site.capability[0]}.{site.capability[1]}; use lora"
    return None


def graphs_keep_addresses(cell: Cell, site: Site) -> str | None:
    """CUDA graphs replay fixed addresses: FSDP moves the weights, and accumulation outlives the graph's gradients."""
    workload = cell.workload
    if site.device != "cuda" or not isinstance(workload, LanguageWorkload | VisionWorkload):
        return None
    if workload.compile not in CUDA_GRAPH_MODES:
        return None
    uses = f"compile {workload.compile} uses CUDA graphs"
    if isinstance(workload, LanguageWorkload) and workload.parallel in SHARDED:
        return f"{uses}, which parallel {workload.parallel} does not allow; use compile default"
    return f"{uses}, which accumulation does not allow; use compile default" if workload.accumulation > 1 else None


def schedule_goes_beyond_its_warm_up(cell: Cell, site: Site) -> str | None:
    """A learning rate that only rises never follows its schedule."""
    workload = cell.workload
    if not isinstance(workload, Learning) or workload.schedule == "constant":
        return None
    if workload.schedule_warmup_steps < workload.schedule_steps:
        return None
    return (
        f"schedule_warmup_steps {workload.schedule_warmup_steps:,} leave nothing of schedule_steps "
        f"{workload.schedule_steps:,} to schedule {workload.schedule}; needs more schedule_steps or less warm-up"
    )


TRAINING_RULES = (
    precision_exists,
    whole_buckets_under_compile,
    attention_kernel_exists,
    sharding_takes_precision,
    blocks_have_the_targets,
    quantised_base_is_whole,
    graphs_keep_addresses,
    schedule_goes_beyond_its_warm_up,
)
