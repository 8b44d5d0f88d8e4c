"""What workloads that train a model of rtxscale's own have in common: precision, data from a loader, learning rate.

Pure data; the workloads themselves are in `spec.workload`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rtxscale.spec.section import PositiveFloat, PositiveInt, Section

Precision = Literal["fp32", "tf32", "fp16", "bf16"]


class Loading(Section):
    """Where data come from that do not stay on the device."""

    data_path: str = Field(
        "",
        pattern=r"^$|^[^/~\x00][^\x00]*$",
        description="File or directory of one's own data, relative to the sweep file.",
    )
    loader_workers: Annotated[int, Field(ge=0, le=256)] = Field(
        4, description="Loader processes of each GPU; 0: the rank loads by itself. Resident data have none."
    )
    pin_memory: Literal["on", "off"] = Field("on", description="Batches go to the GPU from page-locked memory.")


class Learning(Section):
    """How fast weights move, and how that changes from update to update. Each trial begins at the first update."""

    learning_rate: Literal["auto"] | PositiveFloat = Field(
        "auto", description="auto: 0.01 for sgd, 0.001 for adamw; 0.0003 of language models, 0.00001 of diffusion."
    )
    schedule: Literal["constant", "cosine", "linear", "step"] = Field(
        "constant",
        description="Of the learning rate: constant; cosine or linear down to 0; step: a tenth after each third.",
    )
    schedule_steps: PositiveInt = Field(
        10_000, description="Updates that the schedule takes in all, warm-up included; then its end stays."
    )
    schedule_warmup_steps: Annotated[int, Field(ge=0, le=1_000_000_000)] = Field(
        0, description="Updates before the schedule in which the learning rate rises linearly."
    )

    @property
    def schedule_in_words(self) -> str:
        """The whole schedule.

        >>> Learning(schedule="cosine", schedule_warmup_steps=500).schedule_in_words
        'cosine to 0 at update 10,000, after a linear warm-up of 500'
        >>> Learning().schedule_in_words
        'constant learning rate'
        """
        total = f"{self.schedule_steps:,}"
        shapes = {
            "constant": "constant learning rate",
            "cosine": f"cosine to 0 at update {total}",
            "linear": f"linear to 0 at update {total}",
            "step": f"a tenth after each third of the way to update {total}",
        }
        warm_up = f", after a linear warm-up of {self.schedule_warmup_steps:,}" if self.schedule_warmup_steps else ""
        return shapes[self.schedule] + warm_up
