"""What a worker runs: one model per `workload.kind`, each field with its unit and limits.

Pure data, no torch: `workloads` implements these, `plan` decides on them. To add a workload, add a model here, put it
into `Workload`, and implement it in `workloads`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rtxscale.spec.section import PositiveFloat, PositiveInt, Section, Several

Precision = Literal["fp32", "tf32", "fp16", "bf16"]
CompileMode = Literal["off", "default", "reduce-overhead", "max-autotune"]
Operation = Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"]
DecoderSize = Literal["tiny", "125m", "350m", "1b", "7b", "13b"]
AttentionKernel = Literal["auto", "flash", "efficient", "math", "cudnn"]

CUDA_GRAPH_MODES = ("reduce-overhead", "max-autotune")
"""Modes of torch.compile that use CUDA graphs on GPUs."""


class VisionWorkload(Section):
    """Train a timm image model with DDP on synthetic images that stay on the device."""

    kind: Literal["vision"]
    model: str = Field("resnet50", description="Name of a timm model.", min_length=1)
    batch_per_gpu: PositiveInt | None = Field(None, description="Images per GPU and step; the weak study's constant.")
    global_batch: PositiveInt | None = Field(None, description="Images of all GPUs per step; the strong study's.")
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


class LanguageWorkload(Section):
    """Pre-train a Llama-shaped decoder with AdamW on random tokens that stay on the device."""

    kind: Literal["language"]
    size: DecoderSize = Field("125m", description="Name of a shape in `models.shapes`; weights are random.")
    context: Annotated[int, Field(ge=2, le=1_048_576)] = Field(2048, description="Tokens in a sequence.")
    batch_per_gpu: PositiveInt | None = Field(
        None, description="Sequences per GPU and micro-step; the weak study's constant."
    )
    global_batch: PositiveInt | None = Field(
        None, description="Sequences of all GPUs per micro-step; the strong study's constant."
    )
    accumulation: PositiveInt = Field(1, description="Micro-steps whose gradients are added up for one update.")
    checkpointing: Literal["off", "on"] = Field("off", description="Recompute each block's activations in backward.")
    attention: AttentionKernel = Field("auto", description="The one kernel allowed; auto leaves the choice to PyTorch.")
    precision: Precision = Field("bf16", description="fp32, tf32 (fp32 with TF32 matmuls), fp16 with scaling, bf16.")
    compile: CompileMode = Field("off", description="torch.compile mode, or off.")
    parallel: Literal["ddp", "fsdp"] = Field("ddp", description="ddp: whole model on each GPU; fsdp: sharded (FSDP2).")
    reshard_after_forward: bool = Field(True, description="fsdp only: free gathered weights between the passes.")

    @property
    def identity(self) -> tuple[str, ...]:
        """What a session cannot swap while warm: the model itself."""
        return (self.kind, self.size)

    @property
    def label(self) -> str:
        """How tables name it, such as `language/1b`."""
        return f"{self.kind}/{self.size}"


class DiffusionWorkload(Section):
    """Train the SDXL UNet with the DDPM objective on random latents that stay on the device."""

    kind: Literal["diffusion"]
    model: Literal["sdxl", "tiny"] = Field("sdxl", description="sdxl, or the same architecture in small for tests.")
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
    sizes_mib: Several[PositiveFloat] = Field(
        (1.0, 8.0, 64.0, 256.0), min_length=1, description="Message sizes in MiB, counted as nccl-tests counts them."
    )
    precision: Literal["fp32", "fp16", "bf16"] = Field("fp32", description="Element type of the message.")

    @property
    def identity(self) -> tuple[str, ...]:
        """Nothing of a collectives trial outlives it, so every one can share a session."""
        return (self.kind,)

    @property
    def label(self) -> str:
        """How tables name it."""
        return self.kind


Workload = Annotated[
    VisionWorkload | LanguageWorkload | DiffusionWorkload | CollectivesWorkload, Field(discriminator="kind")
]


class CollectivesProbe(Section):
    """Collectives timed in each cell after its window, on the same communicator."""

    operations: Several[Operation] = Field(("all_reduce",), min_length=1, description="Collectives to time.")
    sizes_mib: Several[PositiveFloat] = Field((1.0, 64.0, 512.0), min_length=1, description="Message sizes in MiB.")
