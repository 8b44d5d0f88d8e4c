"""What a worker runs: one model per `workload.kind`, each field with its unit and limits.

Pure data, no torch: `workloads` implements these, `plan` decides on them. To add a workload, add a model here, put it
into `Workload`, and implement it in `workloads`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rtxscale.models.shapes import Adapter
from rtxscale.spec.script import ScriptWorkload
from rtxscale.spec.section import PositiveFloat, PositiveInt, Section, Several, SizeMib
from rtxscale.spec.training import Learning, Loading, Precision

DecoderPrecision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp4"]
"""fp4 can be asked for and is refused by the plan, with the reason."""
CompileMode = Literal["off", "default", "reduce-overhead", "max-autotune"]
Operation = Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"]
DecoderSize = Literal["tiny", "125m", "350m", "1b", "7b", "13b"]
AttentionKernel = Literal["auto", "flash", "efficient", "math", "cudnn", "flash_attention_2"]
Matrix = Literal[
    "q_proj", "k_proj", "v_proj", "qkv_proj", "o_proj", "gate_proj", "up_proj", "gate_up_proj", "down_proj"
]
"""Of every block; those that are several in one are only in some models of one's own, such as Phi-3."""

CUDA_GRAPH_MODES = ("reduce-overhead", "max-autotune")
"""Modes of torch.compile that use CUDA graphs on GPUs."""


class VisionWorkload(Learning, Loading):
    """Train a timm image model with DDP on random images that stay on the device, or on images from a loader."""

    kind: Literal["vision"]
    model: str = Field("resnet50", description="Name of a timm model.", min_length=1)
    batch_per_gpu: PositiveInt | None = Field(
        None, description="Images per GPU and micro-step; the weak study's constant."
    )
    global_batch: PositiveInt | None = Field(
        None, description="Images of all GPUs per micro-step; the strong study's constant."
    )
    accumulation: PositiveInt = Field(1, description="Micro-steps whose gradients are added up for one update.")
    optimizer: Literal["sgd", "adamw"] = Field("sgd", description="sgd with a momentum of 0.9, or adamw.")
    checkpointing: Literal["off", "on"] = Field(
        "off", description="Recompute activations in backward, as timm cuts them."
    )
    data: Literal["resident", "synthetic", "digits", "images"] = Field(
        "resident",
        description="resident: random, on the device; synthetic: random, from the loader; digits: scikit-learn's; "
        "images: those in data_path, a directory for each class.",
    )
    image_size: PositiveInt = Field(224, description="Height and width of an image in pixels.")
    classes: PositiveInt = Field(1000, description="Size of the classifier's output.")
    precision: Precision = Field("bf16", description="fp32, tf32 (fp32 with TF32 matmuls), fp16 with scaling, bf16.")
    compile: CompileMode = Field("off", description="torch.compile mode, or off.")
    channels_last: bool = Field(True, description="Memory format channels-last for model and images.")

    @property
    def identity(self) -> tuple[str, ...]:
        """What a session cannot swap while warm: the model itself."""
        return (self.kind, self.model, str(self.image_size), str(self.classes))

    @property
    def label(self) -> str:
        """How tables name it, such as `vision/resnet50`."""
        return f"{self.kind}/{self.model}"


class LanguageWorkload(Learning, Loading):
    """Train a decoder, or LoRA's adapters on it, with AdamW: on random tokens that stay, or on text."""

    kind: Literal["language"]
    size: DecoderSize = Field("125m", description="Name of a shape in `models.shapes`; weights are random.")
    path: str = Field(
        "",
        pattern=r"^$|^[^/~\x00][^\x00]*$",
        description="Instead of size: directory of a decoder of one's own, relative to the sweep file, with a "
        "config.json in transformers' form; weights are those of its .safetensors, else random.",
    )
    context: Annotated[int, Field(ge=2, le=1_048_576)] = Field(2048, description="Tokens in a sequence.")
    data: Literal["resident", "synthetic", "tokens", "bytes", "stdlib"] = Field(
        "resident",
        description="resident: random, on the device; synthetic: random, from the loader; tokens: those in data_path "
        "(.bin of two bytes each, or .npy); bytes: of the text in data_path; stdlib: of Python's own source.",
    )
    batch_per_gpu: PositiveInt | None = Field(
        None, description="Sequences per GPU and micro-step; the weak study's constant."
    )
    global_batch: PositiveInt | None = Field(
        None, description="Sequences of all GPUs per micro-step; the strong study's constant."
    )
    accumulation: PositiveInt = Field(1, description="Micro-steps whose gradients are added up for one update.")
    checkpointing: Literal["off", "on"] = Field("off", description="Recompute each block's activations in backward.")
    attention: AttentionKernel = Field(
        "auto",
        description="The one kernel allowed; auto leaves the choice to PyTorch; flash_attention_2: the flash-attn "
        "package instead of PyTorch.",
    )
    precision: DecoderPrecision = Field(
        "bf16",
        description="fp32, tf32 (fp32 with TF32 matmuls), fp16 with scaling, bf16; fp8: the blocks' matrices, the rest "
        "in bf16; fp4 is refused.",
    )
    fp8_library: Literal["torchao", "transformer_engine"] = Field("torchao", description="fp8: what multiplies.")
    compile: CompileMode = Field("off", description="torch.compile mode, or off.")
    parallel: Literal["ddp", "fsdp", "zero1", "zero2", "zero3"] = Field(
        "ddp",
        description="ddp: whole model on each GPU; zero1: with the optimizer's states sharded; fsdp and zero3: all "
        "sharded (FSDP2); zero2: the same, with gathered weights kept from forward to backward.",
    )
    reshard_after_forward: bool = Field(True, description="fsdp only: free gathered weights between the passes.")
    tuning: Literal["full", "lora", "qlora"] = Field(
        "full",
        description="full: train all weights; lora: adapters on frozen ones (peft); qlora: on ones in four bits "
        "(bitsandbytes).",
    )
    lora_rank: PositiveInt = Field(16, description="lora, qlora: the smaller dimension of an adapter's two matrices.")
    lora_alpha: PositiveInt = Field(32, description="lora, qlora: an adapter's output is scaled by alpha over rank.")
    lora_targets: Several[Matrix] = Field(
        ("q_proj", "v_proj"), min_length=1, description="lora, qlora: the matrices of each block that get an adapter."
    )

    @property
    def adapter(self) -> Adapter | None:
        """What LoRA trains; None where all weights are trained."""
        return Adapter(rank=self.lora_rank, targets=self.lora_targets) if self.tuning != "full" else None

    @property
    def identity(self) -> tuple[str, ...]:
        """What a session cannot swap while warm: the model itself."""
        return (self.kind, "path", self.path) if self.path else (self.kind, self.size)

    @property
    def label(self) -> str:
        """How tables name it, such as `language/1b`."""
        return f"{self.kind}/{self.path or self.size}"


class DiffusionWorkload(Learning, Loading):
    """Train the SDXL UNet with the DDPM objective, on random latents that stay or on precomputed ones from a loader."""

    kind: Literal["diffusion"]
    model: Literal["sdxl", "tiny"] = Field("sdxl", description="sdxl, or the same architecture in small for tests.")
    data: Literal["resident", "latents"] = Field(
        "resident",
        description="resident: random, on the device; latents: precomputed, those in data_path with what they are "
        "conditioned on.",
    )
    batch_per_gpu: PositiveInt | None = Field(None, description="Images per GPU and step; the weak study's constant.")
    global_batch: PositiveInt | None = Field(None, description="Images of all GPUs per step; the strong study's.")
    image_size: Annotated[int, Field(ge=32, multiple_of=32)] = Field(
        1024, description="Height and width in pixels, a multiple of 32; latents are an eighth of it."
    )
    checkpointing: Literal["off", "on"] = Field("off", description="Recompute each block's activations in backward.")
    precision: Precision = Field("bf16", description="fp32, tf32 (fp32 with TF32 matmuls), fp16 with scaling, bf16.")
    compile: CompileMode = Field("off", description="torch.compile mode, or off.")
    channels_last: bool = Field(True, description="Memory format channels-last for a whole model.")
    parallel: Literal["ddp", "fsdp"] = Field("ddp", description="ddp: whole model on each GPU; fsdp: sharded (FSDP2).")

    @property
    def identity(self) -> tuple[str, ...]:
        """What a session cannot swap while warm: the model itself."""
        return (self.kind, self.model)

    @property
    def label(self) -> str:
        """How tables name it, such as `diffusion/sdxl`."""
        return f"{self.kind}/{self.model}"


class CollectivesWorkload(Section):
    """Time raw collectives over message sizes; it has bandwidths, no throughput and no efficiency."""

    kind: Literal["collectives"]
    operations: Several[Operation] = Field(("all_reduce",), min_length=1, description="Collectives to time.")
    sizes_mib: Several[SizeMib] = Field(
        (1.0, 8.0, 64.0, 256.0), min_length=1, description="Message sizes in MiB, counted as nccl-tests counts them."
    )
    buckets_of: str = Field(
        "",
        max_length=100,
        description="Instead of operations and sizes_mib: the gradient buckets of a model, which DDP would reduce one "
        "after the other with ddp.bucket_mib. A language size such as 1b, sdxl, or a timm model.",
    )
    precision: Literal["fp32", "fp16", "bf16"] = Field("fp32", description="Element type of the message.")

    @property
    def identity(self) -> tuple[str, ...]:
        """Nothing of a collectives trial outlives it, so every one can share a session."""
        return (self.kind,)

    @property
    def label(self) -> str:
        """How tables name it: `collectives`, or `collectives/buckets of 1b`."""
        return f"{self.kind}/buckets of {self.buckets_of}" if self.buckets_of else self.kind


Share = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


class SimulatedWorkload(Section):
    """Nothing is trained and nothing measured: numbers from a planted scaling law, on a cluster that is not there.

    It takes the tool through a cluster that nobody has at hand, and shows whether it finds what was planted. The law is
    Gunther's, X(N) = N rate / (1 + contention (N - 1) + coherency N (N - 1)); without coherency it is Amdahl's.
    """

    kind: Literal["simulated"]
    machines: Annotated[int, Field(ge=1, le=1024)] = Field(1, description="Nodes of the simulated cluster.")
    gpus_per_machine: Annotated[int, Field(ge=1, le=16)] = Field(8, description="Simulated GPUs of each node.")
    rate: PositiveFloat = Field(1000.0, description="Samples per second of one simulated GPU.")
    contention: Share = Field(0.02, description="Serial share of the planted law.")
    coherency: Share = Field(0.0, description="Cost of each pair of workers in the planted law.")
    cross_socket_loss: Share = Field(0.0, description="Share of throughput lost where GPUs are on two sockets.")
    cross_node_loss: Share = Field(0.0, description="Share of throughput lost where GPUs are on several nodes.")
    noise: Share = Field(0.01, description="Relative standard deviation between trials of a session.")
    session_noise: Share = Field(0.01, description="Relative standard deviation between sessions.")
    batch_per_gpu: PositiveInt | None = Field(None, description="Samples per GPU and step; the weak study's constant.")
    global_batch: PositiveInt | None = Field(None, description="Samples of all GPUs per step; the strong study's.")
    precision: Literal["fp32"] = Field("fp32", description="Nothing is computed; the word has no meaning here.")

    @property
    def identity(self) -> tuple[str, ...]:
        """Nothing of a simulated trial outlives it, so every one can share a session."""
        return (self.kind,)

    @property
    def label(self) -> str:
        """How tables name it, such as `simulated/contention 0.02, coherency 0`."""
        return f"{self.kind}/contention {self.contention:g}, coherency {self.coherency:g}"


Workload = Annotated[
    VisionWorkload | LanguageWorkload | DiffusionWorkload | ScriptWorkload | CollectivesWorkload | SimulatedWorkload,
    Field(discriminator="kind"),
]


class CollectivesProbe(Section):
    """Collectives timed in each cell after its window, on the same communicator."""

    operations: Several[Operation] = Field(("all_reduce",), min_length=1, description="Collectives to time.")
    sizes_mib: Several[SizeMib] = Field((1.0, 64.0, 512.0), min_length=1, description="Message sizes in MiB.")


def names_files(workload: Workload) -> bool:
    """Whether a workload names code, data or a model that lie beside the sweep file."""
    named = (getattr(workload, name, "") for name in ("data_path", "path"))
    return workload.kind == "script" or any(named)
