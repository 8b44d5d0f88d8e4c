"""LoRA adapters on a decoder, by peft: put in place, and what of the model can then be trained.

The base is frozen: it is never updated, so it is kept in the precision that it computes in; adapters stay in fp32. Not
the training. Callers: `workloads.language`, `networks.decoder`, and `registry` for the library that is missing.

Source: Hu et al., LoRA (2021), arXiv:2106.09685.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from torch import nn

from rtxscale.models.shapes import SIZES
from rtxscale.nccl.attest import Attested, Verdict
from rtxscale.spec.workload import LanguageWorkload
from rtxscale.workloads.networks import quantisation
from rtxscale.workloads.training.precision import AUTOCAST

MISSING = "workload.tuning: found lora, which needs peft; install it with pip install 'rtxscale[finetune]'"
DOWN, UP = ".lora_A.", ".lora_B."
"""How peft names the two matrices of an adapter: (rank, inputs) and (outputs, rank)."""


def missing_library() -> str:
    """What to install, in words; empty when it is there."""
    return "" if importlib.util.find_spec("peft") else MISSING


def add_adapters(model: nn.Module, workload: LanguageWorkload) -> None:
    """Freeze the model and put an adapter beside each target; on the meta device inside `torch.device("meta")`.

    Raises:
        RuntimeError: peft is not installed.
    """
    if missing := missing_library():
        raise RuntimeError(missing)
    # Importing peft takes seconds, which full training need not pay.
    from peft import LoraConfig, inject_adapter_in_model

    dtype = AUTOCAST.get(workload.precision, torch.float32)
    model.to(dtype)
    if workload.tuning == "qlora":
        quantisation.make_places(model, dtype)
    config = LoraConfig(
        r=workload.lora_rank, lora_alpha=workload.lora_alpha, target_modules=list(workload.lora_targets)
    )
    inject_adapter_in_model(config, model)
    for name, parameter in model.named_parameters():
        if is_adapter(name):  # peft gives them the base's precision, or not, as they are built with memory or without
            parameter.data = parameter.data.float()


def is_adapter(name: str) -> bool:
    """Whether a parameter of this name belongs to an adapter.

    >>> is_adapter("model.layers.0.self_attn.q_proj.lora_A.default.weight"), is_adapter("lm_head.weight")
    (True, False)
    """
    return DOWN in name or UP in name


def first_adapter_values(name: str, shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    """A new adapter's values: A uniform as a linear layer's, B zero, so that the model starts as its base.

    Source: Hu et al., section 4.1; bounds are those of the authors' loralib, Kaiming with a = sqrt(5).
    """
    values = torch.zeros(shape, device=generator.device)
    return values if UP in name else values.uniform_(-(shape[1] ** -0.5), shape[1] ** -0.5, generator=generator)


def attest_tuning(workload: LanguageWorkload, model: nn.Module) -> Attested:
    """What can be trained, counted on the model that was really built, against what the shape says it should be."""
    counts = {name: (p.numel(), p.requires_grad) for name, p in model.named_parameters()}
    trainable = {name: count for name, (count, open_) in counts.items() if open_}
    places: list[Any] = [layer for layer in model.modules() if quantisation.is_place(layer)]
    every, some = sum(count for count, _ in counts.values()), sum(trainable.values())
    for place in places:  # four-bit weights lie packed, several in one number
        every += place.in_features * place.out_features - place.weight.numel()
    kind = "full" if some == every else "lora" if trainable and all(map(is_adapter, trainable)) else "other weights"
    kind = "qlora" if kind == "lora" and places and len(places) == quantisation.matrices_in_blocks(model) else kind
    expected = _expected(workload, some)
    return Attested(
        subject="workload.tuning",
        requested=workload.tuning,
        observed=f"{kind}, {some:,} of {every:,} parameters trainable ({some / every:.3%})",
        verdict=Verdict.HONOURED if kind == workload.tuning and some == expected else Verdict.REFUTED,
        evidence="requires_grad of the model's parameters",
    )


def _expected(workload: LanguageWorkload, seen: int) -> int:
    """Parameters that a named shape says can be trained; of a model of one's own what was seen."""
    if workload.path:
        return seen
    shape, adapter = SIZES[workload.size], workload.adapter
    return adapter.parameters(shape) if adapter else shape.parameters
