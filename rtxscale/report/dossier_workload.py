"""Lines of a dossier about the workload: what each kind does whatever the sweep says, and what was chosen.

One function a line, from `Facts` to an answer; None where the run does not say. Called by `report.dossier`.
"""

from __future__ import annotations

from rtxscale.report import dossier_data
from rtxscale.report.dossier_derived import Derived, software
from rtxscale.report.dossier_facts import DOCUMENTED, Answer, Facts, distinct, documented, measured, not_applicable
from rtxscale.spec.workload import VisionWorkload


def model_code(facts: Facts) -> Answer | None:
    """The libraries that hold the models."""
    names = {"vision": "timm", "language": "transformers", "diffusion": "diffusers"}
    known = [f"{names[kind]} {software(facts, names[kind])}" for kind in sorted(facts.kinds & names.keys())]
    known = [text for text in known if not text.endswith("None")]
    if facts.kinds == {"collectives"}:
        return not_applicable("only collectives were timed")
    return measured(", ".join(known), "environment: software") if known else None


TRAINED = ("vision", "language", "diffusion")
SIMULATED = "none: numbers from a planted law, nothing is trained"
DOCUMENTED_BY_KIND = {
    "dataset": {
        "vision": "synthetic: random images that stay on the device",
        "language": "synthetic: random tokens that stay on the device",
        "diffusion": "synthetic: random latents and prompts that stay on the device",
        "simulated": SIMULATED,
    },
    "optimizer": {
        "vision": "SGD, momentum 0.9, or AdamW; learning rate 0.01 or 0.001 unless the sweep says otherwise",
        "language": "AdamW, betas 0.9 and 0.95, weight decay 0.1, learning rate 0.0003",
        "diffusion": "AdamW, weight decay 0.01, learning rate 1e-05",
        "simulated": SIMULATED,
    },
    "scheduler": {"diffusion": "DDPM, 1000 steps, scaled linear betas 0.00085 to 0.012"},
    "schedule": {**dict.fromkeys(TRAINED, "constant learning rate"), "simulated": SIMULATED},
    "loader": {**dict.fromkeys(TRAINED, "none: the data stay on the device"), "simulated": SIMULATED},
    "training": {
        **dict.fromkeys((*TRAINED, "script"), "training"),
        "collectives": "neither: only collectives were timed",
        "simulated": "neither: numbers from a planted law, nothing was measured",
    },
}
"""What a kind of workload does whatever the sweep says; a test compares the constants with the workloads'."""
DOES_NOT_APPLY_BY_KIND = {
    "dataset_version": dict.fromkeys(TRAINED, "synthetic data has no version"),
    "tokenizer": {"language": "random tokens need none"},
    "augmentations": {"diffusion": "random latents have none"},
    "pinned": dict.fromkeys(TRAINED, "the data stay on the device"),
    "no_target": {
        **dict.fromkeys(TRAINED, "synthetic data has no target to reach"),
        "collectives": "only collectives were timed",
    },
    "no_sharding": {
        **dict.fromkeys(("vision", "diffusion"), "whole model on each GPU"),
        "collectives": "only collectives were timed",
    },
}


def _documented_by_kind(name: str) -> Derived:
    def derive(facts: Facts) -> Answer | None:
        texts = [DOCUMENTED_BY_KIND[name].get(kind) for kind in sorted(facts.kinds)]
        known = [text for text in texts if text]
        return documented(distinct(known), "rtxscale's workloads") if known else None

    return derive


def _not_applicable_by_kind(name: str) -> Derived:
    def derive(facts: Facts) -> Answer | None:
        reasons = [DOES_NOT_APPLY_BY_KIND[name].get(kind) for kind in sorted(facts.kinds)]
        known = [reason for reason in reasons if reason]
        everywhere = known and len(known) == len(facts.kinds)
        return not_applicable(distinct(known), DOCUMENTED, "rtxscale's workloads") if everywhere else None

    return derive


OPTIMIZERS_OF_VISION = {"sgd": "SGD, momentum 0.9", "adamw": "AdamW"}
RATES_OF_VISION = {"sgd": 0.01, "adamw": 0.001}
"""What `learning_rate: auto` means; a test compares both with the workload."""


def optimizer(facts: Facts) -> Answer | None:
    """The optimizers of the kinds that ran; those of images as the sweep chose them."""
    chosen = [cell.workload for cell in facts.cells if isinstance(cell.workload, VisionWorkload)]
    if not chosen:
        return _documented_by_kind("optimizer")(facts)
    others = [text for kind, text in DOCUMENTED_BY_KIND["optimizer"].items() if kind in facts.kinds - {"vision"}]
    return documented(distinct(sorted({_optimizer_of_vision(one) for one in chosen}) + others), "rtxscale's workloads")


def _optimizer_of_vision(workload: VisionWorkload) -> str:
    given = workload.learning_rate
    rate = RATES_OF_VISION[workload.optimizer] if given == "auto" else given
    return f"{OPTIMIZERS_OF_VISION[workload.optimizer]}, learning rate {rate}"


def templates(facts: Facts) -> Answer | None:
    """Which of the playbook's three templates ran."""
    names = {"language": "transformer", "vision": "vision", "diffusion": "SDXL"}
    ran = [name for kind, name in names.items() if kind in facts.kinds]
    missing = [name for kind, name in names.items() if kind not in facts.kinds]
    if not facts.kinds:
        return None
    return measured(
        f"{', '.join(ran) or 'none'} in this run; not {', '.join(missing) or 'missing any'}", "trials.workload"
    )


OF_RESIDENT: dict[str, Derived] = {
    **{name: _documented_by_kind(name) for name in DOCUMENTED_BY_KIND},
    **{name: _not_applicable_by_kind(name) for name in DOES_NOT_APPLY_BY_KIND},
}
WORKLOADS: dict[str, Derived] = {
    "model_code": model_code,
    "templates": templates,
    **OF_RESIDENT,
    "optimizer": optimizer,
    **dossier_data.of_loaded(OF_RESIDENT),
    "target": dossier_data.target,
    "time_to_target": dossier_data.time_to_target,
}
